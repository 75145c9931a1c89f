"""Bytes that StitchOps move, by the planner's own model, and what the machine's memory gives: STREAM's triad.

The triad is `a = b + 3 c` in C++ vectors, on as many Python threads as are measured, with three arrays far beyond the
caches; counted are the three arrays (McCalpin, STREAM, 1995), not the reads that writing `a` brings along.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tf_stitch.plan import cost
from tf_stitch.plan.target import Target
from tf_stitch.report.sizes import known_sizes
from tf_stitch.toolchain import compilers

_ARRAY_BYTES = 96 << 20
_ROUNDS = 5
_COMPILE_S = 60
_SOURCE = """
typedef float v __attribute__((vector_size(64), aligned(64)));
extern "C" __attribute__((visibility("default"))) void triad(v* a, const v* b, const v* c, long n) {
  for (long i = 0; i < n; ++i) a[i] = b[i] + 3.0f * c[i];
}
"""


@dataclass
class PlannedBytes:
    """Key of a kernel → the bytes that each StitchOp with it moves; None where they depend on an unknown dim."""

    by_key: dict[str, list[int | None]] = field(default_factory=dict)

    def of_calls(self, calls: Mapping[str, int]) -> int | None:
        """Of so many calls of each kernel; None where those of one are not known. StitchOps with one kernel that
        differ in size count as if they were called equally often."""
        total = 0.0
        for key, count in calls.items():
            known = [size for size in self.by_key.get(key, [None]) if size is not None]
            if len(known) < len(self.by_key.get(key, [None])):
                return None
            total += count * sum(known) / len(known)
        return round(total) if calls else None


@contextmanager
def recorded() -> Iterator[PlannedBytes]:
    """The bytes of what is stitched inside."""
    from tf_stitch.frontend.engine import Engine

    planned = PlannedBytes()
    stitch = Engine.stitch

    def recording(*args: Any, **kwargs: Any) -> Any:
        results = stitch(*args, **kwargs)
        for result in results:
            for made in result.clusters:
                sizes = known_sizes(result.graph, made.kernel, made.cluster.inputs)
                moved = cost.stitched(made.plan).given(sizes)
                known = moved.at() if all(not term.symbols for term in moved.terms) else None
                planned.by_key.setdefault(made.artifact.key, []).append(known)
        return results

    with mock.patch.object(Engine, "stitch", recording):
        yield planned


def triad_gb_per_s(threads: int) -> float | None:
    """The best of some rounds; None where there is no compiler."""
    with tempfile.TemporaryDirectory() as workspace:
        library = _built(Path(workspace))
        return None if library is None else _measured(library, threads)


def _built(workspace: Path) -> ctypes.CDLL | None:
    target = Target.this_cpu()
    compiler = next(iter(compilers.find_compilers(target)), None)
    if compiler is None:
        return None
    (workspace / compilers.SOURCE).write_text(_SOURCE)
    try:
        for command in compiler.build_commands(target, ()):
            subprocess.run(
                command,
                cwd=workspace,
                env=compilers.environment(workspace),
                check=True,
                capture_output=True,
                timeout=_COMPILE_S,
            )
        return ctypes.CDLL(str(workspace / compilers.LIBRARY))
    except (OSError, subprocess.SubprocessError):
        return None


def _measured(library: ctypes.CDLL, threads: int) -> float:
    elements = _ARRAY_BYTES // 4
    arrays = [_aligned(elements, value) for value in (0.0, 1.0, 2.0)]
    vectors = elements // 16
    bounds = [vectors * i // threads for i in range(threads + 1)]

    def part(i: int) -> None:
        pointers = (ctypes.c_void_p(a.ctypes.data + 64 * bounds[i]) for a in arrays)
        library.triad(*pointers, ctypes.c_long(bounds[i + 1] - bounds[i]))

    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            list(pool.map(part, range(threads)))
            best = min(best, time.perf_counter() - start)
    return 3 * _ARRAY_BYTES / best / 1e9


def _aligned(elements: int, value: float) -> np.ndarray:
    whole = np.full(elements + 16, value, np.float32)
    skipped = (-whole.ctypes.data % 64) // 4
    return whole[skipped : skipped + elements]
