"""What differs between a CPU and GPUs behind `lower.common`: stages 5b and 6, and what a build is asked for besides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tf_stitch.config import Config, verifying
from tf_stitch.errors import BuildError
from tf_stitch.lower.cpu import Schedule, schedule
from tf_stitch.lower.gpu import Built, GpuSchedules, relaxed, schedule_gpu
from tf_stitch.lower.gpu_residency import residency_problem
from tf_stitch.lower.gpu_verify import verify_gpu
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.target import Target
from tf_stitch.render.cpp import render
from tf_stitch.render.cuda import render_cuda
from tf_stitch.render.cuda_host import DeviceText, bundle
from tf_stitch.toolchain.artifact import Artifact, Source

Targets = Target | tuple[GpuTarget, ...]  # a CPU, or the GPUs that one kernel is compiled for, the oldest first


def isa_of(target: Targets) -> str:
    """The instruction set, or the architectures: "x86-64-v3", "cuda:sm_80,sm_90"."""
    return target.isa if isinstance(target, Target) else "cuda:" + ",".join(gpu.arch for gpu in target)


@dataclass(frozen=True)
class Rendered:
    """A kernel with its schedules and its source.

    schedules: for a CPU, one for each loop nest. gpus: for GPUs, those for each.
    """

    kernel: Kernel
    source: Source
    schedules: tuple[Schedule, ...] = ()
    gpus: tuple[tuple[GpuTarget, GpuSchedules], ...] = ()


def rendered(kernel: Kernel, target: Targets, config: Config) -> Rendered:
    """Stages 5b and 6."""
    return _for_cpu(kernel, target, config) if isinstance(target, Target) else _for_gpus(kernel, target)


def _for_cpu(kernel: Kernel, target: Target, config: Config) -> Rendered:
    kernel, schedules = schedule(kernel, target, adaptive=config.adaptive_mapping)
    if verifying():
        verify_kernel(kernel, schedules)
    return Rendered(kernel, render(kernel, schedules), schedules)


def _for_gpus(kernel: Kernel, targets: tuple[GpuTarget, ...]) -> Rendered:
    return _bundled(kernel, tuple((target, schedule_gpu(kernel, target)) for target in targets))


def _bundled(kernel: Kernel, gpus: tuple[tuple[GpuTarget, GpuSchedules], ...]) -> Rendered:
    if verifying():
        for target, schedules in gpus:
            verify_gpu(schedules, target)
    devices = [DeviceText(t.arch, render_cuda(kernel, found).text, found.launch) for t, found in gpus]
    # An output may be computed into an input's buffer where that is so whichever of them runs.
    allowed = [set(version.kernel.forwards) for _, found in gpus for version in found.versions]
    kernel = replace(kernel, forwards=tuple(sorted(set.intersection(*allowed))))
    return Rendered(kernel, bundle(kernel, devices), gpus=gpus)


def revised(made: Rendered, artifact: Artifact | BuildError) -> Rendered | None:
    """The kernel as what the compiler says of it suggests; None where that is how it is.

    How many blocks a multiprocessor holds, and so how many registers a thread may have, is assumed at first: a kernel
    that spills is given more of them, and one that takes few has more blocks.
    """
    if isinstance(artifact, BuildError) or not made.gpus:
        return None
    gpus: list[tuple[GpuTarget, GpuSchedules]] = []
    for target, schedules in made.gpus:
        entries = artifact.resources.get(target.arch, {})
        built = {n: Built(e.registers, e.local_bytes, e.shared_bytes) for n, e in entries.items()}
        known = all(v.variant.entry in built for v in schedules.versions)
        gpus.append((target, relaxed(schedules, target, built) if known else schedules))
    return None if tuple(gpus) == made.gpus else _bundled(made.kernel, tuple(gpus))


def unfit(made: Rendered, artifact: Artifact | BuildError) -> BuildError | None:
    """Why what was built cannot be launched as it was planned, where that is so."""
    if isinstance(artifact, BuildError):
        return None
    for target, schedules in made.gpus:
        entries = artifact.resources.get(target.arch)
        problem = residency_problem(schedules.launch, entries, target) if entries is not None else None
        if problem is not None:
            return BuildError(f"kernel {made.source.name} for {target.arch}: {problem}")
    return None
