"""Programs for the driver double: kernels from the toolchain to the GPU and back, by each way to launch them.

    python -m tests.runtime.on_double NAME        with the double in LD_LIBRARY_PATH; see test_on_double.py

The compiler is PyCUDA's, with an nvcc that compiles for the emulator; everything else is the product.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lower.comparison import assert_near
from tests.lower.test_gpu import softmax
from tests.lower.test_gpu_waves import batch_norm_gradient, gpu_with
from tests.runtime import gpu_handmade
from tests.runtime.gpu_abi import StitchGpuKernel, StitchLaunch
from tf_stitch import backends
from tf_stitch.config import Config
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.gpu_launch import Launch
from tf_stitch.lower.gpu_schedule import Version
from tf_stitch.lower.interp import bind
from tf_stitch.lower.kernel import Kernel
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.target import Target
from tf_stitch.render.cuda_host import bundle
from tf_stitch.runtime.launch import Gpu, GpuKernel, LaunchFailed
from tf_stitch.toolchain import pycuda_nvcc
from tf_stitch.toolchain.artifact import Artifact, CudaSource
from tf_stitch.toolchain.cuda import CudaToolchain
from tf_stitch.toolchain.device_compilers import DeviceCompiler
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.host import HostToolchain

Array = np.ndarray[Any, Any]
SIZES = ((1, 1), (3, 31), (5, 256), (4, 257), (2, 1023))


def toolchain() -> CudaToolchain:
    emulated = DeviceCompiler(
        "PyCUDA", (sys.executable, pycuda_nvcc.__file__, "nvcc"), "emulator", frozenset(("sm_80",))
    )
    host = HostToolchain.find(Target.baseline("x86-64"))
    return CudaToolchain(iter([emulated]), host, Headers.find("cuda"), timeout=120.0)


def built(kernel: Kernel, launch: Launch, text: str) -> Artifact:
    """By way of PyCUDA's compiler; the image is one of the emulator's."""
    (artifact,) = toolchain().build([bundle(kernel, gpu_handmade.devices(text, launch, "sm_80"))])
    assert isinstance(artifact, Artifact), artifact
    return artifact


def layer_norm_of(rows: int, width: int) -> tuple[list[Array], Array]:
    """Its inputs, and what comes of them."""
    random = np.random.default_rng(rows * width)
    x, gamma, beta = (random.standard_normal(shape, np.float32) for shape in ((rows, width), width, width))
    centred = x.astype(np.float64) - x.mean(-1, keepdims=True, dtype=np.float64)
    variance = (centred**2).mean(-1, keepdims=True)
    return [x, gamma, beta], (centred / np.sqrt(variance + 1e-5) * gamma + beta).astype(np.float32)


def normalized_of(count: int) -> tuple[list[Array | None], Array]:
    x = np.random.default_rng(count).standard_normal(count, np.float32)
    return [None, x], x / np.linalg.norm(x.astype(np.float64)).astype(np.float32)


# ---- StitchOp's launch code, through C


class Driver:
    """libcuda.so.1, as far as a test needs it besides the launch code: a context, memory, streams."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)

    def __call__(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        assert result == 0, (name, result)

    def memory(self, content: Array | int) -> int:
        """The address of a copy of an array, or of so many bytes."""
        address, size = ctypes.c_uint64(), content if isinstance(content, int) else content.nbytes
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        if not isinstance(content, int):
            self("cuMemcpyHtoD_v2", address, ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(size))
        return int(address.value)

    def content(self, address: int, like: Array) -> Array:
        result = np.empty_like(like)
        self(
            "cuMemcpyDtoH_v2",
            *(ctypes.c_void_p(result.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(result.nbytes)),
        )
        return result


class Launcher:
    def __init__(self, driver: Driver, artifact: Artifact, kernel: Kernel) -> None:
        self._code = ctypes.CDLL(os.environ["TF_STITCH_TEST_LAUNCHER"])
        self._driver = driver
        self._kernel = kernel
        self._library = ctypes.CDLL(str(artifact.path))
        self._gpu = StitchGpuKernel.in_dll(self._library, "tf_stitch_gpu_kernel")

    def run(
        self, arrays: Sequence[Array | None], likes: Sequence[Array], stream: ctypes.c_void_p
    ) -> tuple[list[Array], StitchLaunch]:
        """The outputs, which are `likes` in shape and dtype, and how the kernel was launched."""
        values = list(bind(self._kernel, arrays).values())
        symbols = (ctypes.c_longlong * len(values))(*values)
        launch, error = StitchLaunch(), ctypes.create_string_buffer(500)
        failed = self._code.tf_stitch_gpu_plan(
            ctypes.byref(self._gpu), symbols, ctypes.byref(launch), error, len(error)
        )
        assert not failed, error.value
        inputs = [0 if a is None else self._driver.memory(a) for a in arrays]
        outputs = [self._driver.memory(like.nbytes) for like in likes]
        scratch = self._driver.memory(launch.scratch_bytes) if launch.scratch_bytes else 0
        failed = self._code.tf_stitch_gpu_launch(
            ctypes.byref(self._gpu),
            *((ctypes.c_void_p * len(addresses))(*addresses) for addresses in (inputs, outputs)),
            *(symbols, ctypes.c_void_p(scratch), stream, error, len(error)),
        )
        assert not failed, error.value
        self._driver("cuStreamSynchronize", stream)
        return [self._driver.content(output, like) for output, like in zip(outputs, likes, strict=True)], launch


def c_launches() -> None:
    driver = Driver()
    stream = ctypes.c_void_p()
    driver("cuStreamCreate", ctypes.byref(stream), 1)
    kernel, launch = gpu_handmade.layer_norm()
    launcher = Launcher(driver, built(kernel, launch, gpu_handmade.LAYER_NORM), kernel)
    for rows, width in SIZES:
        arrays, expected = layer_norm_of(rows, width)
        (result,), chosen = launcher.run(arrays, [expected], stream)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        assert chosen.entry == (b"layer_norm_warp" if width <= 256 else b"layer_norm_block")


def c_waits() -> None:
    """Blocks that wait for each other, in two streams: a barrier is left as it was found."""
    driver = Driver()
    kernel, launch = gpu_handmade.normalized()
    launcher = Launcher(driver, built(kernel, launch, gpu_handmade.NORMALIZED), kernel)
    streams = [ctypes.c_void_p() for _ in range(2)]
    for stream in streams:
        driver("cuStreamCreate", ctypes.byref(stream), 1)
    grids: list[int] = []
    for count in (1, 127, 1000, 5000):
        arrays, expected = normalized_of(count)
        for stream in streams:
            (result,), chosen = launcher.run(arrays, [expected], stream)
            np.testing.assert_allclose(result, expected, rtol=1e-5)
            assert chosen.resident
        grids.append(chosen.blocks)
    assert grids == [1, 1, 8, 16]  # 5000 are work for 40 blocks: the GPU of 8 multiprocessors holds 2 on each


# ---- PyCUDA


def _on_pycuda(kernel: Kernel, launch: Launch, text: str, check: Callable[[Gpu, GpuKernel], None]) -> None:
    """With a module from the text, and with the image out of an artifact."""
    image_of = built(kernel, launch, text)
    library = ctypes.CDLL(str(image_of.path))
    module = StitchGpuKernel.in_dll(library, "tf_stitch_gpu_kernel").module[0]
    image = ctypes.string_at(module.image, module.bytes)
    with Gpu.open() as gpu:
        for loaded in (gpu.compiled(text), gpu.loaded(image)):
            check(gpu, GpuKernel(gpu, loaded, kernel, launch))


def pycuda_launches() -> None:
    def check(gpu: Gpu, run: GpuKernel) -> None:
        for rows, width in (*SIZES, (0, 5)):
            arrays, expected = layer_norm_of(rows, width)
            (result,) = run(*arrays)
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)

    _on_pycuda(*gpu_handmade.layer_norm(), gpu_handmade.LAYER_NORM, check)


def pycuda_waits() -> None:
    def check(gpu: Gpu, run: GpuKernel) -> None:
        for count in (1, 1000, 5000):
            arrays, expected = normalized_of(count)
            (result,) = run(*arrays)
            np.testing.assert_allclose(result, expected, rtol=1e-5)
        assert run.plan({"N": 5000}).blocks == 2 * gpu.multiprocessors

    _on_pycuda(*gpu_handmade.normalized(), gpu_handmade.NORMALIZED, check)


def pycuda_streams() -> None:
    """Addresses of one's own, a stream, and events around the launch."""
    import pycuda.driver as cuda

    def check(gpu: Gpu, run: GpuKernel) -> None:
        arrays, expected = layer_norm_of(3, 40)
        stream, begin, end = cuda.Stream(), cuda.Event(), cuda.Event()
        addresses = [cuda.to_device(a) for a in (*arrays, np.zeros_like(expected))]
        begin.record(stream)
        run.start(run.plan({"B": 3, "W": 40}), addresses[:3], addresses[3:], stream)
        end.record(stream)
        end.synchronize()
        assert end.time_since(begin) >= 0
        np.testing.assert_allclose(cuda.from_device_like(addresses[3], expected), expected, rtol=1e-5, atol=1e-5)

    _on_pycuda(*gpu_handmade.layer_norm(), gpu_handmade.LAYER_NORM, check)


def pycuda_tells() -> None:
    """What goes wrong is a sentence, and a StitchError."""
    kernel, launch = gpu_handmade.layer_norm()
    with Gpu.open() as gpu:
        for failing, said in (
            (lambda: gpu.compiled("int x = y;"), "compiling: "),
            (lambda: gpu.loaded(b"no image at all"), "loading a module: "),
            (lambda: GpuKernel(gpu, gpu.compiled(gpu_handmade.NORMALIZED), kernel, launch), "entry layer_norm_warp: "),
            (lambda: Gpu.open(99), "GPU 99: "),
        ):
            with pytest.raises(LaunchFailed, match=f"^{said}"):
                failing()


# ---- what the pipeline makes


def _launched_both_ways(lowered: Kernel, sizes: Sequence[int], target: GpuTarget, name: str) -> Version:
    """By StitchOp's code and by PyCUDA: near to the interpreter, and of equal bits. The version that ran."""
    made = backends.rendered(lowered, (target,), Config(target="cuda:sm_80"))
    assert isinstance(made.source, CudaSource)
    (artifact,) = toolchain().build([made.source])
    assert isinstance(artifact, Artifact), artifact
    symbols = {source.symbol: size for source, size in zip(made.kernel.symbols, sizes, strict=True)}
    random = np.random.default_rng(0)
    arrays: list[Array | None] = []
    for type_ in made.kernel.inputs:
        shape = () if type_ is None else tuple(d.evaluate(symbols) for d in type_.dims)
        values = np.abs(random.standard_normal(shape)) + 0.1
        arrays.append(None if type_ is None else values.astype(type_.dtype.numpy))
    expected = interp.run(lowered, arrays)
    results, launched = Launcher(Driver(), artifact, made.kernel).run(arrays, expected, ctypes.c_void_p())
    for result, value in zip(results, expected, strict=True):
        assert_near(result, value, what=name)
    ((_, schedules),) = made.gpus
    with Gpu.open() as gpu:
        again = GpuKernel(gpu, gpu.compiled(made.source.text), made.kernel, schedules.launch)(*arrays)
    for result, value in zip(again, results, strict=True):
        np.testing.assert_array_equal(result, value, err_msg=name)
    (version,) = [v for v in schedules.versions if v.variant.entry.encode() == launched.entry]
    assert launched.resident == version.variant.resident
    return version


def generated() -> None:
    """Named clusters, from graph to kernel."""
    from tests.golden.clusters import traced  # imports TensorFlow, which no other program here needs

    for name in ("layer_norm", "masked_softmax", "gelu_tanh", "batch_norm"):
        (cluster,) = traced(name).clustering.clusters
        lowered = lower(plan_groups(cluster.body), name)
        _launched_both_ways(lowered, [5 + 3 * n for n in range(len(lowered.symbols))], GpuTarget.named("sm_80"), name)


def generated_waves() -> None:
    """Rows and columns in pieces that stay on chip across barriers of the grid; in one wave, and in several."""
    for name, body, sizes, kib in (
        ("long_rows", softmax("B", "N"), (5, 20_011), 164),
        ("long_rows_in_waves", softmax("B", "N"), (5, 20_011), 24),
        ("gradient", batch_norm_gradient(), (1100, 40), 40),
    ):
        version = _launched_both_ways(lower(plan_groups(body), name), sizes, gpu_with(kib), name)
        assert version.kept, f"{name} is launched without waves"


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(Path(__file__).name, sys.argv[1], "done")
