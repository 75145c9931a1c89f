"""Loops and branches, old and new: what is inside is stitched inside, and what is outside stays there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import arrays, kernel_calls, normal

X = normal(5, 33)


def body(x: Any) -> Any:
    return tf.tanh(x) * 1.5 + 0.25


def by_hand(x: Any, times: int) -> Any:
    for _ in range(times):
        x = np.tanh(x) * np.float32(1.5) + np.float32(0.25)
    return x


@pytest.mark.parametrize("times", [0, 1, 2, 9])
def test_a_while_loop(times: int) -> None:
    @tf_stitch.function(autograph=False)
    def function(x: Any, times: Any) -> Any:
        before = body(x)
        _, inside = tf.while_loop(lambda i, _: i < times, lambda i, x: (i + 1, body(x)), (0, before))
        return body(inside) - before

    found: list[Any] = []
    calls = kernel_calls(lambda: found.append(function(tf.constant(X), tf.constant(times)).numpy()))
    np.testing.assert_allclose(found[0], by_hand(X, times + 2) - by_hand(X, 1), rtol=1e-5, atol=1e-6)
    assert calls >= times


def test_a_loop_in_a_loop() -> None:
    @tf_stitch.function(autograph=False)
    def function(x: Any, outer: Any, inner: Any) -> Any:
        def one(i: Any, x: Any) -> Any:
            _, x = tf.while_loop(lambda j, _: j < inner, lambda j, x: (j + 1, body(x)), (0, x * 0.5 + 0.1))
            return i + 1, tf.nn.relu(x * 2.0) - tf.exp(-x)

        return tf.while_loop(lambda i, _: i < outer, one, (0, x))[1]

    expected = X
    for _ in range(3):
        expected = by_hand(expected * np.float32(0.5) + np.float32(0.1), 2)
        expected = np.maximum(expected * 2, 0) - np.exp(-expected)
    found = function(tf.constant(X), tf.constant(3), tf.constant(2))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_values_of_the_loop_above_and_of_the_one_before() -> None:
    """A body that reads what is outside of the loop, and two loop variables that trade places."""

    @tf_stitch.function(autograph=False)
    def function(x: Any, times: Any) -> Any:
        outside = tf.exp(-tf.abs(x)) * 2.0

        def step(i: Any, a: Any, b: Any) -> Any:
            return i + 1, tf.tanh(b + outside) * 0.5, tf.sigmoid(a) - outside

        _, a, b = tf.while_loop(lambda i, *_: i < times, step, (0, x * 2.0, x + 1.0))
        return a * b + outside

    outside = np.exp(-np.abs(X)) * 2
    a, b = X * 2, X + 1
    for _ in range(4):
        a, b = np.tanh(b + outside) * 0.5, 1 / (1 + np.exp(-a)) - outside
    np.testing.assert_allclose(function(tf.constant(X), tf.constant(4)), a * b + outside, rtol=1e-4, atol=1e-5)


def test_branches() -> None:
    @tf_stitch.function(autograph=False)
    def function(x: Any) -> Any:
        before = body(x)
        inside = tf.cond(
            tf.reduce_sum(x) > 0.0,
            lambda: tf.exp(-before) * before + x,
            lambda: tf.cond(tf.reduce_sum(x) < -1e3, lambda: before * 2.0 + 1.0, lambda: tf.sigmoid(before) - x),
        )
        return tf.nn.relu(inside) + before

    for x in (X + 1, X - 1, X - 100):
        before = by_hand(x, 1)
        inside = (
            np.exp(-before) * before + x
            if x.sum() > 0
            else before * 2 + 1
            if x.sum() < -1e3
            else 1 / (1 + np.exp(-before)) - x
        )
        np.testing.assert_allclose(function(tf.constant(x)), np.maximum(inside, 0) + before, rtol=1e-5, atol=1e-5)


def test_a_switch_of_many_branches() -> None:
    @tf_stitch.function(autograph=False)
    def function(x: Any, which: Any) -> Any:
        branches = [lambda n=n: tf.tanh(x * float(n)) * 2.0 + float(n) for n in range(4)]
        return tf.nn.relu(tf.switch_case(which, branches) * 0.5 + 1.0)

    for which in range(4):
        expected = np.maximum((np.tanh(X * which) * 2 + which) * 0.5 + 1, 0)
        np.testing.assert_allclose(function(tf.constant(X), tf.constant(which)), expected, rtol=1e-5, atol=1e-6)


def test_a_branch_that_is_not_taken_raises_nothing() -> None:
    @tf_stitch.function(autograph=False)
    def function(x: Any, n: Any) -> Any:
        y = tf.cast(x, tf.int32)
        return tf.cond(n != 0, lambda: tf.cast(y * 2 // n + 1, tf.float32) * 2.0, lambda: x * 2.0 + 1.0)

    np.testing.assert_array_equal(function(tf.constant([4.0, 7.0]), tf.constant(0)), [9, 15])
    np.testing.assert_array_equal(function(tf.constant([4.0, 7.0]), tf.constant(2)), [10, 16])


def test_control_flow_of_tensorflow_1() -> None:
    """Switch, Merge and Enter are in the graph already."""

    def function(x: Any, times: Any) -> Any:
        before = body(x)
        _, inside = tf.compat.v1.while_loop(lambda i, _: i < times, lambda i, x: (i + 1, body(x)), (0, before))
        chosen = tf.compat.v1.cond(
            tf.reduce_sum(inside) > 0.0, lambda: tf.exp(-inside) * before, lambda: tf.sigmoid(inside) + before
        )
        return body(chosen)

    tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            inputs = tf.compat.v1.placeholder(tf.float32, [None, 33]), tf.compat.v1.placeholder(tf.int32, [])
            names = [t.name for t in (*inputs, tf.identity(function(*inputs)))]
    finally:
        tf.compat.v1.enable_control_flow_v2()
    assert {"Enter", "Switch", "Merge", "Exit"} <= {op.type for op in graph.get_operations()}
    whole = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph.as_graph_def(), name=""), [])
    wrapped = whole.prune(names[:2], names[2])
    for x in (X + 1, X - 1):
        for times in (0, 3):
            before, inside = by_hand(x, 1), by_hand(x, times + 1)
            chosen = np.exp(-inside) * before if inside.sum() > 0 else 1 / (1 + np.exp(-inside)) + before
            with tf_stitch.stitching():
                found = wrapped(tf.constant(x), tf.constant(times))
            np.testing.assert_allclose(found, by_hand(chosen, 1), rtol=1e-5, atol=1e-5)
    with tf_stitch.stitching():
        assert kernel_calls(lambda: wrapped(tf.constant(X), tf.constant(3))) >= 3


def test_a_recurrent_network() -> None:
    """An LSTM over a sequence, as Keras unrolls it in a loop."""
    tf.keras.utils.set_random_seed(5)
    model = tf.keras.layers.LSTM(16, return_sequences=True)
    x = tf.constant(normal(4, 12, 8))
    model(x)
    plain, stitched = (make(model, autograph=False)(x).numpy() for make in (tf.function, tf_stitch.function))
    np.testing.assert_allclose(stitched, plain, rtol=1e-5, atol=1e-6)


def test_branches_behind_an_effect_in_a_branch() -> None:
    """They were stitched together, and a kernel for both branches never ran: the result had no elements."""

    def function(x: Any, total: tf.Variable) -> Any:
        positive = tf.reduce_sum(x) > 0.0

        def counted() -> Any:
            total.assign_add(tf.reduce_mean(x))
            return tf.tanh(x) * 2.0

        y = tf.cond(positive, counted, lambda: x + x * 0.5)
        return y, tf.cond(positive, lambda: x * 3.0 + x, lambda: tf.tanh(x * 0.5) - total)

    ours, theirs = tf.Variable(1.0), tf.Variable(1.0)
    stitched = tf_stitch.function(lambda x: function(x, ours), input_signature=[tf.TensorSpec([None, None])])
    for sign in (1.0, -1.0):
        x = tf.constant(np.abs(normal(3, 5)) * sign)
        for mine, other in zip(arrays(stitched(x)), arrays(function(x, theirs)), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)
