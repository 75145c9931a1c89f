"""What is asked of a build for GPUs besides: that its blocks fit, and whether the compiler suggests another bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.lower.handmade import softmax
from tests.runtime import gpu_handmade
from tf_stitch.backends import Rendered, isa_of, rendered, revised, unfit
from tf_stitch.config import Config
from tf_stitch.errors import BuildError, UsageError
from tf_stitch.lower.gpu_residency import residency_problem
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.target import Target
from tf_stitch.toolchain.artifact import Artifact, CudaSource
from tf_stitch.toolchain.cubin import Resources

A100, H100 = GpuTarget.several("cuda:h100,a100")


def artifact_of(made: Rendered, registers: int, local_bytes: int = 0) -> Artifact:
    """As if each entry had come out with so many registers."""
    entries = {
        target.arch: {
            v.entry: Resources(registers, local_bytes, 0, 8 * len(found.launch.parameters))
            for v in found.launch.variants
        }
        for target, found in made.gpus
    }
    return Artifact("key", Path("/dev/null"), "", 0.0, entries)


@pytest.fixture(scope="module")
def made() -> Rendered:
    return rendered(softmax("B", 300), (A100, H100), Config(target="cuda:a100,h100"))


def test_a_kernel_for_two_gpus(made: Rendered) -> None:
    assert isinstance(made.source, CudaSource)
    assert [image.code for image in made.source.images] == ["sm_80", "sm_90", "compute_90"]
    assert "tf_stitch_gpu_kernel" in made.source.host
    assert isa_of((A100, H100)) == "cuda:sm_80,sm_90"
    assert isa_of(Target.baseline("x86-64-v3")) == "x86-64-v3"


def test_targets_are_named_in_any_order_and_counted_once() -> None:
    assert GpuTarget.several("h100,cuda:a100,sm_90") == (A100, H100)
    for wrong in ("cuda:", "cuda:sm_80,", "cuda:sm_61"):
        with pytest.raises(UsageError, match="is not a GPU target"):
            GpuTarget.several(wrong)


def test_few_registers_leave_room_for_more_blocks_and_spills_for_fewer(made: Rendered) -> None:
    def blocks(of: Rendered) -> list[int]:
        return [v.blocks for _, found in of.gpus for v in found.launch.variants]

    thrifty = revised(made, artifact_of(made, registers=16))
    spilling = revised(made, artifact_of(made, registers=64, local_bytes=40))
    assert thrifty is not None
    assert spilling is not None
    assert all(b >= a for a, b in zip(blocks(made), blocks(thrifty), strict=True))
    assert blocks(spilling) == [max(1, b // 2) for b in blocks(made)]
    assert f"{thrifty.gpus[0][1].launch.variants[0].blocks})" in thrifty.source.text
    assert revised(thrifty, artifact_of(made, registers=16)) is None  # that is how it is
    assert revised(made, BuildError("no")) is None


def test_a_build_without_the_entries_is_unfit(made: Rendered) -> None:
    artifact = artifact_of(made, registers=32)
    assert unfit(made, artifact) is None
    lacking = replace(artifact, resources={**artifact.resources, "sm_90": {}})
    assert "kernel softmax for sm_90: there is no entry" in str(unfit(made, lacking))


def test_blocks_that_wait_for_each_other_must_fit_together() -> None:
    _, launch = gpu_handmade.normalized()
    takes = 8 * len(launch.parameters)
    assert residency_problem(launch, {"normalized": Resources(200, 0, 512, takes)}, A100) is None
    greedy = {"normalized": Resources(64, 0, 100 << 10, takes)}
    assert "so that 1 of its blocks fit on a multiprocessor instead of 2" in str(
        residency_problem(launch, greedy, A100)
    )
    assert residency_problem(launch, greedy, H100) is None
    other = {"normalized": Resources(64, 0, 0, takes - 8)}
    assert f"takes {takes - 8} bytes of parameters, and is given {takes}" in str(residency_problem(launch, other, A100))
