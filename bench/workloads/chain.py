"""One workload, several times in one tf.function, each copy on what the one before it made.

A call of a tf.function costs a few hundred microseconds of Python, more than a small kernel, so a small workload is
chained inside one function. The copies have to stay apart: a compiler that fuses across them is measured on another
workload, and an unrolled chain of 16 layer-norms takes XLA seconds to compile. What keeps them apart differs, and
each system gets what costs it least:

* TensorFlow and tf_stitch: the copies are unrolled, with a Snapshot between each two. Snapshot forwards its buffer
  (half a microsecond), no Grappler pass removes it, and it is no op to stitch. A tf.while_loop would cost both of them
  several microseconds of executor work a copy, and up to fifty on two threads.
* XLA: Snapshot means nothing to it, so the copies are a tf.while_loop, which costs compiled code nothing. The first
  copy stands before the loop: its result is a buffer that the loop can update in place, where the function's argument
  would have to be copied. Each `fresh` argument comes as one tensor with the copies along its first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bench.workloads.workload import Workload


def unrolled(workload: Workload, copies: int) -> Callable[..., Any]:
    """The chain as copies in a row; returns the last x, and whatever the copies emitted."""
    return _unroll(workload.step, workload.fresh_count, copies)


def reference(workload: Workload, copies: int) -> Callable[..., Any]:
    """The chain for float64 arguments."""
    return _unroll(workload.reference_step or workload.step, workload.fresh_count, copies)


def looped(workload: Workload, copies: int) -> Callable[..., Any]:
    """The chain as a loop; returns the last x, and what the last copy emitted. Takes `stacked` arguments."""

    def chain(x: Any, *rest: Any) -> Any:
        stacks, given = rest[: workload.fresh_count], rest[workload.fresh_count :]

        def copy(i: Any, x: Any) -> tuple[Any, ...]:
            result = workload.step(x, *(stack[i] for stack in stacks), *given)
            return result if isinstance(result, tuple) else (result,)

        last = copy(0, x)
        if copies > 1:
            _, last = tf.while_loop(
                lambda i, _: i < copies, lambda i, state: (i + 1, copy(i, state[0])), (tf.constant(1), last)
            )
        return last if len(last) > 1 else last[0]

    return chain


def stacked(workload: Workload, copies: int, arguments: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The arguments of `unrolled`, as `looped` takes them."""
    fresh, count = arguments[1 : 1 + copies * workload.fresh_count], workload.fresh_count
    stacks = (np.stack(fresh[k::count]) for k in range(count))
    return (arguments[0], *stacks, *arguments[1 + copies * count :])


def _unroll(step: Callable[..., Any], fresh_count: int, copies: int) -> Callable[..., Any]:
    def chain(x: Any, *rest: Any) -> Any:
        fresh, given = rest[: fresh_count * copies], rest[fresh_count * copies :]
        emitted: list[Any] = []
        for i in range(copies):
            if i > 0:
                x = tf.raw_ops.Snapshot(input=x)
            result = step(x, *fresh[i * fresh_count : (i + 1) * fresh_count], *given)
            x, *more = result if isinstance(result, tuple) else (result,)
            emitted += more
        return (x, *emitted) if emitted else x

    return chain
