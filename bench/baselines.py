"""The three ways to run a function: TensorFlow as it is, XLA, and tf_stitch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bench import hlo
from bench.workloads import chain
from bench.workloads.workload import Workload

Function = Callable[..., Any]


@dataclass(frozen=True)
class Way:
    name: str
    compiled: Callable[[Function], Function]
    loops: bool = False  # chains are `looped`, not `unrolled`

    def chain(self, workload: Workload, copies: int) -> Function:
        return (chain.looped if self.loops else chain.unrolled)(workload, copies)


@dataclass(frozen=True)
class Absent:
    """A way that cannot be run here, and why."""

    name: str
    reason: str


def ways() -> tuple[Way | Absent, ...]:
    return (
        Way("tf", lambda f: tf.function(f, autograph=False)),
        Way("xla", lambda f: tf.function(f, autograph=False, jit_compile=True), loops=True),
        _stitch(),
    )


def _stitch() -> Way | Absent:
    try:
        import tf_stitch

        function = tf_stitch.function
    except Exception as error:  # whatever is wrong with the package, the other two can be measured
        return Absent("stitch", f"{type(error).__name__}: {error}")
    return Way("stitch", lambda f: function(f, autograph=False))


def stitch_calls() -> int:
    """How many StitchOps have run in this process."""
    import tf_stitch

    return int(tf_stitch.stats()["calls"])


def xla_kernels(compiled: Any, arguments: tuple[Any, ...]) -> int:
    return hlo.kernels(compiled.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo"))
