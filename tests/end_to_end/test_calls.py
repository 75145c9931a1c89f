"""Functions that Grappler does not inline: stitched where they are called, whatever they were traced under."""

from __future__ import annotations

import _thread
import contextlib
import threading
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import kernel_calls, normal
from tf_stitch.config import Config
from tf_stitch.errors import StrictError
from tf_stitch.frontend import grappler
from tf_stitch.frontend.calls import stitched_calls
from tf_stitch.frontend.grappler import is_older, params_of
from tf_stitch.frontend.options import is_stitched, params_in, stitched_config
from tf_stitch.frontend.protos import ConfigProto, GraphDef
from tf_stitch.frontend.tuning import ANY_CALLER, caller

if TYPE_CHECKING:
    from collections.abc import Callable

X, Y = normal(16, 24), normal(16, 24, seed=1)


def gate(x: Any, y: Any) -> Any:
    for _ in range(2):
        x = tf.sigmoid(x * y + 1.0) * tf.tanh(x)
    return x


def exchangeable(function: Callable[..., Any]) -> Any:
    """As Keras marks its LSTM: TensorFlow may exchange it for another of the same name, so it is not inlined."""
    marks = {"api_implements": f"gate_{uuid.uuid4()}", "api_preferred_device": "CPU"}
    return tf.function(function, autograph=False, experimental_attributes=marks)


def outer(inner: Any) -> Any:
    return tf.function(lambda x, y: tf.matmul(inner(x, y), y, transpose_b=True), autograph=False)


class TestCalls:
    def test_what_was_traced_unstitched_is_stitched(self) -> None:
        function = outer(exchangeable(gate))
        expected: list[Any] = []
        assert kernel_calls(lambda: expected.append(function(X, Y))) == 0
        with tf_stitch.stitching():
            found: list[Any] = []
            assert kernel_calls(lambda: found.append(function(X, Y))) == 1
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
        assert kernel_calls(lambda: function(X, Y)) == 0

    def test_what_a_call_calls_is_stitched(self) -> None:
        innermost = exchangeable(gate)
        function = outer(exchangeable(lambda x, y: tf.matmul(innermost(x, y), y, transpose_b=True) @ x))
        expected = function(X, Y)
        with tf_stitch.stitching():
            found: list[Any] = []
            assert kernel_calls(lambda: found.append(function(X, Y))) == 1
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("traced_stitched", [False, True])
    def test_gradients(self, *, traced_stitched: bool) -> None:
        inner = exchangeable(gate)

        @tf.function(autograph=False)
        def gradient(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(tf.matmul(inner(x, y), y, transpose_b=True))
            return tape.gradient(loss, x)

        x, y = tf.constant(X), tf.constant(Y)
        with tf_stitch.stitching() if traced_stitched else contextlib.nullcontext():
            gradient(x, y)
        with tf_stitch.stitching():
            found: list[Any] = []
            assert kernel_calls(lambda: found.append(gradient(x, y))) >= 2
        np.testing.assert_allclose(found[0], gradient(x, y), rtol=1e-5, atol=1e-5)

    def test_the_gradient_around_a_call(self) -> None:
        function = outer(exchangeable(gate))
        x = tf.constant(X)

        def gradient() -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(function(x, Y) ** 2)
            return tape.gradient(loss, x)

        expected = gradient()
        with tf_stitch.stitching():
            found: list[Any] = []
            assert kernel_calls(lambda: found.append(gradient())) >= 2
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)

    def test_switched_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TF_STITCH", "0")
        function = outer(exchangeable(gate))
        with tf_stitch.stitching():
            assert kernel_calls(lambda: function(X, Y)) == 0

    def test_xla_keeps_its_functions(self) -> None:
        function = outer(tf.function(gate, autograph=False, jit_compile=True))
        expected = function(X, Y)
        with tf_stitch.stitching():
            found: list[Any] = []
            assert kernel_calls(lambda: found.append(function(X, Y))) == 0
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)

    def test_an_lstm_of_keras(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
        keras = pytest.importorskip("tf_keras", reason="tf_keras, whose LSTM is such a function, is not installed")
        layer = keras.layers.LSTM(8, return_sequences=True)
        x = tf.constant(normal(3, 5, 4))

        @tf.function
        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(x) ** 2)
            return [loss, *tape.gradient(loss, layer.trainable_variables)]

        expected = step(x)
        with tf_stitch.stitching():
            found: list[Any] = []
            assert kernel_calls(lambda: found.extend(step(x))) >= 2 * 5  # each step forwards and backwards
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


class TestConfigs:
    """The `config_proto` of one call node."""

    @staticmethod
    def graph(config: bytes, **marks: bool) -> Any:
        graph = GraphDef()
        graph.library.function.add().signature.name = "f"
        node = graph.node.add(name="call", op="PartitionedCall")
        node.attr["f"].func.name = "f"
        node.attr["config_proto"].s = config
        for mark, value in marks.items():
            node.attr[mark].b = value
        return graph

    def test_what_else_a_config_says_is_kept(self) -> None:
        config = ConfigProto(allow_soft_placement=True, intra_op_parallelism_threads=3)
        config.graph_options.rewrite_options.remapping = 2
        found = stitched_calls(self.graph(config.SerializeToString()), "{}", is_older)
        changed = ConfigProto.FromString(found["call"])
        assert is_stitched(found["call"])
        assert params_in(found["call"]) == "{}"
        assert (changed.allow_soft_placement, changed.intra_op_parallelism_threads) == (True, 3)
        assert "remap" not in changed.graph_options.rewrite_options.optimizers

    def test_a_call_that_names_us_keeps_its_config(self) -> None:
        other = params_of(Config(min_cluster_size=5))
        assert not stitched_calls(self.graph(stitched_config(b"", "")), "", is_older)
        assert not stitched_calls(self.graph(stitched_config(b"", other)), "", is_older)

    def test_a_call_from_before_a_race_learns_its_outcome(self) -> None:
        before, after = '{"epoch": 0, "never_slower": true}', '{"epoch": 1, "never_slower": true}'
        found = stitched_calls(self.graph(stitched_config(b"", before)), after, is_older)
        assert params_in(found["call"]) == after

    def test_what_xla_compiles_is_left_alone(self) -> None:
        assert not stitched_calls(self.graph(b"", _XlaMustCompile=True), "", is_older)
        graph = self.graph(b"")
        graph.library.function[0].attr["_XlaMustCompile"].b = True
        assert not stitched_calls(graph, "", is_older)
        graph.library.function[0].attr["_XlaMustCompile"].b = False
        assert stitched_calls(graph, "", is_older)

    def test_other_nodes_have_none(self) -> None:
        graph = self.graph(b"")
        graph.node[0].op = "While"
        assert not stitched_calls(graph, "", is_older)


def test_what_fails_on_a_thread_of_tensorflows_is_raised_where_it_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    callers: list[int] = []

    def fail(_optimizer: Any, item: Any) -> bytes | None:
        if "gate" in item.item_id:
            _thread.start_new_thread(lambda: (callers.append(caller()), done.set()), ())
            done.wait()
            raise ValueError("broken")
        return None

    monkeypatch.setattr(grappler.Optimizer, "_optimized", fail)
    inner = exchangeable(gate)
    stitched = tf_stitch.function(lambda x, y: inner(x, y) + 1.0, autograph=False)
    with pytest.raises(StrictError, match="broken"):
        stitched(X, Y)
    assert set(callers) == {ANY_CALLER}
    assert caller() == threading.get_ident()
