"""One workload, several times in one tf.function, each copy on what the one before it made.

A call of a tf.function costs a few hundred microseconds of Python, more than a small kernel, so a small
workload is chained inside one function. The copies have to stay apart: a compiler that fuses across them is
measured on another workload, and an unrolled chain of 16 layer-norms takes XLA seconds to compile. What keeps
them apart differs, and each system gets what costs it least:

* TensorFlow and tf_stitch: the copies are unrolled, with a PlaceholderWithDefault between each two. That
  forwards its buffer (half a microsecond), and since its output may be fed, no compiler of graphs looks
  through it. A tf.while_loop costs both of them some microseconds of executor work a turn, and up to fifty on
  two threads; so a turn of it, where a chain is longer, is a row of 16 copies. `separators` is what all this
  costs alone, to be taken off.
* XLA: a PlaceholderWithDefault means nothing to it, so the copies are a tf.while_loop, which costs compiled
  code nothing. The first copy stands before the loop: its result is a buffer that the loop can update in
  place, where the function's argument would have to be copied.
* XLA where every copy has arguments of its own (the gates of an LSTM): a loop would slice them out of one
  tensor, and XLA's kernel becomes four times slower by that. So each copy is a call of one compiled function,
  out of a function that is not; `launches` is what the calls alone cost, to be taken off.

What copies emit is returned, newest first, so that nothing of it is dead. A loop carries and returns what its last
copy emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from bench.workloads.workload import UNROLLED, Workload

Function = Callable[..., Any]


def unrolled(workload: Workload, copies: int) -> Function:
    """The chain as copies in a row; returns the last x, and whatever the copies emitted."""
    return _unrolled(workload, workload.step, copies)


def rows(workload: Workload, copies: int) -> Function:
    """The same, with every `UNROLLED` copies a turn of a loop where there are more than those."""
    return _rows(workload, workload.step, copies)


def reference(workload: Workload, copies: int) -> Function:
    """The chain for float64 arguments."""
    return _rows(workload, workload.reference_step or workload.step, copies)


def looped(workload: Workload, copies: int) -> Function:
    """The chain as a loop, for a workload without `fresh` arguments; returns the last x, and what came with it."""

    def chain(x: Any, *given: Any) -> Any:
        def again(i: Any, x: Any, *_: Any) -> Any:
            return (i + 1, *_results(workload, workload.step(x, *given)))

        first = _results(workload, workload.step(x, *given))
        _, *last = tf.while_loop(lambda i, *_: i < copies, again, (tf.constant(1), *first))
        return tuple(last)

    return chain


def called(workload: Workload, copies: int) -> Function:
    """The chain as calls of one function that XLA compiles; returns what `unrolled` does."""
    step = tf.function(workload.step, autograph=False, jit_compile=True)
    return _unrolled(workload, step, copies)


def next_to_nothing(x: Any, *_: Any) -> Any:
    """What a call costs that has a chain's arguments, and one number to compute."""
    return tf.reshape(x, [-1])[:1] + 1.0


def separators(workload: Workload, copies: int) -> Function:
    """What `rows` costs beyond its copies: the call, the loop, and what stands between the copies."""
    between = _rows(replace(workload, emits=0), lambda x, *_: x, copies)
    return lambda x, *rest: next_to_nothing(between(x, *rest))


def launches(copies: int) -> Function:
    """What `called` costs beyond its kernels."""
    step = tf.function(lambda x: x + 1.0, autograph=False, jit_compile=True)

    def chain(x: Any, *rest: Any) -> Any:
        x = next_to_nothing(x, *rest)
        for _ in range(copies):
            x = step(x)
        return x

    return chain


def _unrolled(workload: Workload, step: Function, copies: int) -> Function:
    fresh_count = workload.fresh_count

    def chain(x: Any, *rest: Any) -> Any:
        fresh, given = rest[: fresh_count * copies], rest[fresh_count * copies :]
        emitted: list[Any] = []
        for i in range(copies):
            if i > 0:
                x = tf.raw_ops.PlaceholderWithDefault(input=x, shape=x.shape)
            x, *more = _results(workload, step(x, *fresh[i * fresh_count : (i + 1) * fresh_count], *given))
            emitted = more + emitted
        return (x, *emitted) if emitted else x

    return chain


def _rows(workload: Workload, step: Function, copies: int) -> Function:
    if copies <= UNROLLED:
        return _unrolled(workload, step, copies)
    assert copies <= workload.most_copies
    assert copies % UNROLLED == 0
    row = _unrolled(workload, step, UNROLLED)

    def chain(x: Any, *given: Any) -> Any:
        _, x = tf.while_loop(
            lambda i, _: i < copies // UNROLLED, lambda i, x: (i + 1, row(x, *given)), (tf.constant(0), x)
        )
        return x

    return chain


def _results(workload: Workload, result: Any) -> tuple[Any, ...]:
    """What a step returned: the next x, and what it emitted."""
    results = result if isinstance(result, tuple) else (result,)
    assert len(results) == 1 + workload.emits, f"{workload.name} emits {len(results) - 1}, not {workload.emits}"
    return results
