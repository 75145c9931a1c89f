"""Variables that a step reads, updates and reads again, whoever updates them: the order is the program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import kernel_calls, normal

ROWS, WIDTH, STEPS = 7, 33, 3
Update = Callable[[Any, Any, list[Any]], Any]  # (variable, its gradient, two more variables of its shape)


def adam(v: Any, g: Any, slots: list[Any]) -> None:
    tf.raw_ops.ResourceApplyAdam(
        var=v.handle, m=slots[0].handle, v=slots[1].handle, beta1_power=0.9, beta2_power=0.999, lr=0.1,
        beta1=0.9, beta2=0.999, epsilon=1e-6, grad=g,
    )  # fmt: skip


def adam_in_ops(v: Any, g: Any, slots: list[Any]) -> None:
    m, s = slots
    m.assign_add((g - m) * 0.1)
    s.assign_add((tf.square(g) - s) * 0.001)
    v.assign_sub(m * 0.1 / (tf.sqrt(s) + 1e-6))


def momentum_of_rows(v: Any, g: Any, slots: list[Any]) -> None:
    rows = tf.range(0, ROWS, 2)
    tf.raw_ops.ResourceSparseApplyMomentum(
        var=v.handle, accum=slots[0].handle, lr=0.1, grad=tf.gather(g, rows), indices=rows, momentum=0.9
    )


UPDATES: dict[str, Update] = {
    "assign": lambda v, g, _: v.assign(v * 0.5 - g),
    "assign_sub": lambda v, g, _: v.assign_sub(0.1 * g),
    "scatter_sub": lambda v, g, _: v.scatter_sub(tf.IndexedSlices(0.1 * g[:2], [3, 0])),
    "slices": lambda v, g, _: v[1:4].assign(g[1:4] * 2.0 + 1.0),
    "gradient descent": lambda v, g, _: tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.1, delta=g),
    "adam": adam,
    "adam in ops": adam_in_ops,
    "momentum of rows": momentum_of_rows,
}


def slope(x: Any) -> Any:
    """Something to stitch, of the shape of x."""
    return tf.nn.softmax(x * 2.0) - tf.tanh(x) * 0.1


def twice(update: Update, v: Any, slots: list[Any], x: Any) -> list[Any]:
    """What is read before, between and after two updates, each of which depends on what was read."""
    before = slope(v) * x
    update(v, before, slots)
    between = slope(v + 0.5) * x
    update(v, between, slots)
    return [before, between, slope(v) + tf.exp(-tf.square(v))]


def in_a_loop(update: Update, v: Any, slots: list[Any], x: Any) -> list[Any]:
    sums = tf.zeros_like(x)
    for _ in tf.range(4):
        sums += slope(v) * x
        update(v, slope(v) * x, slots)
    return [sums, v * 2.0 + 1.0]


def in_a_branch(update: Update, v: Any, slots: list[Any], x: Any) -> list[Any]:
    before = slope(v) * x
    if tf.reduce_sum(before) > -1e9:
        update(v, slope(v) * before, slots)
    return [before, slope(v) * x]


@pytest.mark.parametrize("program", [twice, in_a_loop, in_a_branch])
@pytest.mark.parametrize("update", UPDATES.values(), ids=list(UPDATES))
def test_each_step_sees_what_the_one_before_has_written(program: Any, update: Update) -> None:
    def run(make: Any) -> list[np.ndarray]:
        v, *slots = (tf.Variable(normal(ROWS, WIDTH, seed=seed) ** 2) for seed in range(3))

        @make
        def step(x: Any) -> Any:
            return program(update, v, slots, x)

        found = [t for _ in range(STEPS) for t in step(tf.constant(normal(ROWS, WIDTH, seed=5)))]
        return [np.asarray(t) for t in (*found, v, *slots)]

    wanted = run(tf.function)
    found: list[np.ndarray] = []
    assert kernel_calls(lambda: found.extend(run(tf_stitch.function))) >= STEPS
    count = (len(wanted) - 3) // STEPS
    for first, second in zip(wanted[:count], wanted[count : 2 * count], strict=True):
        assert np.abs(first - second).max() > 1e-3  # so a step that was missed would show
    for mine, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5 * np.abs(right).max())
