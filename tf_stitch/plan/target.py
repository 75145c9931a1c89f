"""Target: the facts about a CPU that planning and compiling depend on, as data.

Two kinds. `Target.this_cpu()` describes the machine we run on. `Target.baseline("x86-64-v3")` describes the
least of the machines that a model may travel to, and depends on nothing of this one, so that the same model
converts to the same bytes everywhere.

The instruction set is always one of the published levels: this CPU's target is the highest level that it
reaches in full. The few instructions beyond x86-64-v4 do nothing for our kernels, except to round bf16 with
denormals flushed (avx512bf16), which would make results depend on the machine.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tf_stitch.errors import UsageError

# What each x86-64 level adds to the one before, in the spelling of __builtin_cpu_supports. That spelling with
# "-m" before it is also the compiler's option, in every version of g++ and clang: -march=x86-64-v3 is not.
_LEVELS: Final[dict[str, tuple[str, ...]]] = {
    "x86-64": (),
    "x86-64-v2": ("popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    "x86-64-v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}
_ARM: Final = "aarch64"

# Where /proc/cpuinfo spells a feature differently.
_CPUINFO_NAMES: Final = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "lzcnt": "abm"}

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB

# Caches of the least CPU of a level (l1 data, l2 of a core, l3 of a socket): what is planned for when a model
# travels, or when the machine does not say.
_TYPICAL_CACHES: Final[dict[str, tuple[int, int, int]]] = {
    "x86-64": (32 * _KIB, 256 * _KIB, 4 * _MIB),
    "x86-64-v2": (32 * _KIB, 256 * _KIB, 8 * _MIB),
    "x86-64-v3": (32 * _KIB, 256 * _KIB, 8 * _MIB),
    "x86-64-v4": (32 * _KIB, 1 * _MIB, 16 * _MIB),
    _ARM: (32 * _KIB, 512 * _KIB, 8 * _MIB),
}
_TYPICAL_THREADS: Final = 4


@dataclass(frozen=True)
class Target:
    """A CPU to generate code for.

    name: for people: "AMD EPYC", or the baseline's name.
    isa: an x86-64 level, or "aarch64".
    vector_bytes: of a native vector: 64, 32 or 16.
    l1_bytes, l2_bytes: data cache of one core. l3_bytes: of the socket.
    threads: how many can run at a time; a hint, since the host says at each call how many it has.
    features: what the compiler may use beyond the bare architecture, as __builtin_cpu_supports spells it.
    march: the compiler's name for the bare architecture; `features` come on top of it.

    What things cost, for plan/cost.py; of an x86-64-v3 server, and for comparing plans, not for telling the time:

    op_ns: to dispatch an op of TensorFlow. launch_ns: to dispatch a StitchOp.
    join_ns: to start a loop on all threads and wait for the last of them; about what kernels/cpu_host.cc has.
    bytes_per_ns: between one thread and memory. heavy_ns: one HEAVY function of one element.
    """

    name: str
    isa: str
    vector_bytes: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    threads: int
    features: frozenset[str]
    march: str
    op_ns: float = 450.0
    launch_ns: float = 700.0
    join_ns: float = 15_000.0
    bytes_per_ns: float = 20.0
    heavy_ns: float = 0.25

    @staticmethod
    def this_cpu() -> Target:
        """The CPU that this process runs on.

        Raises:
          UsageError: on an architecture that is neither x86-64 nor AArch64.
        """
        fields = _cpuinfo_fields()
        isa = _isa_of_this_cpu(frozenset(fields.get("flags", "").split()))
        caches = tuple(
            _cache_bytes(level) or typical for level, typical in zip((1, 2, 3), _TYPICAL_CACHES[isa], strict=True)
        )
        return _target(fields.get("model name", platform.machine()), isa, caches, _threads_of_this_process())

    @staticmethod
    def baseline(name: str) -> Target:
        """The least CPU of a level: "native" (this CPU), "x86-64", "x86-64-v2" to "-v4", or "aarch64".

        Raises:
          UsageError: for any other name.
        """
        if name == "native":
            return Target.this_cpu()
        if name not in _TYPICAL_CACHES:
            known = ", ".join(("native", *_TYPICAL_CACHES))
            raise UsageError(f"'{name}' is not a CPU baseline; the baselines are {known}")
        return _target(name, name, _TYPICAL_CACHES[name], _TYPICAL_THREADS)

    @property
    def machine(self) -> str:
        """The architecture, as `uname -m` spells it."""
        return _ARM if self.isa == _ARM else "x86_64"

    @property
    def requires(self) -> str:
        """Everything a CPU must have to run a kernel for this target, comma-separated."""
        return ",".join((self.machine, *sorted(self.features)))

    @property
    def compiler_flags(self) -> tuple[str, ...]:
        """The instruction set as options that every g++ and clang takes."""
        if self.machine == _ARM:
            return (f"-march={self.march}",)  # asimd is part of it
        return (f"-march={self.march}", *(f"-m{feature}" for feature in sorted(self.features)))


def _target(name: str, isa: str, caches: tuple[int, ...], threads: int) -> Target:
    features = frozenset(("asimd",)) if isa == _ARM else _features_of(isa)
    return Target(
        name=name,
        isa=isa,
        vector_bytes=64 if "avx512vl" in features else 32 if "avx2" in features else 16,
        l1_bytes=caches[0],
        l2_bytes=caches[1],
        l3_bytes=caches[2],
        threads=threads,
        features=features,
        march="armv8-a" if isa == _ARM else "x86-64",
    )


def _features_of(level: str) -> frozenset[str]:
    features: set[str] = set()
    for name, added in _LEVELS.items():
        features.update(added)
        if name == level:
            break
    return frozenset(features)


def _isa_of_this_cpu(flags: frozenset[str]) -> str:
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return _ARM
    if machine not in ("x86_64", "amd64"):
        raise UsageError(f"tf_stitch generates code for x86-64 and AArch64, and this is a {machine}")
    reached = "x86-64"
    for level, added in _LEVELS.items():
        if not all(_CPUINFO_NAMES.get(feature, feature) in flags for feature in added):
            break
        reached = level
    return reached


def _cpuinfo_fields() -> dict[str, str]:
    """The first processor of /proc/cpuinfo; empty where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _cache_bytes(level: int) -> int:
    """Size of the first core's data cache of a level; 0 when the machine does not say."""
    units = {"K": _KIB, "M": _MIB}
    try:
        for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
            same_level = int((index / "level").read_text()) == level
            if same_level and (index / "type").read_text().strip() != "Instruction":
                size = (index / "size").read_text().strip()
                return int(size.rstrip("KM")) * units.get(size[-1:], 1)
    except (OSError, ValueError):
        pass
    return 0


def _threads_of_this_process() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        return os.cpu_count() or 1
