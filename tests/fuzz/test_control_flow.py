"""Random functions with loops and branches in one another: the same answers stitched.

All values have one shape, so that what varies is what reads what: before a loop, in it, behind it, across branches.
Some add to a variable, which tells how often they ran, and when.
The right answer is the eager one: TensorFlow 2.21 itself loses `x + zeros_like(x)` in a branch of a tf.function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import event, given
from hypothesis import strategies as st

import tf_stitch
from tests.end_to_end.stitched import arrays, kernel_calls, normal
from tests.fuzz.settings import tries

Draw = Any

_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "tanh": lambda x, y: tf.tanh(x),
    "sigmoid": lambda x, y: tf.sigmoid(x) - 0.5,
    "add": lambda x, y: (x + y) * 0.5,
    "mul": lambda x, y: x * tf.tanh(y),
    "max": lambda x, y: tf.maximum(x, -y),
    "softmax": lambda x, y: tf.nn.softmax(x),
    "centre": lambda x, y: x - tf.reduce_mean(y, -1, keepdims=True),
    "cumsum": lambda x, y: tf.cumsum(x, 1) * 0.1,  # never stitched
    "zeros": lambda x, y: x + tf.zeros_like(y),  # becomes an Identity that waits for y
}


@dataclass(frozen=True)
class Apply:
    function: str
    x: int
    y: int

    def run(self, values: list[Any]) -> list[Any]:
        return [_FUNCTIONS[self.function](values[self.x], values[self.y])]


_TOTALS: list[tf.Variable] = []  # what the effects of the function that runs are done to


@dataclass(frozen=True)
class Effect:
    """Adds to a variable, and yields what depends on when that was."""

    x: int

    def run(self, values: list[Any]) -> list[Any]:
        total = _TOTALS[-1]
        total.assign_add(tf.reduce_mean(tf.tanh(values[self.x])) + 1.0)
        return [values[self.x] - total.read_value() * 0.01]


@dataclass(frozen=True)
class Loop:
    """`times` rounds; `body` reads all values and the loop's own, and its last values are the next ones."""

    times: int
    start: tuple[int, ...]
    body: tuple[Any, ...]

    def run(self, values: list[Any]) -> list[Any]:
        count = len(self.start)

        def step(i: Any, *mine: Any) -> Any:
            return (i + 1, *run(self.body, [*values, *mine])[-count:])

        found = tf.while_loop(lambda i, *_: i < self.times, step, (0, *(values[s] for s in self.start)))
        return list(found[1:])


@dataclass(frozen=True)
class Branch:
    """One of two blocks, by the sign of the sum of a value; each yields its last value."""

    on: int
    yes: tuple[Any, ...]
    no: tuple[Any, ...]

    def run(self, values: list[Any]) -> list[Any]:
        positive = tf.reduce_sum(tf.round(values[self.on] * 8.0)) > 0.0
        return [tf.cond(positive, lambda: run(self.yes, values)[-1], lambda: run(self.no, values)[-1])]


def run(block: tuple[Any, ...], values: list[Any]) -> list[Any]:
    for statement in block:
        values = [*values, *statement.run(values)]
    return values


@st.composite
def blocks(draw: Draw, count: int, depth: int = 2, least: int = 1) -> tuple[Any, ...]:
    """A block over `count` values."""
    made: list[Any] = []
    pick = lambda: draw(st.integers(max(0, count - 5), count - 1))  # noqa: E731
    for _ in range(draw(st.integers(least, 5))):
        kind = draw(st.sampled_from(("apply",) * 8 + ("effect",) + (("loop", "branch") * 2 if depth else ())))
        if kind == "apply":
            made.append(Apply(draw(st.sampled_from(sorted(_FUNCTIONS))), pick(), pick()))
            count += 1
        elif kind == "effect":
            made.append(Effect(pick()))
            count += 1
        elif kind == "loop":
            start = tuple(pick() for _ in range(draw(st.integers(1, 3))))
            body = draw(blocks(count + len(start), depth - 1, least=len(start)))
            made.append(Loop(draw(st.integers(0, 3)), start, body))
            count += len(start)
        else:
            yes, no = draw(blocks(count, depth - 1)), draw(blocks(count, depth - 1))
            made.append(Branch(pick(), yes, no))
            count += 1
    return tuple(made)


@pytest.mark.slow
@tries(25)
@given(blocks(2, least=2), st.booleans())
def test_random_control_flow_gives_the_same_stitched(block: tuple[Any, ...], known: bool) -> None:
    def function(*xs: Any) -> Any:
        return run(block, list(xs))[-3:]

    signature = [tf.TensorSpec([5, 33] if known else [None, None])] * 2
    stitched = tf_stitch.function(function, input_signature=signature, autograph=False)
    totals = tf.Variable(0.0), tf.Variable(0.0)
    for seed in range(2):
        tensors = [tf.constant(normal(5, 33, seed=seed) + seed), tf.constant(normal(5, 33, seed=seed + 7))]
        ours: list[Any] = []
        _TOTALS[:] = totals[:1]
        calls = kernel_calls(lambda tensors=tensors, ours=ours: ours.extend(arrays(stitched(*tensors))))
        event("stitched" if calls else "not stitched")
        _TOTALS[:] = totals[1:]
        for mine, other in zip(ours, arrays(function(*tensors)), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4, err_msg=str(block))
        np.testing.assert_allclose(*(t.numpy() for t in totals), rtol=1e-4, atol=1e-4, err_msg=str(block))
