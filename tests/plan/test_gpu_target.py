"""Facts about GPUs, and how many blocks a multiprocessor holds: as NVIDIA's own header counts them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tf_stitch.errors import UsageError
from tf_stitch.plan.gpu_target import GpuTarget

KIB = 1024
CASES = [
    (threads, registers, shared)
    for threads in (32, 96, 128, 256, 512, 1000, 1024)
    for registers in (16, 24, 32, 40, 63, 64, 65, 128, 200, 255)
    for shared in (0, 1, 128, 4 * KIB, 17 * KIB, 33 * KIB, 48 * KIB, 64 * KIB, 96 * KIB, 99 * KIB, 100 * KIB, 227 * KIB)
]

_PROGRAM = """
#include <algorithm>
#include <cstdio>
using std::max;
using std::min;
#include "cuda_occupancy.h"

int main() {
  int major, minor, threads_of_sm, blocks, shared_of_sm, shared_of_block, multiprocessors, threads, registers, shared;
  while (std::scanf("%d%d%d%d%d%d%d%d%d%d", &major, &minor, &threads_of_sm, &blocks, &shared_of_sm, &shared_of_block,
                    &multiprocessors, &threads, &registers, &shared) == 10) {
    cudaOccDeviceProp device;
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = threads_of_sm;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = shared_of_sm;
    device.numSms = multiprocessors;
    device.sharedMemPerBlockOptin = shared_of_block;
    device.reservedSharedMemPerBlock = major >= 8 ? 1024 : 0;
    cudaOccFuncAttributes function;
    function.maxThreadsPerBlock = 1024;
    function.numRegs = registers;
    function.sharedSizeBytes = 0;
    function.partitionedGCConfig = PARTITIONED_GC_OFF;
    function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    function.maxDynamicSharedSizeBytes = shared_of_block;
    function.numBlockBarriers = 1;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
    cudaOccResult result;
    const auto error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, threads, shared);
    std::printf("%d\\n", error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : 0);
  }
}
"""


def _headers() -> Path | None:
    """The folder of cuda_occupancy.h: of a toolkit, or as TensorFlow brings it."""
    import tensorflow as tf

    included = Path(tf.sysconfig.get_include())
    places = [*Path("/usr/local").glob("cuda*/include"), included / "third_party/gpus/cuda/include"]
    return next((p for p in places if (p / "cuda_occupancy.h").exists()), None)


def test_targets_go_by_architecture_and_by_name() -> None:
    assert GpuTarget.named("cuda:sm_80") == GpuTarget.named("cuda:a100") == GpuTarget.named("A100")
    assert [GpuTarget.named(t.arch) for t in GpuTarget.all()] == list(GpuTarget.all())
    assert GpuTarget.named("h200").capability == (9, 0)
    with pytest.raises(UsageError, match="'cuda:sm_61' is not a GPU target; the targets are cuda: and one of sm_70"):
        GpuTarget.named("cuda:sm_61")


def test_what_fits_is_counted() -> None:
    a100, h100, t4 = (GpuTarget.named(n) for n in ("a100", "h100", "t4"))
    assert [t.blocks_together(256, 40, 4 * KIB + 128) for t in (a100, h100, t4)] == [6, 6, 4]
    assert [t.blocks_together(256, 40, 64 * KIB + 128) for t in (a100, h100, t4)] == [2, 3, 0]
    assert a100.blocks_together(1025, 16, 0) == 0
    assert a100.blocks_together(256, 256, 0) == 0


@pytest.mark.parametrize("target", GpuTarget.all(), ids=lambda t: t.arch)
def test_registers_are_as_many_as_the_blocks_leave(target: GpuTarget) -> None:
    for threads in (128, 256, 512, 1024):
        for blocks in range(1, target.threads // threads + 1):
            registers = target.registers_for(threads, blocks)
            assert target.blocks_together(threads, registers, 0) >= blocks
            if registers < target.registers_of_thread:
                assert target.blocks_together(threads, registers + 8, 0) < blocks


@pytest.mark.parametrize("target", GpuTarget.all(), ids=lambda target: target.arch)
@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 7])
def test_shared_memory_is_as_much_as_the_blocks_leave(target: GpuTarget, blocks: int) -> None:
    most = target.shared_for(blocks)
    assert target.blocks_together(64, 16, most) >= blocks
    assert target.blocks_together(64, 16, most + 1) < blocks


def test_nvidias_header_counts_the_same(tmp_path: Path) -> None:
    headers = _headers()
    if headers is None or shutil.which("g++") is None:
        pytest.skip("no cuda_occupancy.h, or no g++")
    program = tmp_path / "occupancy"
    source = tmp_path / "occupancy.cc"
    source.write_text(_PROGRAM)
    subprocess.run(["g++", "-w", f"-I{headers}", "-o", program, source], check=True, timeout=120)
    asked = [(t, *case) for t in GpuTarget.all() for case in CASES]
    lines = [
        " ".join(map(str, (*t.capability, t.threads, t.blocks, t.shared_bytes, t.shared_bytes_of_block,
                           t.multiprocessors, *case)))
        for t, *case in asked
    ]  # fmt: skip
    answer = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60)
    wrong = [
        f"{t.arch}, threads, registers, shared {case}: {theirs} and not {t.blocks_together(*case)}"
        for (t, *case), theirs in zip(asked, answer.stdout.split(), strict=True)
        if t.blocks_together(*case) != int(theirs)
    ]
    assert not wrong, wrong[:10]
