"""CudaToolchain: real compilers, no GPU."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest

from tests.emulator import building
from tests.runtime import gpu_handmade
from tests.runtime.gpu_abi import StitchGpuKernel, StitchLaunch
from tests.toolchain.conftest import LEAST, needs_compiler
from tf_stitch.errors import BuildError, EnvironmentProblem
from tf_stitch.lower.gpu_launch import evaluate
from tf_stitch.render.cuda_host import bundle
from tf_stitch.toolchain import device_compilers
from tf_stitch.toolchain.artifact import Artifact, CudaSource, DeviceCode
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.cubin import Resources, resources_of
from tf_stitch.toolchain.cuda import CudaToolchain, Image
from tf_stitch.toolchain.device_compilers import DeviceCompiler, find_device_compilers
from tf_stitch.toolchain.failure import CompileError
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.host import HostToolchain


def _compilers() -> list[DeviceCompiler]:
    """Those of this machine; PyCUDA too where it is installed, for besides nvcc it wants no more than the double."""
    found = list(find_device_compilers())
    if importlib.util.find_spec("pycuda") and all(compiler.name != "PyCUDA" for compiler in found):
        library_path = str(building.driver())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_LIBRARY_PATH", library_path)
            pycuda = next((c for c in find_device_compilers() if c.name == "PyCUDA"), None)
        if pycuda is not None:
            command = ("env", f"LD_LIBRARY_PATH={library_path}", *pycuda.command)
            found.insert(0, dataclasses.replace(pycuda, command=command))
    return found


COMPILERS = _compilers()
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not COMPILERS, reason="no NVRTC: pip install nvidia-cuda-nvrtc-cu12"),
]
each_compiler = pytest.mark.parametrize("compiler", COMPILERS, ids=lambda c: c.name)


def toolchain(cache: KernelCache, *compilers: DeviceCompiler, timeout: float = 60.0) -> CudaToolchain:
    host = HostToolchain.find(LEAST, 30.0, cache)
    return CudaToolchain(iter(compilers or COMPILERS), host, Headers.find("cuda"), timeout=timeout)


def layer_norm(*archs: str) -> CudaSource:
    kernel, launch = gpu_handmade.layer_norm()
    return bundle(kernel, gpu_handmade.devices(gpu_handmade.LAYER_NORM, launch, *archs))


def plain(code: str, text: str = "") -> DeviceCode:
    body = "long long i = blockIdx.x * 128LL + threadIdx.x; if (i < n) y[i] = x[i] * 3.0f + 1.0f;"
    entry = f'extern "C" __global__ void plain(const float* x, float* y, long long n) {{ {body} }}'
    return DeviceCode(code, text or entry)


# ---- images


@each_compiler
def test_cubins_say_what_their_entries_need(compiler: DeviceCompiler, cache: KernelCache) -> None:
    text = """
    extern "C" __global__ void needs_much(float* y) {
      __shared__ float tile[256];
      float own[128];
      for (int i = 0; i < 128; ++i) own[i] = 0.0f;
      for (int i = 0; i < 1000; ++i) own[int(y[i]) & 127] += y[i + threadIdx.x];
      tile[threadIdx.x] = own[int(y[0]) & 127];
      __syncthreads();
      y[threadIdx.x] = tile[255 - threadIdx.x];
    }"""
    for arch in sorted(compiler.archs & set(ARCHS)):
        image = toolchain(cache, compiler).image(plain(arch, text), "needs_much")
        assert isinstance(image, Image), image
        (found,) = resources_of(image.content).values()
        assert (found.local_bytes, found.shared_bytes, found.parameter_bytes) == (512, 1024, 8), arch
        assert 8 <= found.registers <= 255


@each_compiler
def test_ptx_is_text_without_fused_products(compiler: DeviceCompiler, cache: KernelCache) -> None:
    image = toolchain(cache, compiler).image(plain("compute_90"), "plain")
    assert isinstance(image, Image)
    ptx = image.content.decode()
    assert ".target sm_90" in ptx
    assert "mul.rn.f32" in ptx  # without the rounding the driver might fuse it with the sum
    assert "fma" not in ptx
    assert "\0" not in ptx


@each_compiler
def test_no_path_gets_into_an_image(compiler: DeviceCompiler, tmp_path: Path) -> None:
    contents: list[bytes] = []
    for name in ("here", "elsewhere"):
        image = toolchain(KernelCache(tmp_path / name), compiler).image(plain("sm_80"), name)
        assert isinstance(image, Image)
        contents.append(image.content)
    assert contents[0] == contents[1]
    assert str(tmp_path).encode() not in contents[0]


@each_compiler
def test_what_the_compiler_says_of_a_mistake_is_kept(compiler: DeviceCompiler, cache: KernelCache) -> None:
    failure = toolchain(cache, compiler).image(plain("sm_80", "__device__ int f() { return y; }\n"), "softmax")
    assert isinstance(failure, CompileError)
    assert f"kernel softmax for sm_80: the compiler {compiler.name} failed with exit code 1" in str(failure)
    assert 'identifier "y" is undefined' in str(failure)
    assert failure.source_path is not None
    assert 'identifier "y" is undefined' in failure.source_path.with_suffix(".txt").read_text()


def test_a_compiler_that_hangs_is_stopped(cache: KernelCache) -> None:
    hanging = DeviceCompiler("a hanging one", ("sh", "-c", "sleep 60"), "1.0", frozenset(("sm_80",)))
    failure = toolchain(cache, hanging, timeout=0.5).image(plain("sm_80"), "plain")
    assert isinstance(failure, CompileError)
    assert failure.timed_out


def test_where_one_fails_the_next_is_tried(cache: KernelCache) -> None:
    failing = DeviceCompiler("a failing one", ("false",), "1.0", frozenset(("sm_80",)))
    image = toolchain(cache, failing, *COMPILERS).image(plain("sm_80"), "plain")
    assert isinstance(image, Image)


def test_each_architecture_has_the_first_compiler_that_knows_it(cache: KernelCache) -> None:
    old = DeviceCompiler("old", ("false",), "1", frozenset(("sm_70",)))
    new = DeviceCompiler("new", ("false",), "2", frozenset(("sm_70", "sm_90")))
    both = toolchain(cache, old, new)
    assert [c.name for c in both.compilers_for("sm_70")] == ["old", "new"]
    assert [c.name for c in both.compilers_for("compute_90")] == ["new"]


def test_the_key_changes_with_all_that_changes_an_image(cache: KernelCache) -> None:
    chain = toolchain(cache)
    one, other = (DeviceCompiler("NVRTC", (), version, frozenset()) for version in ("12.8", "12.9"))
    keys = {
        chain.image_key(plain("sm_80"), one),
        chain.image_key(plain("sm_80"), other),
        chain.image_key(plain("sm_90"), one),
        chain.image_key(plain("compute_80"), one),
        chain.image_key(plain("sm_80", "//"), one),
    }
    assert len(keys) == 5


# ---- whole kernels


@each_compiler
def test_a_kernel_for_every_architecture(compiler: DeviceCompiler, cache: KernelCache) -> None:
    known = [arch for arch in ARCHS if compiler.compiles(arch)]
    (built,) = toolchain(cache, compiler).build([layer_norm(*known)])
    assert isinstance(built, Artifact), built
    assert list(built.resources) == known
    for arch, entries in built.resources.items():
        assert entries.keys() == {"layer_norm_warp", "layer_norm_block"}
        for entry in entries.values():
            assert entry.local_bytes == 0, f"{arch}: registers were spilled"
            assert entry.parameter_bytes == 6 * 8
    assert built.resources[known[0]]["layer_norm_block"].shared_bytes == 32
    assert built.requires == LEAST.requires
    assert built.compile_seconds > 0


def test_the_second_time_it_comes_from_the_cache(cache: KernelCache) -> None:
    (first,) = toolchain(cache).build([layer_norm("sm_80")])
    again, both = toolchain(cache).build([layer_norm("sm_80"), layer_norm("sm_80", "sm_90")])
    assert isinstance(first, Artifact)
    assert isinstance(again, Artifact)
    assert isinstance(both, Artifact)
    assert (again.key, again.path, again.compile_seconds) == (first.key, first.path, 0.0)
    assert again.resources == first.resources
    assert both.key != first.key
    assert both.resources["sm_80"] == first.resources["sm_80"]


def test_equal_device_code_is_compiled_once_and_counted_once(cache: KernelCache) -> None:
    kernel, launch = gpu_handmade.layer_norm()
    sources = [
        bundle(kernel, gpu_handmade.devices(gpu_handmade.LAYER_NORM + tail, launch, "sm_80"))
        for tail in ("", "", "// another\n")
    ]
    built = toolchain(cache).build(sources)
    seconds = [artifact.compile_seconds for artifact in built if isinstance(artifact, Artifact)]
    assert [s > 0 for s in seconds] == [True, False, True]


def test_one_failure_spoils_no_other(cache: KernelCache) -> None:
    kernel, launch = gpu_handmade.layer_norm()
    broken = bundle(kernel, gpu_handmade.devices("int x = y;", launch, "sm_80"))
    first, second, third = toolchain(cache).build([layer_norm("sm_80"), broken, layer_norm("sm_90")])
    assert isinstance(first, Artifact)
    assert isinstance(second, BuildError)
    assert isinstance(third, Artifact)


def test_an_architecture_without_a_compiler_is_refused(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostToolchain.find(LEAST, 30.0, cache)
    with pytest.raises(EnvironmentProblem, match=r"no compiler for CUDA kernels of sm_30 .*nvidia-cuda-nvrtc-cu12"):
        CudaToolchain.find(["sm_30"], host)
    monkeypatch.setattr(device_compilers, "_candidates", lambda: iter(()))
    with pytest.raises(EnvironmentProblem, match="neither NVRTC nor PyCUDA with nvcc is there"):
        CudaToolchain.find(["sm_80"], host)


# ---- the library


def test_the_library_carries_the_images(cache: KernelCache) -> None:
    chain = toolchain(cache)
    source = layer_norm("sm_80", "sm_90")
    (built,) = chain.build([source])
    assert isinstance(built, Artifact), built
    library = ctypes.CDLL(str(built.path))
    gpu = StitchGpuKernel.in_dll(library, "tf_stitch_gpu_kernel")
    modules = [gpu.module[n] for n in range(gpu.modules)]
    assert [(m.arch, m.is_ptx) for m in modules] == [(80, 0), (90, 0), (90, 1)]
    for module, device in zip(modules, source.images, strict=True):
        image = chain.image(device, "again")
        assert isinstance(image, Image)
        assert ctypes.string_at(module.image, module.bytes) == image.content
        assert ctypes.string_at(module.image + module.bytes, 1) == b"\0"
        assert module.image % 16 == 0
        assert [list(module.parameter[n]) for n in range(module.parameters)] == [
            *([0, 0], [0, 1], [0, 2], [1, 0], [4, 0], [4, 1])
        ]


@pytest.mark.parametrize("name", ["layer_norm", "normalized"])
def test_what_is_printed_launches_as_what_is_evaluated(name: str, cache: KernelCache) -> None:
    kernel, launch = getattr(gpu_handmade, name)()
    text = getattr(gpu_handmade, name.upper())
    (built,) = toolchain(cache).build([bundle(kernel, gpu_handmade.devices(text, launch, "sm_80"))])
    assert isinstance(built, Artifact), built
    library = ctypes.CDLL(str(built.path))
    module = StitchGpuKernel.in_dll(library, "tf_stitch_gpu_kernel").module[0]
    chosen = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_longlong), ctypes.c_longlong, ctypes.POINTER(StitchLaunch))(
        module.launch
    )
    names = [s.symbol for s in kernel.symbols]
    for sizes in ((0, 0), (1, 1), (3, 256), (5, 257), (4097, 31), (10**6, 10**5)):
        symbols = dict(zip(names, sizes, strict=False))
        got = StitchLaunch()
        chosen((ctypes.c_longlong * 2)(*sizes), 7, ctypes.byref(got))
        variant = launch.chosen(symbols)
        assert got.entry.decode() == variant.entry
        assert bool(got.resident) == variant.resident
        assert got.blocks == variant.grid(symbols, 7)
        assert got.threads == variant.threads
        assert got.shared_bytes == evaluate(variant.shared, symbols)
        assert got.scratch_bytes == evaluate(variant.scratch, symbols)


def test_variants_of_architectures_are_kept_apart(cache: KernelCache) -> None:
    kernel, launch = gpu_handmade.layer_norm()
    text = gpu_handmade.LAYER_NORM
    old = gpu_handmade.devices(text, launch, "sm_70", "sm_75")
    (new,) = gpu_handmade.devices(text + "// newer\n", type(launch)(launch.variants[1:], launch.parameters), "sm_80")
    source = bundle(kernel, [*old, new])
    assert source.text.startswith("// ---- sm_70, sm_75 ----\n")
    assert "// ---- sm_80 ----\n" in source.text
    assert re.findall(r"\{(\d+), ([01]), image_\d.*launch_(\d)\}", source.host) == [
        *(("70", "0", "0"), ("75", "0", "0"), ("80", "0", "1"), ("80", "1", "1"))
    ]


def test_damaged_cubins() -> None:
    with pytest.raises(ValueError, match="not a cubin"):
        resources_of(b"\x7fELF\x01\x01 and more, but nothing of 64 bits")
    with pytest.raises(ValueError, match="damaged"):
        resources_of(b"\x7fELF\x02\x01" + bytes(12) + (190).to_bytes(2, "little"))
    assert Resources(8, 0, 0, 24) != Resources(8, 0, 0, 16)
