"""Loops whose invariants enter once: their turns, effects, gradients and conditions are what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import arrays, normal
from tests.lower.comparison import assert_near
from tf_stitch import pipeline
from tf_stitch.ir.graph import Graph

X, W, B = normal(4, 8), normal(8, 8) * 0.3, normal(8)
Ops = Counter[str]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Ops, Ops]]:
    """The ops of each graph with a loop, before and after."""
    found: list[tuple[Ops, Ops]] = []
    original = pipeline.with_constant_invariants

    def recorded(graph: Graph) -> Graph:
        result = original(graph)
        before, after = (Counter(node.op for node in g.nodes.values()) for g in (graph, result))
        if before["NextIteration"]:
            found.append((before, after))
        return result

    monkeypatch.setattr(pipeline, "with_constant_invariants", recorded)
    return found


def alike(function: Callable[..., Any], *arguments: Any) -> None:
    arguments = tuple(map(tf.constant, arguments))
    stitched, plain = tf_stitch.function(function), tf.function(function)
    for _ in range(2):
        for ours, theirs in zip(arrays(stitched(*arguments)), arrays(plain(*arguments)), strict=True):
            assert_near(ours, theirs, ulps=32) if ours.dtype.kind == "f" else np.testing.assert_array_equal(
                ours, theirs
            )


def layers(x: Any, w: Any, b: Any, turns: Any) -> Any:
    for _ in tf.range(turns):
        x = tf.tanh(tf.matmul(x, w) + b) * 0.5 + x
    return x


@pytest.mark.parametrize("turns", [0, 1, 7])
def test_weights(seen: list[tuple[Ops, Ops]], turns: int) -> None:
    alike(layers, X, W, B, turns)
    for before, after in seen:
        assert after["Merge"] < before["Merge"]
        assert after["Enter"] == before["Enter"]


def test_gradients(seen: list[tuple[Ops, Ops]]) -> None:
    def gradients(x: Any, w: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w, b])
            y = tf.reduce_sum(layers(x, w, b, 5) ** 2)
        return tape.gradient(y, [x, w, b])

    alike(gradients, X, W, B)
    assert any(after["Merge"] < before["Merge"] for before, after in seen)


def test_loops_in_loops(seen: list[tuple[Ops, Ops]]) -> None:
    def nested(x: Any, w: Any, b: Any, turns: Any) -> Any:
        for _ in tf.range(turns):
            x = layers(x, w, b, turns) * 0.5
            for _ in tf.range(2):
                x = x * b + 1.0
        return x

    for turns in (0, 1, 3):
        alike(nested, X, W, B, turns)
    assert all(after["Merge"] < before["Merge"] for before, after in seen)


def test_branches_in_loops_and_loops_in_branches() -> None:
    def branching(x: Any, w: Any, flag: Any, turns: Any) -> Any:
        if flag:
            for i in tf.range(turns):
                x = tf.matmul(x, w) + 1.0 if i % 2 == 0 else tf.tanh(x) * tf.reduce_sum(w)
        else:
            x = x * 2.0 - tf.reduce_mean(w)
        return x

    for flag in (True, False):
        for turns in (0, 1, 4):
            alike(branching, X, W, flag, turns)


def test_the_condition_reads_an_invariant(seen: list[tuple[Ops, Ops]]) -> None:
    def until(x: Any, limit: Any) -> Any:
        turns = 0
        while tf.reduce_sum(x * x) < limit and turns < 20:
            x = x * 1.5 + 0.25
            turns += 1
        return x, turns

    for limit in (0.0, 100.0, 1e6):
        alike(until, X, np.float32(limit))
    assert any(after["Merge"] < before["Merge"] for before, after in seen)


def test_effects_are_as_many_and_in_order() -> None:
    """What the body does of an invariant alone is done once a turn, also where nothing else would hold it back."""

    def done(compile_: Callable[..., Any]) -> tuple[list[Any], list[Any]]:
        total, log = tf.Variable(0.0), list[Any]()

        @compile_
        def effects(x: Any, w: Any, turns: Any) -> Any:
            for i in tf.range(turns):
                total.assign_add(tf.reduce_sum(w))
                tf.py_function(lambda v, i: log.append((float(v), int(i))), [w[0], i], [])
                x = x * 2.0 + total
            return x

        results = [effects(tf.constant(X), tf.constant(B), tf.constant(n)).numpy() for n in (0, 3, 2)]
        return [*results, total.numpy()], log

    (ours, our_log), (theirs, their_log) = done(tf_stitch.function), done(tf.function)
    assert our_log == their_log
    assert len(our_log) == 5
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our, their, rtol=1e-5)


def test_random_numbers_of_an_invariant_shape_are_drawn_once_a_turn() -> None:
    def drawn(compile_: Callable[..., Any]) -> list[Any]:
        generator = tf.random.Generator.from_seed(5)

        @compile_
        def walk(shape: Any, turns: Any) -> Any:
            x = tf.zeros([])
            for _ in tf.range(turns):
                x = x * 2.0 + tf.reduce_sum(generator.uniform(shape))
            return x

        return [*(walk(tf.constant([5]), tf.constant(n)).numpy() for n in (3, 2, 3)), *generator.state.numpy()]

    np.testing.assert_allclose(drawn(tf_stitch.function), drawn(tf.function), rtol=1e-5)


def test_a_loop_of_tensorflow_1() -> None:
    def walk(x: Any, w: Any) -> Any:
        graph_loop = tf.compat.v1.while_loop
        return graph_loop(lambda i, x, w: i < 6, lambda i, x, w: (i + 1, tf.matmul(x, w) * 0.5 + x, w), [0, x, w])

    tf.compat.v1.disable_control_flow_v2()
    try:
        alike(walk, X, W)
    finally:
        tf.compat.v1.enable_control_flow_v2()


def test_a_recurrent_network() -> None:
    tf.keras.utils.set_random_seed(1)
    layer = tf.keras.layers.GRU(8, return_sequences=True, return_state=True)
    x = normal(3, 6, 5)
    layer.build(x.shape)
    for mask in (None, np.arange(6) < np.array([[6], [2], [0]])):
        given = () if mask is None else (mask,)
        alike(lambda x, *m: layer(x, mask=m[0] if m else None), x, *given)


def test_can_be_turned_off(seen: list[tuple[Ops, Ops]]) -> None:
    config = tf_stitch.Config().without(["invariant_motion"])
    tf_stitch.function(layers, config=config)(*map(tf.constant, (X, W, B, 3)))
    assert not seen
