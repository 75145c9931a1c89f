"""Bodies to CUDA kernels that run on the emulator: stages 4 to 6 for a GPU, and a launch as StitchOp does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.emulator.emulated import Argument, Module, Scratch
from tests.lower.naming import nameable
from tf_stitch.ir.body import Body
from tf_stitch.lower.common import lower
from tf_stitch.lower.gpu import GpuSchedules, schedule_gpu
from tf_stitch.lower.gpu_launch import Parameter, evaluate
from tf_stitch.lower.gpu_verify import verify_gpu
from tf_stitch.lower.interp import bind
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.verify import verify_plan
from tf_stitch.render.cuda import render_cuda

_MULTIPROCESSORS = 2  # of the GPU that is emulated: so a grid of blocks that wait for each other stays small


@dataclass(frozen=True)
class Stitched:
    """A kernel for a GPU: what it is, how it is launched, its text."""

    kernel: Kernel
    schedules: GpuSchedules
    text: str


def stitched(body: Body, name: str, target: str = "sm_80") -> Stitched:
    """The verified kernel of a body. name: what its entries are called, in a text that may hold more of them."""
    plan = plan_groups(nameable(body))
    verify_plan(plan)
    kernel = lower(plan, name)
    verify_kernel(kernel)
    gpu = GpuTarget.named(target)
    schedules = schedule_gpu(kernel, gpu)
    verify_gpu(schedules, gpu)
    return Stitched(kernel, schedules, render_cuda(kernel, schedules).text)


def run(
    module: Module, made: Stitched, inputs: Sequence[np.ndarray | None], seed: int | None = None
) -> list[np.ndarray]:
    """The outputs of one launch; inputs are compared with what they were before."""
    symbols = bind(made.kernel, inputs)
    variant = made.schedules.launch.chosen(symbols)
    shapes = [tuple(d.evaluate(symbols) for d in t.dims) for t in made.kernel.outputs]
    outputs = [np.empty(s, t.dtype.numpy) for s, t in zip(shapes, made.kernel.outputs, strict=True)]
    for output in outputs:
        output.reshape(-1).view(np.uint8)[:] = 0xA5  # what is not stored shows
    fed = [None if a is None else np.array(a, order="C") for a in inputs]
    barrier = np.zeros(64, np.uint32)
    arguments: list[Argument] = []
    for kind, number in made.schedules.launch.parameters:
        match kind:
            case Parameter.INPUT:
                given = fed[number]
                assert given is not None
                arguments.append(given)
            case Parameter.OUTPUT:
                arguments.append(outputs[number])
            case Parameter.SCRATCH:
                arguments.append(Scratch(evaluate(variant.scratch, symbols)))
            case Parameter.BARRIER:
                arguments.append(barrier)
            case Parameter.SYMBOL:
                arguments.append(symbols[made.kernel.symbols[number].symbol])
    grid = variant.grid(symbols, _MULTIPROCESSORS)
    if grid:
        shared = evaluate(variant.shared, symbols)
        module.launch(variant.entry, grid, variant.threads, shared, arguments, seed=seed)
    assert not barrier.any(), f"{variant.entry} leaves its barrier as it must not find it"
    for given, array in zip(fed, inputs, strict=True):
        assert given is None or array is None or given.tobytes() == array.tobytes(), "an input is changed"
    return outputs
