"""The test double of libcuda.so.1: from ctypes, as the library calls it, and through the real PyCUDA.

Each test is a program of its own, so that no other test of this process finds the double.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.emulator import building

ROOT = Path(__file__).resolve().parents[2]

CTYPES = """
import ctypes, sys
import numpy as np
from tests.emulator import building, kernels

cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    return getattr(cuda, name)(*arguments)

def must(name, *arguments):
    result = call(name, *arguments)
    assert result == 0, (name, result, text(result))

def text(result):
    told = ctypes.c_char_p()
    call("cuGetErrorString", result, ctypes.byref(told))
    return (told.value or b"").decode()

def handle():
    return ctypes.c_void_p()

def begin():
    context = handle()
    must("cuInit", 0)
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    must("cuCtxSetCurrent", context)
    return context

def upload(array):
    address = ctypes.c_uint64()
    must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
    must("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
    return address

def function(text, name):
    image = building.build(text, "plain").read_bytes()
    module, found = handle(), handle()
    must("cuModuleLoadDataEx", ctypes.byref(module), image, 0, None, None)
    must("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
    return found

def launch(found, grid, block, values, call_name="cuLaunchKernel", shared=0):
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    extra = (None,) if call_name == "cuLaunchKernel" else ()
    return call(call_name, found, grid, 1, 1, block, 1, 1, shared, None, addresses, *extra)

def scale(n=96):
    source = 'extern "C" __global__ void scale(float* x, long long n) {' \\
             ' int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }'
    x = np.arange(n, dtype=np.float32)
    return function(source, "scale"), x, upload(x)
"""


def run_on_double(program: str, *, beside: str = "", **settings: str) -> str:
    environment = {
        **os.environ,
        **settings,
        "LD_LIBRARY_PATH": str(building.driver()),
        "PYTHONPATH": f"{ROOT}:{beside}",
    }
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=ROOT,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def on_double(program: str, **settings: str) -> str:
    return run_on_double(CTYPES + textwrap.dedent(program), **settings)


def test_a_launch_and_its_trace(tmp_path: Path):
    trace = tmp_path / "trace"
    on_double(
        """
        begin()
        scaled, x, address = scale()
        must("cuFuncSetAttribute", scaled, 8, 60000)
        assert launch(scaled, 3, 32, [address, ctypes.c_int64(x.size)], shared=50000) == 0
        must("cuCtxSynchronize")
        result = np.empty_like(x)
        must("cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), address, ctypes.c_size_t(x.nbytes))
        assert (result == 2 * x).all()
        """,
        TF_STITCH_EMULATED_TRACE=str(trace),
    )
    calls = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [call["call"] for call in calls] == ["module", "alloc", "to_device", "launch", "from_device"]
    launched = calls[3]
    assert (launched["kernel"], launched["grid"], launched["block"]) == ("scale", [3, 1, 1], [32, 1, 1])
    assert (launched["shared"], launched["cooperative"], launched["failure"]) == (50000, False, None)


def test_what_a_driver_refuses():
    on_double(
        """
        count = ctypes.c_int()
        assert call("cuDeviceGetCount", ctypes.byref(count)) == 3  # cuInit comes first
        must("cuInit", 0)
        address = ctypes.c_uint64()
        assert call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(8)) == 201  # no context
        begin()
        scaled, x, address = scale()
        arguments = [address, ctypes.c_int64(x.size)]
        assert launch(scaled, 0, 32, arguments) == 1
        assert launch(scaled, 1, 1025, arguments) == 1
        assert launch(scaled, 1, 32, arguments, shared=49 << 10) == 1  # not asked for
        assert launch(ctypes.c_void_p(1234), 1, 32, arguments) == 400
        assert call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.nbytes + 1)) == 1
        assert call("cuMemFree_v2", ctypes.c_uint64(address.value + 4)) == 1
        assert call("cuStreamSynchronize", ctypes.c_void_p(1234)) == 400
        name = ctypes.c_char_p()
        assert call("cuGetErrorName", 400, ctypes.byref(name)) == 0 and name.value == b"CUDA_ERROR_INVALID_HANDLE"
        must("cuCtxSynchronize")
        """
    )


def test_images_that_are_no_modules_of_the_emulator():
    on_double(
        """
        begin()
        module = handle()
        real = bytearray(building.build(kernels.SOFTMAX, "plain").read_bytes())
        assert call("cuModuleLoadData", ctypes.byref(module), b".version 8.0") == 200
        real[18:20] = (190).to_bytes(2, "little")  # EM_CUDA
        assert call("cuModuleLoadData", ctypes.byref(module), bytes(real)) == 209
        module = handle()
        must("cuModuleLoadData", ctypes.byref(module), building.build(kernels.SOFTMAX, "plain").read_bytes())
        found = handle()
        assert call("cuModuleGetFunction", ctypes.byref(found), module, b"nothing") == 500
        """
    )


def test_two_modules_are_two():
    on_double(
        """
        begin()
        x = np.zeros(1, np.int32)
        address = upload(x)
        source = 'extern "C" __global__ void add(int* x) {{ x[0] += {}; }}'
        for n in (1, 10, 100):
            assert launch(function(source.format(n), "add"), 1, 1, [address]) == 0
        must("cuMemcpyDtoH_v2", ctypes.c_void_p(x.ctypes.data), address, ctypes.c_size_t(4))
        assert x[0] == 111, x
        """
    )


def test_a_kernel_that_fails_breaks_its_context():
    on_double(
        """
        context = begin()
        scaled, x, address = scale()
        assert launch(scaled, 40, 32, [address, ctypes.c_int64(10 * x.size)]) == 0  # told later
        assert call("cuCtxSynchronize") == 700
        assert "illegal memory access was encountered: scale: thread (0,0,0) of block (3,0,0)" in text(700), text(700)
        assert text(700).endswith(" at kernel.cu:1"), text(700)
        assert launch(scaled, 1, 32, [address, ctypes.c_int64(x.size)]) == 700  # and so it stays
        must("cuDevicePrimaryCtxReset_v2", 0)
        begin()
        scaled, x, address = scale()
        assert launch(scaled, 3, 32, [address, ctypes.c_int64(x.size)]) == 0
        must("cuCtxSynchronize")
        """
    )


def test_a_blocking_launch_fails_itself():
    on_double(
        """
        begin()
        scaled, x, address = scale()
        assert launch(scaled, 40, 32, [address, ctypes.c_int64(10 * x.size)]) == 700
        """,
        CUDA_LAUNCH_BLOCKING="1",
    )


def test_a_grid_barrier_needs_its_blocks_on_the_device():
    on_double(
        """
        begin()
        normed = function(kernels.GLOBAL_NORM, "global_norm")
        blocks = ctypes.c_int()
        must("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), normed, 64, ctypes.c_size_t(0))
        assert blocks.value == 32
        x = np.ones(1 << 14, np.float32)
        def arguments(grid):
            return [upload(x), upload(x), upload(np.zeros(64 * grid, np.float32)), upload(np.zeros(1, np.uint32)),
                    ctypes.c_int64(x.size)]
        assert launch(normed, 64, 64, arguments(64), "cuLaunchCooperativeKernel") == 0
        assert launch(normed, 65, 64, arguments(65), "cuLaunchCooperativeKernel") == 720
        must("cuCtxSynchronize")
        assert launch(normed, 65, 64, arguments(65)) == 0
        assert call("cuCtxSynchronize") == 702, "the barrier waits for a block that has no place"
        assert "__nanosleep" in text(702), text(702)
        """,
        TF_STITCH_EMULATED_SMS="2",
    )


def test_events_and_streams():
    on_double(
        """
        begin()
        stream, first, last, untimed = handle(), handle(), handle(), handle()
        must("cuStreamCreate", ctypes.byref(stream), 1)
        for event, flags in ((first, 0), (last, 0), (untimed, 2)):
            must("cuEventCreate", ctypes.byref(event), flags)
        must("cuEventRecord", first, stream)
        must("cuMemsetD8Async", upload(np.zeros(8, np.uint8)), 3, ctypes.c_size_t(8), stream)
        milliseconds = ctypes.c_float(-1)
        assert call("cuEventElapsedTime", ctypes.byref(milliseconds), first, last) == 400  # not recorded
        must("cuEventRecord", last, stream)
        must("cuStreamWaitEvent", stream, last, 0)
        must("cuStreamSynchronize", stream)
        must("cuEventElapsedTime", ctypes.byref(milliseconds), first, last)
        assert milliseconds.value >= 0
        must("cuEventRecord", untimed, stream)
        assert call("cuEventElapsedTime", ctypes.byref(milliseconds), first, untimed) == 400
        must("cuStreamDestroy_v2", stream)
        assert call("cuStreamSynchronize", stream) == 400
        """
    )


# ---- PyCUDA -------------------------------------------------------------------------------------------------------

needs_pycuda = pytest.mark.skipif(
    importlib.util.find_spec("pycuda") is None, reason="PyCUDA is not installed: docker/build_pycuda.sh builds it"
)

PYCUDA = """
import os
import numpy as np
import pycuda.driver as cuda
from pycuda.compiler import SourceModule
from tests.emulator import kernels

cuda.init()
context = cuda.Device(0).make_context()

def compiled(text):
    return SourceModule(text, nvcc=os.path.abspath("tests/emulator/nvcc.py"), no_extern_c=True, cache_dir=False)
"""


def on_pycuda(program: str) -> str:
    beside = str(Path(importlib.util.find_spec("pycuda").origin).parents[1])  # type: ignore[union-attr, arg-type]
    return run_on_double(PYCUDA + textwrap.dedent(program) + "\ncontext.pop()\n", beside=beside)


@needs_pycuda
def test_pycuda_runs_a_prepared_call_on_a_stream():
    on_pycuda(
        """
        case = kernels.layer_norm()
        function = compiled(case.text).get_function("layer_norm")
        x, gamma, beta, y, n, epsilon = case.arguments()
        stream, begin, end = cuda.Stream(), cuda.Event(), cuda.Event()
        buffers = [cuda.mem_alloc(array.nbytes) for array in (x, gamma, beta, y)]
        for buffer, array in zip(buffers, (x, gamma, beta)):
            cuda.memcpy_htod_async(buffer, array, stream)
        function.prepare("PPPPqf")
        begin.record(stream)
        function.prepared_async_call((case.grid, 1), (case.block, 1, 1), stream, *buffers, n, epsilon,
                                     shared_size=case.shared_bytes)
        end.record(stream)
        end.synchronize()
        cuda.memcpy_dtoh(y, buffers[3])
        assert np.allclose(y, case.expected, atol=1e-5)
        assert end.time_since(begin) >= 0
        """
    )


@needs_pycuda
def test_pycuda_tells_what_went_wrong():
    on_pycuda(
        """
        module = compiled('extern "C" __global__ void far(int* x) { x[1 << 20] = 1; }')
        try:
            module.get_function("near")
            raise SystemExit("a kernel that is not there was found")
        except cuda.LogicError as error:
            assert "named symbol not found" in str(error)
        x = np.zeros(4, np.int32)
        try:
            module.get_function("far")(cuda.InOut(x), grid=(1, 1), block=(1, 1, 1))
            raise SystemExit("the access was not noticed")
        except cuda.Error as error:
            assert "an illegal memory access was encountered: far: thread (0,0,0)" in str(error), error
        """
    )


@needs_pycuda
def test_pycuda_is_told_of_a_text_that_does_not_compile():
    on_pycuda(
        """
        from pycuda.driver import CompileError
        try:
            compiled("this is no CUDA")
            raise SystemExit("it compiled")
        except CompileError as error:
            assert "kernel.cu" in str(error), error
        """
    )
