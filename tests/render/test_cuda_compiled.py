"""CUDA kernels through a real compiler: for every architecture, with no spills, within what was planned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.golden.test_goldens import GOLDEN_FOR_GPU
from tests.golden.test_goldens import HERE as GOLDENS
from tests.lower.emulated import lowered_for_gpu
from tests.lower.test_gpu import BODIES
from tests.lower.test_gpu_waves import BODIES as WAVES
from tf_stitch.lower.gpu import relaxed
from tf_stitch.lower.gpu_launch import evaluate
from tf_stitch.lower.gpu_residency import residency_problem
from tf_stitch.lower.gpu_schedule import Built
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.render.cuda import render_cuda
from tf_stitch.toolchain.cubin import Resources, resources_of
from tf_stitch.toolchain.device_compilers import find_nvrtc
from tf_stitch.toolchain.nvrtc import Nvrtc

KERNELS = Path(__file__).parents[2] / "kernels"
OPTIONS = ["--fmad=false", "-std=c++20", f"-I{KERNELS}"]


@pytest.fixture(scope="module")
def compiler() -> Nvrtc:
    libraries = find_nvrtc()
    if not libraries:
        pytest.skip("no NVRTC")
    return Nvrtc(str(libraries[0]))


def _compiled(compiler: Nvrtc, text: str, arch: str) -> dict[str, Resources]:
    if arch not in compiler.archs():
        pytest.skip(f"this NVRTC does not compile for {arch}")
    cubin, log = compiler.compile(text.encode(), "kernel.cu", arch, OPTIONS)
    told = [line for line in log.splitlines() if "warning" in line and "deprecated" not in line]
    assert not told, log
    return resources_of(cubin)


@pytest.mark.parametrize("target", GpuTarget.all(), ids=lambda t: t.arch)
@pytest.mark.parametrize("name", BODIES)
def test_kernels_fit_without_spills(name: str, target: GpuTarget, compiler: Nvrtc) -> None:
    """As they are built: one that spills at first is given more registers, twice at most."""
    made = lowered_for_gpu(BODIES[name], "kernel", target)
    launch = made.schedules.launch
    found = _compiled(compiler, made.text, target.arch)
    for _ in range(2):
        if all(needs.local_bytes == 0 for needs in found.values()):
            break
        built = {e: Built(n.registers, n.local_bytes, n.shared_bytes) for e, n in found.items()}
        schedules = relaxed(made.schedules, target, built)
        launch, found = schedules.launch, _compiled(compiler, render_cuda(made.kernel, schedules).text, target.arch)
    assert set(found) == {v.entry for v in launch.variants}
    for variant in launch.variants:
        needs = found[variant.entry]
        assert needs.local_bytes == 0, f"{variant.entry} spills"
        assert residency_problem(launch, found, target) is None
        assert target.blocks_together(variant.threads, needs.registers, needs.shared_bytes) >= variant.blocks


@pytest.mark.parametrize("target", GpuTarget.all(), ids=lambda t: t.arch)
@pytest.mark.parametrize("name", WAVES)
def test_waves_fit_without_spills(name: str, target: GpuTarget, compiler: Nvrtc) -> None:
    """With what they keep in shared memory, so that all blocks of a grid are on the GPU together."""
    build, _ = WAVES[name]
    made = lowered_for_gpu(build(), "kernel", target)
    assert any(v.kept for v in made.schedules.versions)
    found = _compiled(compiler, made.text, target.arch)
    assert all(needs.local_bytes == 0 for needs in found.values())
    assert residency_problem(made.schedules.launch, found, target) is None
    for version in made.schedules.versions:
        needs, variant = found[version.variant.entry], version.variant
        for _, kept in version.kept:
            bytes_ = needs.shared_bytes + evaluate(variant.shared, {})
            assert target.blocks_together(variant.threads, needs.registers, bytes_) >= variant.blocks
            assert kept.room <= evaluate(variant.shared, {})


@pytest.mark.parametrize("name", GOLDEN_FOR_GPU)
def test_goldens_compile(name: str, compiler: Nvrtc) -> None:
    found = _compiled(compiler, (GOLDENS / f"{name}.cu").read_text(), "sm_80")
    assert all(needs.local_bytes == 0 for needs in found.values())


def test_bounds_that_are_relaxed_hold(compiler: Nvrtc) -> None:
    """Assumed, built, relaxed, and built again: as many blocks as the registers leave room for."""
    target = GpuTarget.named("a100")
    made = lowered_for_gpu(BODIES["batch norm"], "kernel", target)
    schedules = made.schedules
    for _ in range(3):
        found = _compiled(compiler, render_cuda(made.kernel, schedules).text, target.arch)
        built = {e: Built(n.registers, n.local_bytes, n.shared_bytes) for e, n in found.items()}
        again = relaxed(schedules, target, built)
        if again == schedules:
            break
        schedules = again
    assert again == schedules, "bounds settle"
    for variant in schedules.launch.variants:
        needs = built[variant.entry]
        assert needs.spilled_bytes == 0
        held = target.blocks_together(variant.threads, needs.registers, needs.shared_bytes)
        assert variant.blocks <= held if evaluate(variant.shared, {}) else variant.blocks == held
    assert re.search(r"__launch_bounds__\(256, \d+\)", render_cuda(made.kernel, schedules).text)
