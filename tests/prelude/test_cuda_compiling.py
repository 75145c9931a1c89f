"""The CUDA prelude under NVRTC: every function and dtype for the architectures there are, and what comes of it.

No GPU is needed. What a person would look for in PTX is asserted: no memory of a thread's own, no calls, no doubles in
code of floats, the conversions of f16 by the hardware, neighbours in one load.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.prelude.cuda import BEGIN, CASES, END, KERNELS, compiled, table
from tf_stitch.ir.types import DType
from tf_stitch.render.c_family import STORAGE
from tf_stitch.toolchain.cubin import resources_of
from tf_stitch.toolchain.device_compilers import OPTIONS, find_nvcc

ARCHS = ("sm_70", "sm_75", "sm_80", "sm_90", "sm_120")
# Where their argument is large, the library reduces it with a double, and of f64 with an array in memory.
REDUCED = {"sin", "cos", "tan"}
BY_ARCH = pytest.mark.parametrize("arch", ARCHS)


def kernels_of(ptx: bytes) -> dict[str, str]:
    """The text of each entry."""
    parts = re.split(r"\.visible \.entry (\w+)\(", ptx.decode())
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@BY_ARCH
def test_everything_compiles(arch: str) -> None:
    """Into registers alone: nothing is spilled, and no array was left in memory."""
    resources = resources_of(compiled(table(True), arch))
    assert {f"{function.name}_{dtype.value}" for function, dtype in CASES} <= resources.keys()
    local = {name for name, needs in resources.items() if needs.local_bytes}
    assert local <= {f"{name}_f64" for name in REDUCED}, local


def test_nvcc_takes_it(tmp_path: Path) -> None:
    """The other compiler of CUDA, whose host half reads the prelude, too."""
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc in PATH, of CUDA_HOME or of a wheel")
    source = tmp_path / "table.cu"
    source.write_text(table(True))
    command = [nvcc, "-cubin", "-arch=sm_80", *OPTIONS, f"-I{KERNELS}", str(source), "-o", str(tmp_path / "cubin")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert not finished.stderr.strip()


@BY_ARCH
def test_ptx_is_what_it_should_be(arch: str) -> None:
    kernels = kernels_of(compiled(table(True), arch.replace("sm_", "compute_")))
    for function, dtype in CASES:
        text = kernels[f"{function.name}_{dtype.value}"]
        if dtype.compute is DType.F32:  # of f64 the library itself calls a subroutine, for pow
            assert "call" not in text, (function.name, dtype)
            assert ".f64" not in text or function.name in REDUCED, (function.name, dtype)
            assert ".ftz" not in text.replace(".approx.ftz", ""), (function.name, dtype)  # but in the library's seeds


@BY_ARCH
def test_no_product_and_sum_become_one(arch: str) -> None:
    """What a user wrote is rounded after each op."""
    body = (
        'extern "C" __global__ void fusible(const f32* x, f32* y) {'
        " store(y, plus(times(load(x), load(x + 1)), load(x + 2))); }\n"
    )
    text = kernels_of(compiled(BEGIN + body + END, arch.replace("sm_", "compute_")))["fusible"]
    assert "fma" not in text
    assert "mul" in text


@BY_ARCH
def test_halves_are_converted_by_the_hardware(arch: str) -> None:
    kernels = kernels_of(compiled(table(True), arch.replace("sm_", "compute_")))
    assert "cvt.f32.f16" in kernels["abs_f16"]
    assert "cvt.rn.f16.f32" in kernels["abs_f16"]
    assert ("cvt.rn.bf16.f32" in kernels["abs_bf16"]) == (int(arch[3:]) >= 80)


def wide_copy(load: str, dtype: DType) -> str:
    type_, width = STORAGE[dtype], 16 // dtype.size
    return (
        f'extern "C" __global__ void {load}_{dtype.value}(const {type_}* __restrict__ in, {type_}* out) {{\n'
        f"  store(out, {load}<{width}>(in));\n}}\n"
    )


@BY_ARCH
def test_sixteen_bytes_are_one_load(arch: str) -> None:
    """By the cache of what is read only, or past the L1; and one store."""
    copies = [wide_copy(load, dtype) for dtype in STORAGE for load in ("load_constant", "load_fresh")]
    kernels = kernels_of(compiled("".join([BEGIN, *copies, END]), arch.replace("sm_", "compute_")))
    for name, text in kernels.items():
        loads, stores = re.findall(r"ld\.global\S*", text), re.findall(r"st\.global\S*", text)
        path = "nc.v4" if name.startswith("load_constant") else "cg.v4"
        assert len(loads) == len(stores) == 1, (name, loads, stores)
        assert f".{path}" in loads[0], (name, loads)
        assert ".v4" in stores[0], (name, stores)
        assert "local" not in text, name
    pairs = kernels["load_constant_bf16"].count("bf16x2")
    assert pairs == (4 if int(arch[3:]) >= 80 else 0)
