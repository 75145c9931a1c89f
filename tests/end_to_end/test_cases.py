"""Whole functions that fusing compilers got wrong, each a kind of its own: the answers are TensorFlow's, to the bit.

`same` compares with the function as TensorFlow runs it; values that are worth seeing stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import arrays, kernel_calls, normal
from tests.lower.comparison import assert_near

F32, F16, BF16, F64, I32, I64, I8, U8 = (
    np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int64, np.int8, np.uint8,
)  # fmt: skip
NAN, INF = np.nan, np.inf


def same(
    function: Callable[..., Any], *arguments: Any, signature: Any = None, ulps: float = 0.0, signs: bool = True
) -> list[Any]:
    """Asserts that stitching changes nothing, and returns the results. `signs`: nor the sign of a zero."""
    tensors = [tf.constant(a) for a in arguments]
    theirs = arrays(tf.function(function, input_signature=signature, autograph=False)(*tensors))
    ours = arrays(tf_stitch.function(function, input_signature=signature, autograph=False)(*tensors))
    for mine, other in zip(ours, theirs, strict=True):
        assert_near(mine, other, ulps=ulps)
        if signs and ulps == 0.0 and mine.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(mine[mine == 0]), np.signbit(other[other == 0]))
    return ours


def raises(function: Callable[..., Any], *arguments: Any, match: str) -> None:
    """The stitched function raises as TensorFlow's does."""
    for make in (tf.function, tf_stitch.function):
        with pytest.raises(tf.errors.OpError, match=match):
            make(function, autograph=False)(*(tf.constant(a) for a in arguments))


# -- buffers ---------------------------------------------------------------------------------------------------


def test_an_input_that_is_returned_too_keeps_its_value() -> None:
    x = normal(5, 33)
    y, same_x, copy = same(lambda x: (tf.tanh(x) * 2.0 + 1.0, x, tf.identity(x)), x, ulps=4)
    np.testing.assert_array_equal(same_x, x)
    np.testing.assert_array_equal(copy, x)
    assert not np.array_equal(y, x)


def test_an_input_that_feeds_another_op_keeps_its_value() -> None:
    same(lambda x: (tf.tanh(x) * 2.0 + 1.0, tf.cumsum(x, 1), tf.sort(x)), normal(5, 33), ulps=4)


def test_a_value_that_two_clusters_read_keeps_its_value() -> None:
    def function(x: Any) -> Any:
        shared = tf.cumsum(x, 1)
        one = tf.tanh(shared) * 2.0 + 1.0
        other = tf.exp(tf.cumsum(-tf.abs(one), 1)) - tf.sigmoid(shared)
        return one, other, tf.cumsum(shared, 0)

    same(function, normal(5, 33), ulps=8)


def test_an_argument_outlives_the_call() -> None:
    x = tf.constant(normal(5, 33))
    before = x.numpy().copy()
    function = tf_stitch.function(lambda x: tf.nn.relu(x * 2.0 + 1.0))
    for _ in range(3):
        function(x)
    np.testing.assert_array_equal(x.numpy(), before)


def test_a_variable_that_is_read_keeps_its_value() -> None:
    v = tf.Variable(normal(5, 33))
    before = v.numpy()

    @tf_stitch.function
    def function() -> Any:
        return tf.nn.relu(v * 2.0 + 1.0), v.read_value()

    y, read = function()
    np.testing.assert_array_equal(read, before)
    np.testing.assert_array_equal(v, before)
    np.testing.assert_array_equal(y, np.maximum(before * 2 + 1, 0))


def test_reads_before_and_after_an_assignment_differ() -> None:
    v = tf.Variable(normal(5, 33))
    start = v.numpy()

    @tf_stitch.function
    def function(x: Any) -> Any:
        before = tf.nn.relu(v * 2.0 + x)
        v.assign(v + x)
        after = tf.nn.relu(v * 2.0 + x)
        return before, after

    x = normal(5, 33, seed=1)
    before, after = function(tf.constant(x))
    np.testing.assert_allclose(before, np.maximum(start * 2 + x, 0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(after, np.maximum((start + x) * 2 + x, 0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(v, start + x, rtol=1e-6)


def test_one_tensor_given_twice() -> None:
    x = tf.constant(normal(5, 33))
    function = lambda a, b: (tf.tanh(a) * b + a, b - a * 2.0)  # noqa: E731
    ours, theirs = tf_stitch.function(function)(x, x), tf.function(function)(x, x)
    for mine, other in zip(ours, theirs, strict=True):
        assert_near(mine.numpy(), other.numpy())
    np.testing.assert_array_equal(x, normal(5, 33))


def test_a_value_read_twice() -> None:
    x = normal(5, 33)
    same(lambda x: x * x + x, x)
    same(lambda x: (x + x) * (x + x) - tf.transpose(tf.transpose(x * x)), x)


def test_results_that_are_the_same_value() -> None:
    def function(x: Any) -> Any:
        y = tf.nn.relu(x * 2.0 + 1.0)
        return y, tf.identity(y), y, tf.reshape(y, [-1]), tf.stop_gradient(y)

    same(function, normal(5, 33))


def test_views_of_inputs_as_results() -> None:
    def function(x: Any) -> Any:
        turned = tf.transpose(x, [0, 1])
        return turned, tf.nn.relu(turned * 2.0) + 1.0, tf.cast(x, tf.float32), tf.reshape(x, [5, 33]), x[:, :]

    same(function, normal(5, 33))


# -- NaN, infinities, zeros ------------------------------------------------------------------------------------

SPECIAL = np.array([NAN, 1.0, -1.0, 0.0, -0.0, INF, -INF, 7.0, 1e30, -1e30, 1e-30, 0.5], F32)
OTHER = np.array([1.0, NAN, 2.0, -0.0, 0.0, INF, INF, -7.0, 1e30, 1e30, -1e-30, NAN], F32)


@pytest.mark.parametrize("width", [1, 2, 12, 37, 256])
def test_nan_and_infinity_go_through_what_tensorflow_lets_them_through(width: int) -> None:
    """In every lane of a vector and in its tail: lengths around it, and the numbers at every place."""

    def function(x: Any, y: Any) -> Any:
        return (
            tf.maximum(x, y) + 1.0, tf.minimum(x, y) + 1.0, tf.clip_by_value(x, -2.0, 2.0) * y,
            tf.where(x > y, x, y) - x, tf.abs(x) * y, tf.sign(x) + y,
            tf.math.multiply_no_nan(x, y) + 1.0, tf.math.divide_no_nan(x, y) + 1.0, x * 0.0 + y,
        )  # fmt: skip

    x, y = np.resize(SPECIAL, (5, width)), np.resize(np.roll(OTHER, 5), (5, width))
    same(function, x, y)
    relu, relu6 = same(lambda x: (tf.nn.relu(x) * 2.0, tf.nn.relu6(x) * 2.0), x, signs=False)  # -0. may become 0.
    assert np.isnan(relu[np.isnan(x)]).all()
    assert np.isnan(relu6[np.isnan(x)]).all()


FUNCTIONS = (
    tf.exp, tf.tanh, tf.sigmoid, tf.math.erf, tf.sqrt, tf.math.rsqrt, tf.math.log, tf.math.log1p, tf.math.expm1,
    tf.nn.softplus, tf.nn.elu, tf.nn.selu, tf.math.softsign,
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_nan_and_infinity(function: Callable[[Any], Any]) -> None:
    x = np.resize(SPECIAL, (3, 37))
    same(lambda x: function(x * 1.0) + 0.0, x, ulps=4)
    same(lambda x: function(x) * 2.0, x, ulps=4)


def test_nan_goes_through_reductions() -> None:
    x = normal(6, 37)
    x[0, 5], x[1, 36], x[2, 0], x[3, 4], x[4, 4] = NAN, NAN, INF, -INF, INF
    x[4, 5] = -INF

    def function(x: Any) -> Any:
        x = x * 2.0
        return [f(x, -1) for f in (tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_min, tf.reduce_prod)]

    results = same(function, x, ulps=8)
    assert np.isnan(results[2][:2]).all()
    assert np.isnan(results[0][[0, 1, 4]]).all()


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_the_largest_of_a_window_is_no_nan(padding: str) -> None:
    """A NaN is never larger, and where there is nothing else, TensorFlow begins with the least number."""
    x = normal(1, 7, 7, 20)
    x[0, ::2, 1::2, :3] = np.nan
    x[0, :, :, 3:6] = np.array([np.nan, -np.inf, -0.0])
    x[0, 3, :, 6] = np.inf
    for size in (2, 3):
        (found,) = same(lambda x, size=size: tf.abs(tf.nn.max_pool2d(tf.negative(x), size, 2, padding)), x, ulps=0)
        assert not np.isnan(found).any()


def test_softmax_of_infinities() -> None:
    x = np.array([[-INF, -INF], [1e4, 1e4], [INF, 0], [-INF, 0], [NAN, 0], [1e38, -1e38]], F32)
    (found,) = same(lambda x: tf.nn.softmax(x * 1.5), x, ulps=4)
    np.testing.assert_array_equal(found[1], [0.5, 0.5])
    assert np.isnan(found[[0, 2, 4], 0]).all()
    same(lambda x: tf.nn.log_softmax(x * 1.5) + 1.0, x, ulps=4)


def test_softmax_of_large_numbers_divided() -> None:
    """What is subtracted is the very maximum that was found: else 1e11 / 3 gives NaN."""
    x = np.array([[1e11, 1e11 - 1e4, 0.0], [3e11, 2e11, 1e11]], F32)
    (found,) = same(lambda x: tf.nn.softmax(x / 3.0), x, ulps=4)
    assert np.isfinite(found).all()


def test_zeros_keep_their_sign() -> None:
    x = np.array([1.0, -1.0, 0.0, -0.0] * 9, F32)
    plus, minus = same(lambda x: (1.0 / (x * 0.0), 1.0 / (x * tf.constant(np.float32(-0.0)))), x)
    assert (plus[0], minus[0]) == (INF, -INF)
    same(lambda x: (-tf.abs(x) * 0.0, tf.maximum(x * 0.0, -0.0), tf.sqrt(x * 0.0 + x)), np.abs(x) * -0.0)


def test_rounding_is_half_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 8388609.0, -0.0] * 5, F32)
    (found,) = same(lambda x: tf.round(x) * 1.0, x)
    np.testing.assert_array_equal(found[:5], [0, 2, 2, -0.0, -2])


def test_products_with_zero_logarithms() -> None:
    x, y = np.array([0.0, 0.0, 0.0, 2.0] * 5, F32), np.array([NAN, 0.0, INF, 0.0] * 5, F32)
    results = same(
        lambda x, y: (tf.math.xlogy(x, y) + 1.0, tf.math.xdivy(x, y) + 1.0, tf.math.xlog1py(x, y) * 2.0), x, y
    )
    np.testing.assert_array_equal(results[0][:3], [1, 1, 1])


def test_subnormals_are_flushed_where_tensorflow_flushes_them() -> None:
    x = np.array([1e-40, -1e-40, 1e-38, 1e38, 2e-38] * 8, F32)
    same(
        lambda x: (
            x * 2.0 + 0.0,
            tf.sign(x) + 1.0,
            tf.cast(x > 0.0, tf.float32) * 2.0,
            x * tf.math.reciprocal(x) + 0.0,
        ),
        x,
    )
    same(lambda x: tf.reduce_sum(x * 2.0, -1) * 1e30, x.reshape(2, 20), ulps=4)


# -- arithmetic as written -------------------------------------------------------------------------------------


def test_products_and_sums_are_not_contracted() -> None:
    x = np.full([37], 0.1, F32)
    (found,) = same(lambda x, s: (x * (1.0 + s)) ** 2 - x**2, x, np.zeros(37, F32))
    np.testing.assert_array_equal(found, 0)
    (found,) = same(lambda x, y: x * y - tf.identity(x) * tf.identity(y), x, x * 3)
    np.testing.assert_array_equal(found, 0)


def test_sums_are_not_reordered() -> None:
    a, b = np.full([37], 1e8, F32), np.ones(37, F32)
    (found,) = same(lambda a, b: ((a + b) - a) * 2.0, a, b)
    np.testing.assert_array_equal(found, 0)


def test_a_sum_of_ten_million_drifts_no_further_than_tensorflows() -> None:
    x = np.full([10_000_000], 0.1, F32)
    found = tf_stitch.function(lambda x: tf.reduce_sum(x * 1.0 + 0.0))(tf.constant(x))
    assert abs(float(found) - 1e6) <= 2.0
    found = tf_stitch.function(
        lambda x: tf.reduce_mean(tf.square(tf.sqrt(x))), input_signature=[tf.TensorSpec([None, None])]
    )(tf.constant(x.reshape(10, -1)))
    assert abs(float(found) - 0.1) <= 3e-7


def test_halves_are_added_up_in_single() -> None:
    """Better than TensorFlow, whose CPU kernel gives inf."""
    mean = tf_stitch.function(lambda x: tf.reduce_mean(tf.abs(x) * 2.0, -1))
    np.testing.assert_array_equal(mean(tf.fill([2, 4096], tf.constant(50.0, tf.float16))), [100, 100])
    total = tf_stitch.function(lambda x: tf.reduce_sum(tf.abs(x) * 2.0, -1))
    found = total(tf.fill([2, 4096], tf.constant(0.5, tf.bfloat16)))
    np.testing.assert_array_equal(tf.cast(found, tf.float32), [4096, 4096])


def test_narrowing_casts_round() -> None:
    x = np.array([1.00390625, 1.001, 1.01171875, 65519.0, 65520.0, 3.4e38, NAN, -0.0] * 5, F32)
    halves = same(
        lambda x: (
            tf.cast(tf.cast(x, tf.bfloat16), tf.float32) * 1.0,
            tf.cast(tf.cast(x, tf.float16), tf.float32) + 0.0,
        ),
        x,
    )
    np.testing.assert_array_equal(halves[0][:3], [1.0, 1.0, 1.015625])
    np.testing.assert_array_equal(halves[1][3:5], [65504, INF])
    same(lambda x: tf.cast(tf.cast(x * 2.0, tf.float64), tf.float32) + 1.0, x)
    same(lambda i: tf.cast(i * 1, tf.float16) + tf.cast(0, tf.float16), np.array([65519, 65520, 1, -65519] * 5, I32))


def test_each_edge_has_its_own_dtype() -> None:
    """f16, bf16, f32 and f64 in one cluster."""

    def function(h: Any, b: Any, s: Any, d: Any) -> Any:
        t = tf.cast(tf.tanh(h) * tf.cast(2.0, tf.float16), tf.float32) * s
        u = tf.cast(tf.nn.relu(b) + tf.cast(1.0, tf.bfloat16), tf.float32) + t
        return tf.cast(u, tf.float64) * d + 1.0, tf.cast(u, tf.float16) * h, tf.cast(u * 2.0, tf.bfloat16) - b

    found = [
        normal(5, 33).astype(F16),
        normal(5, 33, seed=1).astype(BF16),
        normal(5, 33, seed=2),
        normal(5, 33, seed=3).astype(F64),
    ]
    theirs = arrays(tf.function(function)(*map(tf.constant, found)))
    ours = arrays(tf_stitch.function(function)(*map(tf.constant, found)))
    for mine, other, epsilon in zip(ours, theirs, (2**-10, 2**-9, 2**-6), strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine.astype(F64), other.astype(F64), rtol=epsilon, atol=epsilon)


# -- integers --------------------------------------------------------------------------------------------------


def test_integers_wrap_before_they_are_widened() -> None:
    a = np.full([37], 2**31 - 1, I32)
    (found,) = same(lambda a: tf.cast(a + a, tf.int64) // 2, a)
    np.testing.assert_array_equal(found, -1)
    (found,) = same(lambda a: tf.math.squared_difference(a, 1) + 0, np.full([37], -(2**31), I32))
    np.testing.assert_array_equal(found, 1)
    same(lambda a: (a * a + 1, -a - 5, tf.abs(a) * 2), np.array([2**31 - 1, -(2**31), 65536, -7] * 5, I32))
    same(lambda a: (a * a + 1, -a - 5, tf.abs(a) * 2), np.array([2**63 - 1, -(2**63), 2**33, -7] * 5, I64))


def test_narrow_integers_wrap_where_they_are_not_ours() -> None:
    b = np.array([12, 7, 20, 15, 11] * 5, I8)
    (found,) = same(lambda b: tf.where(b * b < 0, tf.abs(b * b), b * b), b)
    np.testing.assert_array_equal(found[:5], [112, 49, 112, 31, 121])
    (found,) = same(lambda x: tf.cast(x, tf.uint8), np.array([-1.0, 256.0, 300.7], F32))
    np.testing.assert_array_equal(found, [255, 0, 44])


def test_sums_and_means_of_integers() -> None:
    x = np.array([[2**31 - 1] * 37, [-(2**31)] * 37, [1] * 37], I32)
    mean, _, _ = same(lambda x: (tf.reduce_mean(x, 1), tf.reduce_sum(x, 1) * 1, tf.reduce_max(x, 1) - 1), x)
    assert mean[0] == 2**31 - 1
    same(lambda x: tf.reduce_mean(x, 1) + 0, np.array([[-7, 2, 2], [7, -2, -2]] * 4, I32))


def test_floors_of_integers_and_floats() -> None:
    x = np.array([-7, -1, 0, 1, 7, -(2**31)] * 6, I32)
    same(
        lambda x: (x // 3 + 0, x % 3 * 1, x // -3 + 0, x % -3 * 1, tf.truncatediv(x, 3) + 0, tf.truncatemod(x, -3) + 0),
        x,
    )
    (found,) = same(lambda x: x // -1 + 0, x)
    assert found[5] == -(2**31)
    y = np.array([-7.5, -0.0, 0.0, 1.5, 7.0, INF, NAN] * 6, F32)
    same(lambda y: (y // 3.0 + 0.0, tf.math.floormod(y, 3.0) + 0.0, tf.math.floormod(y, -3.0) + 0.0), y)


def test_division_by_zero_raises_where_tensorflow_raises() -> None:
    x, y = np.array([3, 4], I32), np.array([1, 0], I32)
    raises(lambda x, y: x * 2 // y + 1, x, y, match="[Dd]ivision by zero")
    raises(lambda x, y: x * 2 % y + 1, x, y, match="[Dd]ivision by zero")
    raises(lambda x, y: tf.pow(x * 2, -y) + 1, x, y, match="negative integer powers")


def test_a_division_that_is_guarded_by_a_select() -> None:
    a, b = np.array([1, 4] * 20, I32), np.array([0, 2] * 20, I32)
    (found,) = same(lambda a, b: tf.where(b == 0, 0, a // tf.where(b == 0, 1, b)), a, b)
    np.testing.assert_array_equal(found[:2], [0, 2])
    x, y = normal(5, 33), np.where(normal(5, 33, seed=1) > 0, 1, 0).astype(F32)
    same(lambda x, y: tf.where(y == 0.0, 0.0, x / tf.where(y == 0.0, 1.0, y)) * 2.0, x, y)


def test_an_error_that_nobody_waits_for_is_not_raised() -> None:
    def function(x: Any) -> Any:
        _ = 1 // tf.cast(x, tf.int32)
        return tf.reduce_sum(x * 2.0 + 1.0)

    (found,) = same(function, np.zeros(1, F32))
    assert found == 1.0


# -- shapes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, I32, F64])
def test_reductions_of_no_elements(dtype: Any) -> None:
    def function(x: Any) -> Any:
        x = x * 2
        return [f(x, 1) for f in (tf.reduce_sum, tf.reduce_max, tf.reduce_min, tf.reduce_prod)]

    for shape in ((2, 0), (0, 3), (0, 0)):
        for signature in (None, [tf.TensorSpec([None, None], dtype)], [tf.TensorSpec([None, shape[1]], dtype)]):
            results = same(function, np.zeros(shape, dtype), signature=signature)
            if shape == (2, 0):
                np.testing.assert_array_equal(results[0], [0, 0])
                np.testing.assert_array_equal(results[3], [1, 1])


def test_means_and_truths_of_no_elements() -> None:
    (mean, _) = same(lambda x: (tf.reduce_mean(x * 2.0, 1), tf.reduce_logsumexp(x * 2.0, 1)), np.zeros((2, 0), F32))
    assert np.isnan(mean).all()
    (every, some) = same(lambda x: (tf.reduce_all(x > 0.0, 1), tf.reduce_any(x > 0.0, 1)), np.zeros((2, 0), F32))
    assert every.all()
    assert not some.any()
    (mean,) = same(lambda x: tf.reduce_mean(x * 2, 1), np.zeros((2, 0), I32))
    np.testing.assert_array_equal(mean, [0, 0])


def test_a_dim_of_one_against_none() -> None:
    def function(x: Any, y: Any) -> Any:
        total = x * 2.0 + y
        return total, tf.reduce_sum(total, 0), tf.reduce_sum(total, 1)

    (total, columns, rows) = same(function, np.zeros((1, 3), F32), np.zeros((0, 1), F32))
    assert (total.shape, columns.shape, rows.shape) == ((0, 3), (3,), (0,))
    np.testing.assert_array_equal(columns, 0)


def test_unknown_dims_that_turn_out_to_be_one_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two unknown dims are taken to be equal; where one is 1 at run time, the fallback runs, and is right."""
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    signature = [tf.TensorSpec([None, None]), tf.TensorSpec([None, None])]
    function = lambda x, y: tf.tanh(x) * y + x  # noqa: E731
    plain, stitched = (
        f(function, input_signature=signature, autograph=False) for f in (tf.function, tf_stitch.function)
    )
    for one, other in (
        ((3, 4), (3, 4)),
        ((3, 4), (1, 4)),
        ((1, 4), (3, 4)),
        ((3, 1), (3, 4)),
        ((1, 1), (0, 4)),
        ((1, 1), (1, 1)),
    ):
        x, y = tf.constant(normal(*one)), tf.constant(normal(*other, seed=1))
        assert_near(stitched(x, y).numpy(), plain(x, y).numpy())
    with pytest.raises(tf.errors.OpError):
        stitched(tf.constant(normal(3, 4)), tf.constant(normal(2, 4)))


def test_a_function_of_any_rank() -> None:
    signature = [tf.TensorSpec(None)]
    function = lambda x: tf.nn.relu(x * 2.0 + 1.0) - tf.reduce_sum(x)  # noqa: E731
    plain, stitched = (
        f(function, input_signature=signature, autograph=False) for f in (tf.function, tf_stitch.function)
    )
    for shape in ((3,), (2, 3), (0, 3), (2, 0), (1, 1, 1, 4), ()):
        assert_near(stitched(tf.constant(normal(*shape))).numpy(), plain(tf.constant(normal(*shape))).numpy())


def test_ragged_rows() -> None:
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    for make in (tf.function, tf_stitch.function):
        found = make(lambda r: tf.reduce_sum(r * 2.0, axis=1))(ragged)
        np.testing.assert_array_equal(found, [6, 0, 6])


def test_scalars() -> None:
    for function in (lambda x: tf.reduce_sum(x) * 2.0 + 1.0, lambda x: tf.reduce_max(x, keepdims=True) + x * 2.0):
        (found,) = same(function, np.float32(3.0))
        assert found.shape == ()


def test_complex_numbers_are_left_alone() -> None:
    (found,) = same(lambda x: tf.transpose(x, [0], conjugate=True) + 1, np.array([1j], np.complex64))
    np.testing.assert_array_equal(found, [1 - 1j])


def test_the_size_of_a_dim_is_that_of_each_call() -> None:
    def function(x: Any) -> Any:
        n = tf.shape(x)[0]
        weights = tf.linspace(1.0, 2.0, n)
        return tf.tanh(x) * weights[:, tf.newaxis] / tf.cast(tf.size(x), tf.float32) + tf.cast(n, tf.float32)

    signature = [tf.TensorSpec([None, 5])]
    plain, stitched = (
        f(function, input_signature=signature, autograph=False) for f in (tf.function, tf_stitch.function)
    )
    for n in (3, 6, 3, 1, 50):
        x = tf.constant(normal(n, 5))
        assert_near(stitched(x).numpy(), plain(x).numpy())
    assert stitched.experimental_get_tracing_count() == 1


def test_one_function_at_many_shapes_and_dtypes() -> None:
    function = lambda x: tf.nn.relu(x * 2 + 1) - tf.reduce_max(x, -1, keepdims=True)  # noqa: E731
    plain, stitched = (f(function, autograph=False) for f in (tf.function, tf_stitch.function))
    for shape in ((3, 3), (4, 4), (3, 4), (4, 3), (2, 3, 4)):
        for dtype in (F32, F64, I32, F16):
            x = tf.constant((normal(*shape) * 4).astype(dtype))
            assert_near(stitched(x).numpy(), plain(x).numpy())


def test_slices_stay_inside() -> None:
    """Positions of an unknown axis: right where they exist, TensorFlow's error where they do not."""
    signature = [tf.TensorSpec([None, None])]
    first = tf_stitch.function(lambda x: tf.nn.relu(x[:, 0] * 2.0) + 1.0, input_signature=signature, autograph=False)
    x = normal(5, 3)
    np.testing.assert_array_equal(first(tf.constant(x)), np.maximum(x[:, 0] * 2, 0) + 1)
    with pytest.raises(tf.errors.OpError):
        first(tf.constant(normal(5, 0)))


def test_slices_past_the_end_are_clamped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    signature = [tf.TensorSpec([None, None]), tf.TensorSpec([16, 3])]

    def function(x: Any, table: Any) -> Any:
        """The first four columns; and as many rows of a table as there are rows."""
        return tf.nn.relu(x[:, :4] * 2.0) + 1.0, table[: tf.shape(x)[0]] * 2.0 + 1.0

    plain, stitched = (
        f(function, input_signature=signature, autograph=False) for f in (tf.function, tf_stitch.function)
    )
    for rows, columns in ((5, 9), (5, 4), (5, 2), (16, 0), (20, 9), (0, 9)):
        x, table = tf.constant(normal(rows, columns)), tf.constant(normal(16, 3, seed=1))
        for mine, other in zip(stitched(x, table), plain(x, table), strict=True):
            assert_near(mine.numpy(), other.numpy())


# -- errors that the user put there ----------------------------------------------------------------------------


def test_checks_are_still_made() -> None:
    raises(
        lambda x: tf.debugging.check_numerics(x * 2.0 + 1.0, "a message of mine") * 2.0,
        np.array([NAN], F32),
        match="a message of mine",
    )
    same(lambda x: tf.debugging.check_numerics(x * 2.0 + 1.0, "a message of mine") * 2.0, normal(5))

    def asserted(x: Any) -> Any:
        y = tf.exp(-x) + 1.0
        with tf.control_dependencies([tf.debugging.assert_greater(x, 0.0, message="not that")]):
            return tf.math.log(x) * y + 1.0

    raises(asserted, np.array([1.0, -1.0], F32), match="not that")
    same(asserted, np.abs(normal(5, 33)) + 0.1, ulps=8)


# -- state and loops -------------------------------------------------------------------------------------------


def test_tensor_arrays_grow_in_loops() -> None:
    def function(n: Any, x: Any) -> Any:
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        flags = tf.TensorArray(tf.bool, size=0, dynamic_size=True)

        def body(i: Any, array: Any, flags: Any) -> Any:
            value = tf.tanh(x * tf.cast(i + 1, tf.float32)) + 0.5
            return i + 1, array.write(i, value), flags.write(i, tf.reduce_all(value > -1.0))

        _, array, flags = tf.while_loop(lambda i, *_: i < n, body, (0, array, flags))
        return array.stack() * 2.0 - 1.0, flags.stack()

    for n in (1, 2, 7):
        _, flags = same(function, np.int32(n), normal(5, 33), ulps=4)
        assert flags.tolist() == [True] * n


def test_argmax_and_ties() -> None:
    x = np.array([4.0, 5.5, NAN, 3.0, 1.0, 5.5] * 6, F32)
    same(lambda x: (tf.argmax(x * 1.0 + 0.0), tf.argmin(x * 1.0 + 0.0)), x)


def test_gradients_of_a_maximum() -> None:
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_max(x * 1.0, -1)
        return tape.gradient(y, x)

    same(gradient, np.array([[1, 2, 2], [1, 3, 3], [0, 0, 0]], F32))
    same(gradient, np.array([[1, NAN, 2]], F32))


@pytest.mark.slow
def test_more_elements_than_an_int_can_count() -> None:
    """2 GB of bools: offsets above 2**31."""
    psutil = pytest.importorskip("psutil")
    if psutil.virtual_memory().available < 7 << 30:
        pytest.skip("needs 7 GB of memory")
    size = 2**31 + 8
    function = tf_stitch.function(
        lambda x, y: tf.logical_not(tf.math.logical_xor(tf.logical_not(x), y)), autograph=False
    )
    yes = tf.constant(True)
    assert kernel_calls(lambda: function(tf.ones([64], tf.bool), yes)) == 1
    found = function(tf.ones([size], tf.bool), yes)
    assert not found[0]
    assert not found[size - 1]
    assert not tf.reduce_any(found)


# -- dims that TensorFlow's shape inference calls equal, and that differ ------------------------------------------


def unknown_spread(x: Any, by: Any) -> Any:
    return tf.tanh(tf.raw_ops.SpaceToBatchND(input=x, block_shape=[2, 2], paddings=by)) * 2.0 + 1.0


def unknown_gather(x: Any, by: Any) -> Any:
    return tf.tanh(tf.raw_ops.BatchToSpaceND(input=x, block_shape=[2, 2], crops=by)) * 2.0 + 1.0


def unknown_split(x: Any, by: Any) -> Any:
    a, b = tf.split(x, by, axis=0, num=2)
    return tf.concat([tf.tanh(a) * 2.0, tf.exp(b) + 1.0], 0)


def unknown_partition(x: Any, by: Any) -> Any:
    a, b = tf.dynamic_partition(x, by, 2)
    return tf.concat([tf.tanh(a) * 2.0, tf.exp(b) + 1.0], 0)


@pytest.mark.parametrize(
    ("function", "shape", "by"),
    [
        (unknown_spread, (1, 6, 9, 3), [[0, 0], [0, 1]]),
        (unknown_gather, (4, 3, 5, 3), [[0, 0], [0, 1]]),
        (unknown_split, (7, 9), [2, 5]),
        (unknown_split, (7, 9), [0, 7]),
        (unknown_partition, (7, 9), [0, 1, 1, 1, 0, 1, 1]),
        (unknown_partition, (0, 9), np.zeros(0, I32)),
    ],
)
def test_one_unknown_dim_in_place_of_several(function: Callable[..., Any], shape: tuple[int, ...], by: Any) -> None:
    """Where they know nothing, the shape functions of these ops put the same unknown dim for dims that differ."""
    x, by = normal(*shape), np.array(by, I32)
    same(function, x, by, signature=[tf.TensorSpec([None] * x.ndim), tf.TensorSpec([None] * by.ndim, I32)], ulps=4)
