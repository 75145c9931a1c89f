"""Runs a kernel's CUDA source on the emulator, as StitchOp would launch it.

    made = lowered_for_gpu(body)          emulated(made)([x, gamma])      ->      the outputs, of the version chosen

Outputs and scratch hold no zeros before, and what lies behind each is watched by the emulator. The barrier of the grid
is zero before a launch, and checked to be after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.emulator.emulated import Counters, Module, Scratch, compile_kernel
from tests.lower.naming import nameable
from tf_stitch.ir.body import Body
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.gpu import schedule_gpu
from tf_stitch.lower.gpu_launch import Parameter, Variant, evaluate
from tf_stitch.lower.gpu_schedule import GpuSchedules
from tf_stitch.lower.gpu_verify import verify_gpu
from tf_stitch.lower.kernel import Kernel
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.groups import plan_groups
from tf_stitch.render.cuda import render_cuda

Array = np.ndarray[Any, np.dtype[Any]]

A100 = GpuTarget.named("a100")


@dataclass(frozen=True)
class LoweredForGpu:
    """What stages 4 to 6 make of a body for a GPU, verified."""

    kernel: Kernel
    schedules: GpuSchedules
    text: str


def lowered_for_gpu(body: Body, name: str = "kernel", target: GpuTarget = A100) -> LoweredForGpu:
    kernel = lower(plan_groups(nameable(body)), name)
    schedules = schedule_gpu(kernel, target)
    verify_gpu(schedules, target)
    return LoweredForGpu(kernel, schedules, render_cuda(kernel, schedules).text)


@dataclass(frozen=True)
class Emulated:
    """A kernel that can be called."""

    made: LoweredForGpu
    module: Module

    def variants(self, inputs: Sequence[Array]) -> list[Variant]:
        """All that may be launched for these inputs; the first is the one that is."""
        symbols = interp.bind(self.made.kernel, inputs)
        return [v for v in self.made.schedules.launch.variants if all(c.holds(symbols) for c in v.conditions)]

    def __call__(
        self,
        inputs: Sequence[Array],
        variant: Variant | None = None,
        *,
        multiprocessors: int = 2,
        seed: int | None = None,
        forward: bool = False,
        counters: list[Counters] | None = None,
    ) -> list[Array]:
        """The outputs. `forward`: computed in the inputs' buffers as far as the kernel allows it.

        counters: what the launch did is added to it.

        Raises:
          GuardFailed: where the inputs are not what was planned for.
        """
        kernel, launch = self.made.kernel, self.made.schedules.launch
        symbols = interp.bind(kernel, inputs)
        variant = variant or launch.chosen(symbols)
        shapes = [tuple(d.evaluate(symbols) for d in t.dims) for t in kernel.outputs]
        sizes = [int(np.prod(s)) * t.dtype.size for s, t in zip(shapes, kernel.outputs, strict=True)]
        results = [_bytes(np.full(size, _GARBAGE, np.uint8)) for size in sizes]
        fed = [_bytes(np.ascontiguousarray(a)) for a in inputs]
        if forward:
            for source, output in dict(self.made.schedules.versions[0].kernel.forwards).items():
                if not any(results[output] is f for f in fed):
                    results[output] = fed[source]
        barrier = np.zeros(2, np.uint32)
        arguments: list[Any] = []
        for kind, number in launch.parameters:
            match kind:
                case Parameter.INPUT:
                    arguments.append(fed[number])
                case Parameter.OUTPUT:
                    arguments.append(results[number])
                case Parameter.SCRATCH:
                    arguments.append(Scratch(max(1, evaluate(variant.scratch, symbols))))
                case Parameter.BARRIER:
                    arguments.append(barrier)
                case Parameter.SYMBOL:
                    arguments.append(symbols[kernel.symbols[number].symbol])
        grid = variant.grid(symbols, multiprocessors)
        if grid:
            shared = evaluate(variant.shared, symbols)
            resident = grid if variant.resident else None
            counted = self.module.launch(
                variant.entry, grid, variant.threads, shared, arguments, seed=seed, resident_blocks=resident
            )
            if counters is not None:
                counters.append(counted)
        assert not barrier.any(), "the barrier is left as it was found"
        return [
            np.frombuffer(r.tobytes()[:size], t.dtype.numpy).reshape(shape)
            for r, size, shape, t in zip(results, sizes, shapes, kernel.outputs, strict=True)
        ]


_GARBAGE = 0xA5


def _bytes(array: Array) -> Array:
    """Its bytes; a buffer is never empty."""
    return np.frombuffer(array.tobytes() or b"\xa5", np.uint8).copy()


def emulated(made: LoweredForGpu, sanitizer: str | None = None, *, counting: bool = False) -> Emulated:
    return Emulated(made, compile_kernel(made.text, sanitizer, counting=counting))
