"""Calls that repeat: they answer as TensorFlow's do, whatever came between them, and take a part of the time."""

from __future__ import annotations

import copy
import gc
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_stitch.frontend.function import StitchedFunction, function
from tf_stitch.frontend.repeats import Repeat, in_plain_context, key_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = tf.constant(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4))
Y = X + 1.0
Z = X * X


def repeated(stitched: StitchedFunction) -> list[Repeat]:
    """What the function would repeat now."""
    known = stitched._stitch_repeats._known if stitched._stitch_repeats else {}
    return [repeat for repeat in known.values() if repeat]


def called(times: int, call: Callable[[], Any]) -> Any:
    return [call() for _ in range(times)][-1]


def traced() -> Callable[..., Any]:
    """A body that says which of its traces ran, and what that trace made of its arguments."""
    traces: list[int] = []

    def body(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        traces.append(len(traces))
        given = [v for v in tf.nest.flatten((args, kwargs)) if v is not None]
        flat = [tf.reduce_sum(tf.cast(v, tf.float32)) for v in given]
        return tf.constant(traces[-1]), sum((2.0**i * v for i, v in enumerate(flat)), tf.constant(0.0))

    return body


def outcome(call: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, float]:
    """The trace that answered, and its value; or the error. TensorFlow's reduce_retracing has some of its own."""
    try:
        trace, value = call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001
        return type(error), 0.0
    return int(trace), float(value)


class TestIsFoundAgain:
    def test_from_the_third_call_on(self) -> None:
        stitched = function(lambda x, y: tf.tanh(x) * 2.0 - y)
        assert not repeated(stitched)
        stitched(X, Y)
        assert not repeated(stitched)
        stitched(X, Y)
        assert [r.order for r in repeated(stitched)] == [(0, 1)]
        np.testing.assert_array_equal(stitched(Y, X), tf.tanh(Y) * 2.0 - X)

    def test_takes_a_part_of_the_calls_of_python(self) -> None:
        def calls(one: Callable[[], Any]) -> int:
            called(3, one)
            count = 0

            def profile(frame: Any, event: str, arg: Any) -> None:
                nonlocal count
                count += event == "call"

            sys.setprofile(profile)
            try:
                one()
            finally:
                sys.setprofile(None)
            return count

        body = lambda x, *, scale: {"y": tf.tanh(x) * scale}  # noqa: E731
        plain, stitched = tf.function(body), function(body)
        assert calls(lambda: stitched(X, scale=Y)) < calls(lambda: plain(X, scale=Y)) / 3

    def test_keyword_arguments_in_any_order(self) -> None:
        stitched = function(lambda a, *, c, b: a + 10.0 * b + 100.0 * c)
        for _ in range(3):
            np.testing.assert_allclose(stitched(X, b=Y, c=Z), X + 10.0 * Y + 100.0 * Z, rtol=1e-6)
            np.testing.assert_allclose(stitched(c=X, a=Z, b=Y), Z + 10.0 * Y + 100.0 * X, rtol=1e-6)
        assert len({r.order for r in repeated(stitched)}) == 2

    def test_the_same_tensor_twice(self) -> None:
        stitched = function(lambda a, b: a - 2.0 * b)
        called(3, lambda: stitched(X, X))
        assert not repeated(stitched)
        called(3, lambda: stitched(X, Y))
        assert len(repeated(stitched)) == 1
        np.testing.assert_array_equal(stitched(X, X), X - 2.0 * X)

    def test_methods(self) -> None:
        class Model:
            def __init__(self, scale: float) -> None:
                self.scale = scale

            @function
            def call(self, x: tf.Tensor) -> tf.Tensor:
                return tf.tanh(x) * self.scale

        one, two = Model(1.0), Model(2.0)
        for _ in range(4):
            np.testing.assert_array_equal(two.call(X), one.call(X) * 2.0)
        assert len(repeated(one.call)) == len(repeated(two.call)) == 1
        assert not repeated(Model.call)

    def test_a_function_whose_shapes_never_come_again_keeps_few(self) -> None:
        stitched = function(lambda x: x * 2.0 + 1.0, input_signature=[tf.TensorSpec([None])])
        for n in range(200):
            called(2, lambda n=n: stitched(tf.zeros([n])))
        assert 0 < len(repeated(stitched)) <= 64


class TestAnswersAsTensorFlowDoes:
    TENSORS = (X, Y, X[:2], tf.cast(X, tf.float64), tf.constant(3), tf.constant(True), tf.constant(2.0))
    ARGUMENTS = st.recursive(
        st.sampled_from([*TENSORS, None, True, 1, 0, False, 1.0, -0.0, 0.0, X.numpy(), np.float32(2.0)]),
        lambda inner: (
            st.lists(inner, max_size=2) | st.tuples(inner, inner) | st.dictionaries(st.sampled_from("ab"), inner)
        ),
        max_leaves=3,
    )
    CALLS = st.lists(
        st.tuples(
            st.lists(ARGUMENTS, max_size=2), st.dictionaries(st.sampled_from("pq"), ARGUMENTS), st.integers(1, 3)
        ),
        min_size=1,
        max_size=4,
    )

    @given(CALLS, st.booleans())
    @settings(max_examples=30, deadline=None)
    def test_any_calls_in_any_order(self, calls: Any, relaxed: bool) -> None:
        plain = tf.function(traced(), autograph=False, reduce_retracing=relaxed)
        stitched = function(traced(), autograph=False, reduce_retracing=relaxed)
        for args, kwargs, times in [*calls, *calls]:
            for _ in range(times):
                found, expected = (outcome(f, args, kwargs) for f in (stitched, plain))
                assert found[0] == expected[0]
                np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-4)

    @pytest.mark.parametrize(
        ("one", "other"),
        [(True, 1), ([X], (X,)), ({"a": X}, {"b": X}), (X, tf.cast(X, tf.float64)), (X, X[:2]), ("1", 1), (None, [])],
        ids=repr,
    )
    def test_arguments_that_are_alike_are_told_apart(self, one: Any, other: Any) -> None:
        assert key_of((one,), {}, []) != key_of((other,), {}, [])
        assert key_of((one,), {}, []) == key_of((copy.copy(one),), {}, [])

    @pytest.mark.parametrize(
        "value", [1.0, X.numpy(), tf.Variable(1.0), object(), tf.data.Dataset.range(3), {"x": (X, 0.5)}], ids=type
    )
    def test_no_key_for_what_tensorflow_has_to_look_at(self, value: Any) -> None:
        assert key_of((value,), {}, []) is None

    def test_arguments_that_a_signature_converts(self) -> None:
        stitched = function(lambda x: x * 2.0 + 1.0, input_signature=[tf.TensorSpec([], tf.float32)])
        assert [float(stitched(3)) for _ in range(4)] == [7.0] * 4
        assert [float(stitched(n)) for n in (3, 4, 3, 4)] == [7.0, 9.0, 7.0, 9.0]
        assert not repeated(stitched)

    def test_defaults(self) -> None:
        stitched = function(lambda x, y=Y, *, scale=2: x * float(scale) + y)
        for _ in range(4):
            np.testing.assert_array_equal(stitched(X), X * 2.0 + Y)
            np.testing.assert_array_equal(stitched(X, X[:1], scale=3), X * 3.0 + X[:1])

    def test_variables_are_read_anew(self) -> None:
        made: list[tf.Variable] = []

        @function
        def f(x: tf.Tensor) -> tf.Tensor:
            if not made:
                made.append(tf.Variable(2.0))
            return x * made[0].assign_add(1.0)

        np.testing.assert_array_equal([f(X)[0, 0] / X[0, 0] for _ in range(6)], [3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        assert len(repeated(f)) == 1

    def test_captures_by_reference(self) -> None:
        held = 1

        @function
        def f(x: tf.Tensor) -> tf.Tensor:
            graph: Any = tf.compat.v1.get_default_graph()
            return x + tf.cast(graph._experimental_capture_side_input_by_ref("held", lambda: held), tf.float32)

        called(3, lambda: f(X))
        held = 5
        np.testing.assert_array_equal(f(X), X + 5.0)

    def test_captures_that_are_put_off(self) -> None:
        now, later = tf.constant(1.0), [tf.constant(5.0)]
        f = function(lambda x: x + now)
        called(4, lambda: f(X))
        assert len(repeated(f)) == 1
        concrete = f.get_concrete_function(X)
        concrete.replace_capture_with_deferred_capture(now, lambda: later[0], tf.TensorSpec([]))
        np.testing.assert_array_equal(f(X), X + 5.0)
        later[0] = tf.constant(7.0)
        np.testing.assert_array_equal(f(X), X + 7.0)


class TestElsewhere:
    def test_gradients_forward_and_back(self) -> None:
        weight = tf.Variable([[1.0, 2.0, 3.0, 4.0]])
        body = lambda x: tf.tanh(x * weight) + x  # noqa: E731
        stitched = function(body)
        called(3, lambda: stitched(X))
        assert repeated(stitched)

        def derivatives(call: Any) -> list[Any]:
            with tf.GradientTape(persistent=True) as outer:
                outer.watch(X)
                with tf.GradientTape() as tape:
                    tape.watch(X)
                    y = tf.reduce_sum(call(X) ** 2)
                first = tape.gradient(y, [X, weight])
                total = tf.reduce_sum(first[0] ** 2)
            with tf.autodiff.ForwardAccumulator(X, tf.ones_like(X)) as forward:
                z = call(X)
            return [*first, outer.gradient(total, X), forward.jvp(z)]

        for found, expected in zip(derivatives(stitched), derivatives(body), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_only_in_a_plain_context(self) -> None:
        inside: list[bool] = []
        note = lambda: inside.append(in_plain_context())  # noqa: E731
        assert in_plain_context()
        tf.function(note)()
        with tf.Graph().as_default():
            note()
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            note()
        tf.config.run_functions_eagerly(True)
        try:
            note()
        finally:
            tf.config.run_functions_eagerly(False)
        assert inside == [False] * 4
        assert in_plain_context()

    def test_inside_other_functions_strategies_and_models_that_are_saved(self, tmp_path: Path) -> None:
        model = tf.Module()
        model.inner = inner = function(lambda x: tf.tanh(x) * 3.0)
        called(3, lambda: inner(X))
        model.outer = function(lambda x: inner(x) + 1.0, input_signature=[tf.TensorSpec([3, 4])])
        np.testing.assert_allclose(model.outer(X), tf.tanh(X) * 3.0 + 1.0, rtol=1e-6)
        strategy = tf.distribute.MirroredStrategy(["CPU:0"])
        np.testing.assert_allclose(strategy.run(inner, (X,)), tf.tanh(X) * 3.0, rtol=1e-6)
        tf.saved_model.save(model, str(tmp_path))
        np.testing.assert_allclose(tf.saved_model.load(str(tmp_path)).outer(X), model.outer(X), rtol=1e-6)

    def test_not_where_stitching_is_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TF_STITCH", "0")
        stitched = function(lambda x: tf.tanh(x) * 3.0)
        called(4, lambda: stitched(X))
        assert not repeated(stitched)

    def test_copies_have_their_own(self) -> None:
        stitched = function(lambda x: tf.tanh(x) * 3.0)
        called(3, lambda: stitched(X))
        twin = copy.copy(stitched)
        assert not repeated(twin)
        np.testing.assert_array_equal(called(4, lambda: twin(X)), stitched(X))

    def test_errors_are_the_users(self) -> None:
        stitched = function(lambda x: tf.debugging.check_numerics(tf.math.log(x) * 2.0 + 1.0, "my message"))
        called(3, lambda: stitched(Y * Y + 1.0))
        assert repeated(stitched)
        with pytest.raises(tf.errors.InvalidArgumentError, match="my message") as raised:
            stitched(-Y * Y - 1.0)
        assert not [f for f in raised.traceback if "tensorflow" in str(f.path)][1:]  # as TensorFlow filters them

    def test_threads(self) -> None:
        stitched = function(lambda x, n: tf.tanh(x) * 3.0 + float(n))
        wrong: list[int] = []

        def work(n: int) -> None:
            for i in range(60):
                x = X[: i % 3 + 1]
                if not np.allclose(stitched(x, n), tf.tanh(x) * 3.0 + float(n), rtol=1e-5):
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_a_function_is_freed_with_its_last_reference(self) -> None:
        def used_once() -> weakref.ref[Any]:
            stitched = function(lambda x: tf.tanh(x) * 3.0)
            called(3, lambda: stitched(X))
            return weakref.ref(repeated(stitched)[0].concrete)

        gone = used_once()
        gc.collect()
        assert gone() is None
