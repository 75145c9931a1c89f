"""The three ways to run a function: TensorFlow as it is, XLA, and tf_stitch; and what can be asked of the last two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bench import hlo
from bench.workloads import chain
from bench.workloads.chain import Function
from bench.workloads.workload import Workload

# Ops that make no pass over a tensor: they give it another shape, or compute with shapes.
MOVES_NOTHING = frozenset(("Identity", "Reshape", "ExpandDims", "Squeeze", "Shape", "Size", "BroadcastGradientArgs"))


@dataclass(frozen=True)
class Chained:
    """A chain of copies, ready to be called, and a call with its arguments that does all the rest."""

    chain: Function
    empty: Function


@dataclass(frozen=True)
class Way:
    name: str
    compiled: Callable[[Function], Function]

    def alone(self, one: Function) -> Chained:
        """One copy that is compiled already, as a chain."""
        return Chained(one, self.compiled(chain.next_to_nothing))

    def chained(self, workload: Workload, copies: int) -> Chained:
        empty = self.compiled(chain.separators(workload, copies))
        return Chained(self.compiled(chain.rows(workload, copies)), empty)


@dataclass(frozen=True)
class Xla(Way):
    def chained(self, workload: Workload, copies: int) -> Chained:
        if workload.fresh_count:
            return Chained(plain(chain.called(workload, copies)), plain(chain.launches(copies)))
        return Chained(self.compiled(chain.looped(workload, copies)), self.compiled(chain.next_to_nothing))


@dataclass(frozen=True)
class Absent:
    """A way that cannot be run here, and why."""

    name: str
    reason: str


def plain(function: Function) -> Function:
    return tf.function(function, autograph=False)


def ways() -> tuple[Way | Absent, ...]:
    return Way("tf", plain), Xla("xla", _jitted), _stitch()


def xla_kernels(compiled: Any, arguments: tuple[Any, ...]) -> int:
    return hlo.kernels(compiled.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo"))


def stitch_counts() -> tuple[int, int]:
    """How many StitchOps have run in this process, and how many of them fell back to the unstitched ops."""
    import tf_stitch

    stats = tf_stitch.stats()
    return int(stats["calls"]), sum(stats["fallbacks"].values())


def left_by_stitch(function: Any, arguments: tuple[Any, ...]) -> Counter[tuple[str, str]]:
    """The memory-intensive ops of a `tf_stitch.function` that are not in a kernel: how many of an op, for a reason."""
    import tf_stitch

    graphs = tf_stitch.explain(function, *arguments).graphs
    return Counter((r.op, r.code) for g in graphs for r in g.rejections if r.op not in MOVES_NOTHING)


def _stitch() -> Way | Absent:
    try:
        import tf_stitch

        function = tf_stitch.function
    except Exception as error:  # noqa: BLE001  whatever is wrong with it, the other two can be measured
        return Absent("stitch", f"{type(error).__name__}: {error}")
    return Way("stitch", lambda f: function(f, autograph=False))


def _jitted(function: Function) -> Function:
    return tf.function(function, autograph=False, jit_compile=True)
