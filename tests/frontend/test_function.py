"""The ways to run functions stitched: that they are tf.functions still, and that they are stitched."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tf_stitch.config import Config
from tf_stitch.frontend.function import StitchedFunction, disable, enable, function, stitching
from tf_stitch.runtime import stitch_op

if TYPE_CHECKING:
    from pathlib import Path


def gelu(x: tf.Tensor) -> tf.Tensor:
    """The exact one."""
    return 0.5 * x * (1.0 + tf.math.erf(x / 2.0**0.5))


X = tf.constant(np.linspace(-4, 4, 24, dtype=np.float32).reshape(4, 6))


def close(found: Any, expected: Any) -> None:
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def kernel_calls(call: Any) -> int:
    """How many StitchOps ran in `call`."""
    before = stitch_op.counters()["total"]["calls"]
    call()
    return stitch_op.counters()["total"]["calls"] - before


class TestDecorator:
    def test_is_a_tf_function(self) -> None:
        stitched = function(gelu)
        assert isinstance(stitched, StitchedFunction)
        assert isinstance(stitched, type(tf.function(gelu)))
        assert stitched.__name__ == "gelu"
        assert stitched.__doc__ == "The exact one."
        assert stitched.python_function is gelu
        close(stitched(X), gelu(X))
        assert kernel_calls(lambda: stitched(X)) == 1
        assert stitched.experimental_get_tracing_count() == 1
        assert "TensorSpec(shape=(4, 6)" in stitched.pretty_printed_concrete_signatures()

    def test_takes_the_arguments_of_tf_function(self) -> None:
        signature = [tf.TensorSpec([None, 6], tf.float32)]

        @function(input_signature=signature, autograph=False, reduce_retracing=True, config=Config())
        def named(x: tf.Tensor) -> tf.Tensor:
            return gelu(x)

        positional = function(gelu, signature)
        for stitched in (named, positional):
            close(stitched(X[:3]), gelu(X[:3]))
            close(stitched(X), gelu(X))
            assert stitched.experimental_get_tracing_count() == 1
            assert [s.shape.as_list() for s in stitched.input_signature] == [[None, 6]]

    def test_binds_arguments_as_python_does(self) -> None:
        @function
        def f(x: tf.Tensor, scale: float = 2.0, *, shift: float = 1.0) -> dict[str, tf.Tensor]:
            return {"y": tf.tanh(x) * scale + shift}

        close(f(X)["y"], tf.tanh(X) * 2.0 + 1.0)
        close(f(X, 3.0, shift=0.5)["y"], tf.tanh(X) * 3.0 + 0.5)

    def test_methods_are_bound_to_their_instances(self) -> None:
        class Scaled(tf.Module):
            def __init__(self, scale: float) -> None:
                super().__init__()
                self.scale = tf.Variable(scale)

            @function
            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                return tf.exp(-x) * self.scale + x

        two, three = Scaled(2.0), Scaled(3.0)
        assert isinstance(two.__call__, StitchedFunction)
        assert two.__call__ is two.__call__
        for model, scale in ((two, 2.0), (three, 3.0)):
            close(model(X), tf.exp(-X) * scale + X)
            assert kernel_calls(lambda model=model: model(X)) == 1
        two.scale.assign(5.0)
        close(two(X), tf.exp(-X) * 5.0 + X)

    def test_keeps_its_config_on_methods(self) -> None:
        class Model:
            @function(config=Config(exclude=frozenset({"Exp", "Neg", "Mul", "AddV2"})))
            def call(self, x: tf.Tensor) -> tf.Tensor:
                return tf.exp(-x) * 2.0 + x

        model = Model()
        assert kernel_calls(lambda: model.call(X)) == 0

    def test_variables_may_be_created_in_the_first_call(self) -> None:
        made: list[tf.Variable] = []

        @function
        def f(x: tf.Tensor) -> tf.Tensor:
            if not made:
                made.append(tf.Variable(2.0))
            return tf.tanh(x) * made[0] + 1.0

        close(f(X), tf.tanh(X) * 2.0 + 1.0)
        made[0].assign(3.0)
        close(f(X), tf.tanh(X) * 3.0 + 1.0)

    def test_concrete_functions_are_stitched(self) -> None:
        concrete = function(gelu).get_concrete_function(tf.TensorSpec([None, 6]))
        assert isinstance(concrete, type(tf.function(gelu).get_concrete_function(X)))
        close(concrete(X), gelu(X))
        assert kernel_calls(lambda: concrete(X)) == 1

    def test_a_tf_function_can_be_decorated(self) -> None:
        plain = tf.function(gelu)
        stitched = function(plain)
        close(stitched(X), gelu(X))
        assert kernel_calls(lambda: stitched(X)) == 1
        assert kernel_calls(lambda: plain(X)) == 0

    def test_xla_keeps_what_is_its_own(self) -> None:
        stitched = function(gelu, jit_compile=True)
        close(stitched(X), gelu(X))
        assert kernel_calls(lambda: stitched(X)) == 0

    def test_the_compiler_ir_can_be_asked_for(self) -> None:
        assert "HloModule" in function(gelu, jit_compile=True).experimental_get_compiler_ir(X)(stage="hlo")

    def test_run_eagerly(self) -> None:
        tf.config.run_functions_eagerly(True)
        try:
            close(function(gelu)(X), gelu(X))
        finally:
            tf.config.run_functions_eagerly(False)

    def test_an_error_of_the_users_is_the_users(self) -> None:
        @function
        def f(x: tf.Tensor) -> tf.Tensor:
            return tf.debugging.check_numerics(tf.math.log(x) * 2.0 + 1.0, "my message")

        with pytest.raises(tf.errors.InvalidArgumentError, match="my message"):
            f(tf.constant([-1.0]))
        assert context.context().function_call_options is not None
        assert kernel_calls(lambda: tf.function(gelu)(X)) == 0  # the options are the thread's own again

    def test_costs_next_to_nothing(self) -> None:
        stitched = function(gelu)
        stitched(X)
        repeats = 2000

        def seconds(call: Any) -> float:
            started = time.perf_counter()
            for _ in range(repeats):
                call()
            return time.perf_counter() - started

        nothing = lambda x: None  # noqa: E731
        through = min(seconds(lambda: stitched._stitched_call(nothing, (X,), {})) for _ in range(5))
        assert through / repeats < 20e-6  # some 0.3 us on a quiet machine; a call of a tf.function costs 30


class TestNesting:
    def test_inside_another_stitched_function(self) -> None:
        inner = function(gelu)
        outer = function(lambda x: inner(x) * 2.0 + 1.0)
        close(outer(X), gelu(X) * 2.0 + 1.0)
        assert kernel_calls(lambda: outer(X)) == 1

    def test_inside_a_plain_one_it_is_part_of_that(self) -> None:
        inner = function(gelu)
        outer = tf.function(lambda x: inner(x) * 2.0 + 1.0)
        close(outer(X), gelu(X) * 2.0 + 1.0)
        with stitching():
            assert kernel_calls(lambda: outer(X)) == 1

    def test_control_flow(self) -> None:
        @function
        def f(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
            for _ in tf.range(n):
                x = tf.tanh(x) * 2.0 + 0.5
            if tf.reduce_sum(x) > 0.0:
                x = tf.exp(-x) * x
            return x

        def by_hand(x: tf.Tensor, n: int) -> tf.Tensor:
            for _ in range(n):
                x = tf.tanh(x) * 2.0 + 0.5
            return tf.exp(-x) * x if tf.reduce_sum(x) > 0.0 else x

        for n in (0, 1, 5):
            for x in (X + 1.0, X - 9.0):
                close(f(x, tf.constant(n)), by_hand(x, n))
        assert kernel_calls(lambda: f(X, tf.constant(5))) >= 5


class TestGradients:
    def test_tape_outside_inside_and_twice(self) -> None:
        weight = tf.Variable(tf.ones([6]) * 0.7)

        def loss(x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(gelu(x * weight) ** 2)

        def gradients(call: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(X)
                y = call(X)
            return tape.gradient(y, [X, weight])

        def second(call: Any) -> Any:
            with tf.GradientTape() as outer:
                outer.watch(X)
                dx, _ = gradients(call)
                y = tf.reduce_sum(dx**2)
            return outer.gradient(y, X)

        stitched = function(loss)
        close(gradients(stitched), gradients(loss))
        close(second(stitched), second(loss))
        inside = function(lambda x: gradients(loss))
        close(inside(X), gradients(loss))
        assert kernel_calls(lambda: inside(X)) > 0


class TestStitching:
    def test_ends_where_it_ends_also_on_an_exception(self) -> None:
        plain = tf.function(gelu)
        with pytest.raises(ZeroDivisionError), stitching():
            _ = 1 / (kernel_calls(lambda: plain(X)) - 1)
        assert kernel_calls(lambda: plain(X)) == 0

    def test_nests(self) -> None:
        plain = tf.function(gelu)
        with stitching():
            with stitching(Config(exclude=frozenset({"Erf", "Mul", "AddV2", "RealDiv"}))):
                assert kernel_calls(lambda: plain(X)) == 0
            assert kernel_calls(lambda: plain(X)) == 1

    def test_is_this_threads_alone(self) -> None:
        plain = tf.function(gelu)
        calls: list[int] = []
        with stitching():
            thread = threading.Thread(target=lambda: calls.append(kernel_calls(lambda: plain(X))))
            thread.start()
            thread.join()
        assert calls == [0]

    def test_a_training_step_with_adam(self) -> None:
        def train(*, stitched: bool) -> list[np.ndarray]:
            tf.keras.utils.set_random_seed(1)
            model = tf.keras.Sequential(
                [
                    tf.keras.layers.Dense(16, activation="gelu"),
                    tf.keras.layers.LayerNormalization(),
                    tf.keras.layers.Dense(3, activation="softmax"),
                ]
            )
            model.build([None, 6])
            optimizer = tf.keras.optimizers.Adam(0.01)
            optimizer.build(model.trainable_variables)

            @tf.function
            def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
                with tf.GradientTape() as tape:
                    predicted = model(x, training=True)
                    loss = tf.reduce_mean(tf.keras.losses.categorical_crossentropy(y, predicted))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
                return loss

            x = tf.random.stateless_normal([32, 6], [1, 2])
            y = tf.one_hot(tf.argmax(x[:, :3], axis=1), 3)
            losses = []
            for _ in range(5):
                if stitched:
                    with stitching():
                        losses.append(step(x, y).numpy())
                else:
                    losses.append(step(x, y).numpy())
            return [np.array(losses), *(v.numpy() for v in model.trainable_variables)]

        before = stitch_op.counters()["total"]["calls"]
        found, expected = train(stitched=True), train(stitched=False)
        assert stitch_op.counters()["total"]["calls"] > before
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert expected[0][-1] < expected[0][0]

    def test_keras_fit_and_predict(self) -> None:
        def trained(*, stitched: bool) -> np.ndarray:
            tf.keras.utils.set_random_seed(3)
            model = tf.keras.Sequential(
                [tf.keras.Input([6]), tf.keras.layers.Dense(8, activation="gelu"), tf.keras.layers.Dense(2)]
            )
            model.compile("sgd", "mse", jit_compile=False)  # else Keras hands it to XLA
            x, y = np.tile(X, [8, 1]), np.ones([32, 2], np.float32)
            if not stitched:
                model.fit(x, y, epochs=2, verbose=0, shuffle=False)
                return model.predict(x, verbose=0)
            with stitching():
                model.fit(x, y, epochs=2, verbose=0, shuffle=False)
                return model.predict(x, verbose=0)

        before = stitch_op.counters()["total"]["calls"]
        close(trained(stitched=True), trained(stitched=False))
        assert stitch_op.counters()["total"]["calls"] > before


class TestEverywhere:
    def test_all_threads_and_back(self) -> None:
        plain = tf.function(gelu)
        calls: dict[str, int] = {}
        turns = [threading.Event() for _ in range(3)]
        done = threading.Semaphore(0)

        def in_a_thread_of_its_own() -> None:
            for turn, name in zip(turns, ("before", "enabled", "after"), strict=True):
                turn.wait(60)
                calls[name] = kernel_calls(lambda: plain(X))
                done.release()

        thread = threading.Thread(target=in_a_thread_of_its_own)
        thread.start()
        try:
            turns[0].set()
            done.acquire()
            enable()
            turns[1].set()
            done.acquire()
            calls["here"] = kernel_calls(lambda: plain(X))
        finally:
            disable()
            turns[2].set()
            thread.join()
        calls["here, after"] = kernel_calls(lambda: plain(X))
        assert calls == {"before": 0, "enabled": 1, "here": 1, "after": 0, "here, after": 0}

    def test_what_says_more_wins(self) -> None:
        plain = tf.function(gelu)
        enable()
        try:
            with stitching(Config(exclude=frozenset({"Erf", "Mul", "AddV2", "RealDiv"}))):
                assert kernel_calls(lambda: plain(X)) == 0
            assert kernel_calls(lambda: plain(X)) == 1
            enable(Config(exclude=frozenset({"Erf", "Mul", "AddV2", "RealDiv"})))
            assert kernel_calls(lambda: plain(X)) == 0
        finally:
            disable()
        assert kernel_calls(lambda: function(gelu)(X)) == 1

    def test_tensorflow_may_edit_the_options_in_place(self) -> None:
        plain = tf.function(gelu)
        enable()
        try:
            with context.function_executor_type("SINGLE_THREADED_EXECUTOR"):
                close(plain(X), gelu(X))
                options = context.context().function_call_options
                assert options.executor_type == "SINGLE_THREADED_EXECUTOR"
            assert not context.context().function_call_options.executor_type
        finally:
            disable()


def test_saving_and_loading(tmp_path: Path) -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(tf.ones([6]) * 3.0)
            self.free = function(lambda x: gelu(x) + 1.0, input_signature=[tf.TensorSpec([None, 6])])

        @function(input_signature=[tf.TensorSpec([None, 6], name="x")])
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": gelu(x) * self.weight}

    model = Model()
    tf.saved_model.save(model, str(tmp_path), signatures={"serving_default": model.serve})
    loaded = tf.saved_model.load(str(tmp_path))
    close(loaded.serve(X)["y"], model.serve(X)["y"])
    close(loaded.free(X), model.free(X))
    close(loaded.signatures["serving_default"](X)["y"], gelu(X) * 3.0)
    with stitching():
        assert kernel_calls(lambda: loaded.signatures["serving_default"](X)) == 1
        close(loaded.serve(X)["y"], gelu(X) * 3.0)
