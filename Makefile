# make venv    a virtual environment with TensorFlow and this package, in .venv
# make test    lint, types and tests
# make mutants  every mutant of every generated CUDA kernel, on the emulator: about an hour
# make demo    a model with and without stitching, side by side
# make gpu-bundle   kernels to check and time on a machine with a GPU, in build/gpu-bundle
# make clean   removes what was built

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP := .venv/bin/python -m pip --disable-pip-version-check --quiet
TENSORFLOW := tensorflow-cpu==2.21.0
# tf-keras asks for the GPU build of TensorFlow, which would be installed over the CPU one.
WITHOUT_DEPENDENCIES := "tf-keras>=2.21,<2.22"
NATIVE := CMakeLists.txt $(wildcard kernels/*.cc kernels/*.h kernels/*.py kernels/CMakeLists.txt kernels/prelude/*/*)

PYCUDA := build/pycuda

.PHONY: venv test mutants demo gpu-bundle clean
.DELETE_ON_ERROR:

venv: .venv/.native

.venv/.dependencies: pyproject.toml Makefile
	@echo "== .venv: $(TENSORFLOW), the dependencies, and the package in editable form"
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	$(PIP) install --upgrade pip
	$(PIP) install $(TENSORFLOW) scikit-build-core cmake ninja
	$(PIP) install --no-build-isolation --editable '.[cpu,compiler,test,bench]'
	$(PIP) install --no-deps $(WITHOUT_DEPENDENCIES)
	@touch $@

# The step above builds the native library too; this one builds it again when a source has changed since.
.venv/.native: .venv/.dependencies $(NATIVE)
	@echo "== libtf_stitch.so"
	$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

# For tests on the driver double, from a wheel that is built once. They skip where it cannot be built.
.venv/.pycuda: .venv/.dependencies docker/build_pycuda.sh
	@echo "== PyCUDA"
	PYTHON=.venv/bin/python docker/build_pycuda.sh $(PYCUDA) && $(PIP) install --only-binary pycuda --find-links $(PYCUDA) pycuda \
	  || echo "PyCUDA cannot be built here; the tests that need it are skipped"
	@touch $@

test: venv .venv/.pycuda
	@echo "== lint"
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	@echo "== types"
	.venv/bin/pyright
	@echo "== tests"
	.venv/bin/python -m pytest

mutants: venv
	@echo "== mutants of CUDA kernels"
	.venv/bin/python -m pytest -m exhaustive tests/emulator

demo: venv
	@echo "== demo"
	.venv/bin/python -m bench demo

# What a machine with a GPU needs to check and time the kernels: no TensorFlow, no compiler. There: python gpu_check.py
gpu-bundle: venv
	@echo "== build/gpu-bundle"
	.venv/bin/python -m bench gpu-bundle build/gpu-bundle

clean:
	@echo "== removing .venv, build and caches"
	rm -rf .venv build dist wheelhouse .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
