"""GpuTarget: the facts about a GPU that planning and compiling depend on, as data.

A target stands for an architecture, and describes the GPU that is met most of its kind: kernels that are made for sm_86
run on every sm_86. What only the GPU at hand knows, how many multiprocessors it has, is looked at once more when a
kernel is launched.

Facts are those of the "Compute Capabilities" tables in NVIDIA's CUDA C++ Programming Guide, and of the data sheets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tf_stitch.errors import UsageError

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_PREFIX: Final = "cuda:"

WARP: Final = 32
_SIDES: Final = 4  # a multiprocessor is four of them, each with a quarter of the registers
_REGISTER_UNIT: Final = 256  # registers that a warp is given at a time


@dataclass(frozen=True)
class GpuTarget:
    """A GPU to generate code for.

    name: for people. arch: "sm_80".
    multiprocessors: how many; a hint, since a launch asks the GPU at hand.
    threads, blocks: that a multiprocessor holds at most. threads_of_block: that a block has at most.
    registers: 32-bit ones of a multiprocessor. registers_of_thread: that a thread has at most.
    shared_bytes: of a multiprocessor. shared_bytes_of_block: that a block has at most, where it asks for them.
    l2_bytes: of the GPU.

    What things cost, for comparing plans: bytes_per_ns between all multiprocessors and memory, latency_ns of one access
    to it, launch_ns of a kernel, barrier_ns of a grid barrier, op_ns of an op of TensorFlow, besides its kernel;
    heavy_per_ns: HEAVY functions that a multiprocessor evaluates, some 30 instructions each on 64 or 128 lanes.
    """

    name: str
    arch: str
    multiprocessors: int
    threads: int
    blocks: int
    shared_bytes: int
    shared_bytes_of_block: int
    l2_bytes: int
    bytes_per_ns: float
    registers: int = 65_536
    threads_of_block: int = 1024
    registers_of_thread: int = 255
    launch_ns: float = 4_000.0
    barrier_ns: float = 2_600.0
    op_ns: float = 3_000.0
    latency_ns: float = 600.0
    heavy_per_ns: float = 8.0

    @staticmethod
    def named(name: str) -> GpuTarget:
        """The target of "cuda:sm_80" or "cuda:a100"; the prefix may be left out.

        Raises:
          UsageError: for any other name.
        """
        wanted = name.removeprefix(_PREFIX).lower()
        arch = _ARCH_OF.get(wanted, wanted)
        for target in _TARGETS:
            if target.arch == arch:
                return target
        known = ", ".join((*(t.arch for t in _TARGETS), *_ARCH_OF))
        raise UsageError(f"'{name}' is not a GPU target; the targets are cuda: and one of {known}")

    @staticmethod
    def all() -> tuple[GpuTarget, ...]:
        """A target for each architecture, the oldest first."""
        return _TARGETS

    @staticmethod
    def several(names: str) -> tuple[GpuTarget, ...]:
        """The targets of "cuda:sm_80,h100", the oldest first, each once.

        Raises:
          UsageError: where one of them is none, or there is none.
        """
        wanted = {GpuTarget.named(name.strip()).arch for name in names.removeprefix(_PREFIX).split(",")}
        return tuple(target for target in _TARGETS if target.arch in wanted)

    @property
    def capability(self) -> tuple[int, int]:
        """(8, 0) of sm_80."""
        number = int(self.arch.removeprefix("sm_"))
        return number // 10, number % 10

    def blocks_together(self, threads: int, registers: int, shared_bytes: int) -> int:
        """How many blocks a multiprocessor holds at a time (CUDA: occupancy); 0 where it cannot hold one.

        threads: of a block. registers: of a thread, as the compiler reports them. shared_bytes: of a block, static and
        dynamic together. The rules are those of NVIDIA's cuda_occupancy.h: a warp's registers come in units, from its
        own quarter of the multiprocessor, and from sm_80 on the system has a part of each block's shared memory.
        """
        fits = threads <= self.threads_of_block and registers <= self.registers_of_thread
        if not fits or threads <= 0 or shared_bytes > self.shared_bytes_of_block:
            return 0
        warps = -(-threads // WARP)
        by_threads = self.threads // (warps * WARP)
        of_warp = _rounded(max(registers, 1) * WARP, _REGISTER_UNIT)
        by_registers = self.registers // _SIDES // of_warp * _SIDES // warps
        of_block = _rounded(shared_bytes + self._shared_of_system, self._shared_unit)
        by_shared = self.shared_bytes // of_block if of_block else self.blocks
        return min(self.blocks, by_threads, by_registers, by_shared)

    def registers_for(self, threads: int, blocks: int) -> int:
        """The most registers that a thread may have so that a multiprocessor holds this many blocks of `threads`."""
        warps = blocks * -(-threads // WARP)
        of_side = -(-warps // _SIDES)
        of_warp = self.registers // _SIDES // of_side // _REGISTER_UNIT * _REGISTER_UNIT
        return min(self.registers_of_thread, of_warp // WARP)

    def shared_for(self, blocks: int) -> int:
        """The most bytes of shared memory that a block may have so that a multiprocessor holds this many blocks."""
        of_block = self.shared_bytes // blocks // self._shared_unit * self._shared_unit
        return min(self.shared_bytes_of_block, of_block - self._shared_of_system)

    @property
    def _shared_of_system(self) -> int:
        """Bytes of each block."""
        return _KIB if self.capability >= (8, 0) else 0

    @property
    def _shared_unit(self) -> int:
        """Bytes that a block is given at a time."""
        return 128 if self.capability >= (8, 0) else 256


def _rounded(number: int, unit: int) -> int:
    return -(-number // unit) * unit


_WITH_64_LANES: Final = ("sm_70", "sm_75", "sm_80")


def _target(
    name: str,
    arch: str,
    multiprocessors: int,
    *,
    threads: int,
    blocks: int,
    shared: tuple[int, int],
    l2: int,
    bandwidth: float,
) -> GpuTarget:
    """shared: KiB of a multiprocessor, and of a block. l2: MiB. bandwidth: GB/s."""
    return GpuTarget(
        name,
        arch,
        multiprocessors,
        threads,
        blocks,
        shared[0] * _KIB,
        shared[1] * _KIB,
        l2 * _MIB,
        bandwidth,
        heavy_per_ns=3.2 if arch in _WITH_64_LANES else 8.0,
    )


_TARGETS: Final = (
    _target("V100", "sm_70", 80, threads=2048, blocks=32, shared=(96, 96), l2=6, bandwidth=900),
    _target("T4", "sm_75", 40, threads=1024, blocks=16, shared=(64, 64), l2=4, bandwidth=320),
    _target("A100", "sm_80", 108, threads=2048, blocks=32, shared=(164, 163), l2=40, bandwidth=1555),
    _target("A10", "sm_86", 72, threads=1536, blocks=16, shared=(100, 99), l2=6, bandwidth=600),
    _target("L4", "sm_89", 58, threads=1536, blocks=24, shared=(100, 99), l2=48, bandwidth=300),
    _target("H100", "sm_90", 132, threads=2048, blocks=32, shared=(228, 227), l2=50, bandwidth=3350),
    _target("B200", "sm_100", 148, threads=2048, blocks=32, shared=(228, 227), l2=126, bandwidth=8000),
    _target("RTX 5090", "sm_120", 170, threads=1536, blocks=24, shared=(100, 99), l2=96, bandwidth=1792),
)
_ARCH_OF: Final = {
    "v100": "sm_70",
    "t4": "sm_75",
    "a100": "sm_80",
    "a10": "sm_86",
    "rtx30": "sm_86",
    "l4": "sm_89",
    "rtx40": "sm_89",
    "h100": "sm_90",
    "h200": "sm_90",
    "b200": "sm_100",
    "rtx50": "sm_120",
}
