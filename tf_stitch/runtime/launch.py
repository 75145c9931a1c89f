"""Kernels for GPUs without TensorFlow: PyCUDA loads and launches them, as `kernels/cuda_launch.cc` does for StitchOp.

    with Gpu.open() as gpu:
        run = GpuKernel(gpu, gpu.compiled(device_text), kernel, launch)
        y, = run(x, gamma, beta)                                # NumPy arrays in and out
        run.start(run.plan(symbols), inputs, outputs, stream)   # addresses; does not wait

Both give an entry the parameters that its Launch lists, in that order. The context is the device's primary one, which
TensorFlow has, too: so both can work on one memory. A StitchError says what went wrong in the driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tf_stitch.errors import EnvironmentProblem, StitchError
from tf_stitch.lower.gpu_launch import Launch, Parameter, Variant, evaluate
from tf_stitch.lower.interp import bind
from tf_stitch.lower.kernel import Kernel
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.toolchain.device_compilers import OPTIONS, find_nvcc
from tf_stitch.toolchain.headers import Headers

BARRIER_BYTES = 256  # TF_STITCH_BARRIER_BYTES of abi.h

_FORMATS = {Parameter.SYMBOL: "q"}  # of PyCUDA's `prepare`; all others are addresses
_ADDRESS = "P"


class LaunchFailed(StitchError):
    """What the driver said, of a module, a launch or what came of one. Of the latter the context does not recover."""


@contextmanager
def _told(what: str) -> Generator[None]:
    """Raises what PyCUDA does as a LaunchFailed."""
    driver = _driver()
    try:
        yield
    except (driver.Error, driver.CompileError) as error:
        log = getattr(error, "stderr", None) or str(error)
        raise LaunchFailed(f"{what}: {log}") from error


def _driver() -> Any:
    """The module pycuda.driver.

    Raises:
      EnvironmentProblem: where PyCUDA is not installed, or there is no libcuda.so.1.
    """
    try:
        return importlib.import_module("pycuda.driver")
    except ImportError as error:
        raise EnvironmentProblem(
            f"PyCUDA cannot be used here ({error}); docker/build_pycuda.sh makes a wheel of it, and libcuda.so.1 comes "
            "with NVIDIA's driver"
        ) from error


class Gpu:
    """A GPU of this machine, its primary context current on this thread until `close`."""

    def __init__(self, device: Any, context: Any) -> None:
        """`open` is the way to make one."""
        self._context = context
        self.capability: tuple[int, int] = tuple(device.compute_capability())
        attribute = _driver().device_attribute.MULTIPROCESSOR_COUNT
        self.multiprocessors = int(device.get_attribute(attribute))
        self._barriers: dict[int, Any] = {}

    @classmethod
    def open(cls, number: int = 0) -> Gpu:
        """The GPU of this number.

        Raises:
          EnvironmentProblem: where PyCUDA cannot be used.
          LaunchFailed: where there is no such GPU.
        """
        driver = _driver()
        with _told(f"GPU {number}"):
            driver.init()
            device = driver.Device(number)
            context = device.retain_primary_context()
            context.push()
        return cls(device, context)

    def close(self) -> None:
        """Frees what belongs to the GPU, and makes the context that was current before current again."""
        for barrier in self._barriers.values():
            barrier.free()
        self._barriers.clear()
        self._context.pop()
        self._context.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def target(self) -> GpuTarget:
        """What is planned for on this GPU: the target of its architecture, or of the newest of its generation before.

        Raises:
          UsageError: where there is none.
        """
        fitting = [t for t in GpuTarget.all() if t.capability[0] == self.capability[0]]
        no_newer = [t for t in fitting if t.capability <= self.capability]
        return no_newer[-1] if no_newer else GpuTarget.named("sm_{}{}".format(*self.capability))

    def compiled(self, text: str, options: Sequence[str] = OPTIONS) -> Any:
        """A module of CUDA C++, compiled for this GPU by PyCUDA and nvcc, which keep it in a cache of their own.

        Raises:
          LaunchFailed: with what nvcc says.
        """
        source_module = importlib.import_module("pycuda.compiler").SourceModule
        arch = "sm_{}{}".format(*self.capability)
        include = str(Headers.find("cuda").kernels)
        with _told("compiling"):
            return source_module(
                text,
                nvcc=find_nvcc() or "nvcc",
                options=list(options),
                no_extern_c=True,
                arch=arch,
                include_dirs=[include],
            )

    def loaded(self, image: bytes) -> Any:
        """A module of a cubin, or of PTX.

        Raises:
          LaunchFailed: where it is for another GPU.
        """
        with _told("loading a module"):
            return _driver().module_from_buffer(image)

    def barrier(self, stream: Any) -> Any:
        """Zeroed memory for the grid barriers of what runs in a stream, one after the other."""
        key = 0 if stream is None else int(stream.handle)
        if key not in self._barriers:
            self._barriers[key] = _driver().mem_alloc(BARRIER_BYTES)
            _driver().memset_d8_async(self._barriers[key], 0, BARRIER_BYTES, stream)
        return self._barriers[key]


@dataclass(frozen=True)
class Planned:
    """A launch that is decided on. blocks: 0 where there is nothing to do."""

    variant: Variant
    blocks: int
    shared_bytes: int
    scratch_bytes: int
    symbols: Mapping[str, int]


class GpuKernel:
    """A kernel, loaded."""

    def __init__(self, gpu: Gpu, module: Any, kernel: Kernel, launch: Launch) -> None:
        """module: of `gpu`, with the entries of `launch`.

        Raises:
          LaunchFailed: where it lacks one of them.
        """
        self._gpu = gpu
        self._kernel = kernel
        self._launch = launch
        self._functions: dict[str, Any] = {}
        formats = "".join(_FORMATS.get(kind, _ADDRESS) for kind, _ in launch.parameters)
        for variant in launch.variants:
            with _told(f"entry {variant.entry}"):
                self._functions[variant.entry] = module.get_function(variant.entry).prepare(formats)

    def plan(self, symbols: Mapping[str, int]) -> Planned:
        """How to launch it for these values of the symbols.

        PyCUDA knows no cooperative launch. So blocks that wait for each other are launched plainly, no more of them
        than the whole GPU holds: nothing else may run on it that long.

        Raises:
          LaunchFailed: where the GPU cannot hold a block.
        """
        variant = self._launch.chosen(symbols)
        blocks = variant.grid(symbols, self._gpu.multiprocessors)
        shared = evaluate(variant.shared, symbols)
        if variant.resident and blocks:
            function = self._functions[variant.entry]
            static = int(function.shared_size_bytes)
            held = self._gpu.target.blocks_together(variant.threads, int(function.num_regs), static + shared)
            if not held:
                raise LaunchFailed(
                    f"a block of {variant.entry}, {variant.threads} threads with {static + shared} bytes of shared "
                    "memory, does not fit on a multiprocessor"
                )
            blocks = min(blocks, held * self._gpu.multiprocessors)
        return Planned(variant, blocks, shared, evaluate(variant.scratch, symbols), symbols)

    def start(
        self,
        planned: Planned,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        stream: Any = None,
        scratch: Any = None,
    ) -> None:
        """Starts what was planned and does not wait for its end.

        inputs, outputs: addresses on the GPU by the kernel's numbers, each a multiple of `gpu_launch.ALIGNMENT`; of an
          input that the kernel does not read anything.
        stream: a pycuda.driver.Stream; None for the default one.
        scratch: `planned.scratch_bytes` of the GPU's memory that live until the kernel has run.

        Raises:
          LaunchFailed: with what the driver says.
        """
        if not planned.blocks:
            return
        values: list[Any] = []
        for kind, number in self._launch.parameters:
            match kind:
                case Parameter.INPUT:
                    values.append(inputs[number])
                case Parameter.OUTPUT:
                    values.append(outputs[number])
                case Parameter.SYMBOL:
                    values.append(planned.symbols[self._kernel.symbols[number].symbol])
                case Parameter.BARRIER:
                    values.append(self._gpu.barrier(stream))
                case Parameter.SCRATCH:
                    values.append(scratch or 0)
        function = self._functions[planned.variant.entry]
        grid, block = (planned.blocks, 1), (planned.variant.threads, 1, 1)
        with _told(f"launching {planned.variant.entry}"):
            if planned.shared_bytes > 48 << 10:
                function.set_attribute(_driver().function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, planned.shared_bytes)
            function.prepared_async_call(grid, block, stream, *values, shared_size=planned.shared_bytes)

    def __call__(self, *arrays: np.ndarray[Any, Any] | None) -> list[np.ndarray[Any, Any]]:
        """The outputs for these inputs, by way of the GPU's memory. An input that the kernel does not read may be None.

        Raises:
          GuardFailed: where the kernel was not made for these shapes.
          LaunchFailed: with what the driver says.
        """
        driver = _driver()
        symbols = bind(self._kernel, arrays)
        planned = self.plan(symbols)
        shapes = [tuple(d.evaluate(symbols) for d in type_.dims) for type_ in self._kernel.outputs]
        results = [np.empty(s, t.dtype.numpy) for s, t in zip(shapes, self._kernel.outputs, strict=True)]
        if not planned.blocks:
            return results
        with _told(self._kernel.name):
            inputs = [driver.mem_alloc(max(a.nbytes, 1)) if a is not None else 0 for a in arrays]
            outputs = [driver.mem_alloc(max(r.nbytes, 1)) for r in results]
            scratch = driver.mem_alloc(planned.scratch_bytes) if planned.scratch_bytes else None
            for address, array in zip(inputs, arrays, strict=True):
                if array is not None and array.nbytes:
                    driver.memcpy_htod(address, np.ascontiguousarray(array))
        self.start(planned, inputs, outputs, scratch=scratch)
        with _told(self._kernel.name):
            for address, result in zip(outputs, results, strict=True):
                if result.nbytes:
                    driver.memcpy_dtoh(result, address)
        return results
