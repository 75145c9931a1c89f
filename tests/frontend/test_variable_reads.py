"""Optimizers that read back what they have assigned: the same numbers, fewer kernels, and an order that holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import kernel_calls, normal

X = normal(8, 33)


class Adam(tf.Module):
    """Two layers and their moments, trained as Keras does it."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = [tf.Variable(normal(33, 33) * 0.1), tf.Variable(normal(33))]
        self.moments = [[tf.Variable(tf.zeros_like(w)) for w in self.weights] for _ in range(2)]
        self.steps = tf.Variable(0.0)

    def step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = tf.tanh(x @ self.weights[0] + self.weights[1])
            loss = tf.reduce_mean(tf.square(y - x))
        self.steps.assign_add(1.0)
        rate = 0.01 * tf.sqrt(1.0 - 0.999**self.steps) / (1.0 - 0.9**self.steps)
        for w, m, v, g in zip(self.weights, *self.moments, tape.gradient(loss, self.weights), strict=True):
            m.assign_add((g - m) * 0.1)
            v.assign_add((tf.square(g) - v) * 0.001)
            w.assign_sub(rate * m / (tf.sqrt(v) + 1e-7))
        return loss


class Assigned(Adam):
    """The same moments, assigned whole."""

    def step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ self.weights[0] + self.weights[1]) - x))
        for w, m, g in zip(self.weights, self.moments[0], tape.gradient(loss, self.weights), strict=True):
            m.assign(0.9 * m + g)
            w.assign_sub(0.01 * m)
        return loss


def after(steps: int, model: Adam, wrap: Callable[[Any], Any]) -> list[np.ndarray[Any, Any]]:
    """Its variables."""
    step = wrap(model.step)
    for _ in range(steps):
        step(tf.constant(X))
    return [v.numpy() for v in model.variables]


def assert_alike(ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Up to roundings of tanh, which a step of Adam enlarges. An update that got lost is a tenth of a moment."""
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our, their, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [Adam, Assigned])
def test_variables_are_what_they_were(model: Callable[[], Adam]) -> None:
    assert_alike(after(3, model(), tf_stitch.function), after(3, model(), tf.function))


def test_the_moments_and_the_step_are_one_kernel_for_each_variable() -> None:
    def calls(config: tf_stitch.Config) -> int:
        step = tf_stitch.function(Adam().step, config=config)
        step(tf.constant(X))
        return kernel_calls(lambda: step(tf.constant(X)))

    apart = tf_stitch.Config(remote_stitching=False)
    assert calls(apart) < calls(apart.without(["variable_forwarding"]))


def test_what_is_read_back_after_all_is_what_was_assigned() -> None:
    model = Adam()

    @tf_stitch.function
    def step(x: Any) -> Any:
        model.step(x)
        return [m + 0.0 for m in model.moments[0]]

    for _ in range(2):
        for returned, variable in zip(step(tf.constant(X)), model.moments[0], strict=True):
            np.testing.assert_array_equal(returned, variable.numpy())


def test_a_saved_model_trains_as_before(tmp_path: Path) -> None:
    model = Adam()
    signature = tf.function(model.step, input_signature=[tf.TensorSpec([None, 33])])
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=signature)
    made = tf_stitch.convert_saved_model(tmp_path / "model", tmp_path / "stitched")
    assert any("assign" in name.lower() for c in made.clusters for name, _ in c.nodes), "the sums are in kernels"
    found: list[list[np.ndarray[Any, Any]]] = []
    for path in ("model", "stitched"):
        loaded: Any = tf.saved_model.load(str(tmp_path / path))
        for _ in range(3):
            loaded.signatures["serving_default"](tf.constant(X))
        found.append([v.numpy() for v in [*loaded.weights, *loaded.moments[0], *loaded.moments[1]]])
    assert_alike(*reversed(found))


def test_in_a_loop_every_turn_sees_what_the_turn_before_has_assigned() -> None:
    def trained(wrap: Callable[[Any], Any]) -> list[np.ndarray[Any, Any]]:
        model = Adam()

        def steps(x: Any) -> Any:
            for _ in tf.range(3):
                model.step(x)

        wrap(steps)(tf.constant(X))
        return [v.numpy() for v in model.variables]

    assert_alike(trained(tf_stitch.function), trained(tf.function))
