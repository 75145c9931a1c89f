"""Clusters to compiled kernels, many at a time: the compilers run in parallel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tests.lower.compiled import Compiled
from tests.lower.naming import nameable
from tf_stitch.errors import BuildError
from tf_stitch.ir.body import Body
from tf_stitch.lower.common import lower
from tf_stitch.lower.cpu import Schedule, schedule
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.plan import StitchPlan
from tf_stitch.plan.target import Target
from tf_stitch.plan.verify import verify_plan
from tf_stitch.render.cpp import render
from tf_stitch.toolchain.artifact import Source
from tf_stitch.toolchain.host import HostToolchain


@dataclass(frozen=True)
class Lowered:
    """What stages 4 to 6 make of a body, each verified."""

    plan: StitchPlan
    kernel: Kernel
    schedules: tuple[Schedule, ...]
    source: Source


@functools.cache
def toolchain(baseline: str = "native") -> HostToolchain:
    return HostToolchain.find(Target.baseline(baseline))


def lowered(body: Body, name: str = "kernel", target: Target | None = None) -> Lowered:
    plan = plan_groups(nameable(body))
    verify_plan(plan)
    plain = lower(plan, name)
    verify_kernel(plain)
    kernel, schedules = schedule(plain, target or toolchain().target)
    verify_kernel(kernel, schedules)
    return Lowered(plan, kernel, schedules, render(kernel, schedules))


def compiled(made: Sequence[Lowered], baseline: str = "native") -> list[Compiled]:
    artifacts = toolchain(baseline).build([m.source for m in made])
    kernels: list[Compiled] = []
    for m, artifact in zip(made, artifacts, strict=True):
        if isinstance(artifact, BuildError):
            raise artifact
        kernels.append(Compiled(artifact.path, m.kernel))
    return kernels
