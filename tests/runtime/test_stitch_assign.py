"""StitchAssign: a sum is assigned, and nothing that others have added in the meantime is lost."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tf_stitch.runtime.stitch_op import ops

DTYPES = [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64]


def assign(variable: Any, read: Any, value: Any) -> None:
    ops().stitch_assign(resource=variable.handle, read=read, value=value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_variable_takes_the_sum_over(dtype: Any) -> None:
    variable = tf.Variable(tf.cast([1, 2, 3], dtype))
    read = variable.read_value()
    assign(variable, read, read + tf.cast([4, 5, 6], dtype))
    np.testing.assert_array_equal(variable.numpy(), np.array([5, 7, 9], dtype.as_numpy_dtype))
    np.testing.assert_array_equal(read.numpy(), np.array([1, 2, 3], dtype.as_numpy_dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_still_read", [False, True])
def test_what_was_added_since_the_read_is_kept(dtype: Any, is_still_read: bool) -> None:
    variable = tf.Variable(tf.cast([1, 2, 3], dtype))
    read = variable.read_value()
    value = read + tf.cast([4, 5, 6], dtype)
    variable.assign_add(tf.cast([10, 0, 10], dtype))
    between = variable.read_value() if is_still_read else None
    assign(variable, read, value)
    np.testing.assert_array_equal(variable.numpy(), np.array([15, 7, 19], dtype.as_numpy_dtype))
    if between is not None:
        np.testing.assert_array_equal(between.numpy(), np.array([11, 2, 13], dtype.as_numpy_dtype))


def test_what_nobody_else_has_assigned_gets_the_sum_to_the_last_bit() -> None:
    """1e8 + (1 - 1e8) would be 0; -0 and NaN are themselves."""
    variable = tf.Variable([1e8, 0.0, np.nan, 3.0])
    read = variable.read_value()
    value = tf.constant([1.0, -0.0, np.nan, 4.0])
    variable.assign(tf.constant([1e8, 0.0, np.nan, 13.0]))
    assign(variable, read, value)
    assert variable.numpy().tobytes() == np.array([1.0, -0.0, np.nan, 14.0], np.float32).tobytes()


def test_a_variable_that_is_scattered_to_is_added_to_in_place() -> None:
    """Its reads are copies."""
    variable = tf.Variable([1.0, 2.0, 3.0])
    variable.scatter_add(tf.IndexedSlices(tf.constant([1.0]), tf.constant([0])))
    read = variable.read_value()
    assign(variable, read, read + 1.0)
    variable.scatter_add(tf.IndexedSlices(tf.constant([10.0]), tf.constant([1])))
    assign(variable, read, read + 1.0)
    np.testing.assert_array_equal(variable.numpy(), [4.0, 14.0, 5.0])


def test_an_empty_variable() -> None:
    variable = tf.Variable(tf.zeros([0, 3]))
    assign(variable, variable.read_value(), tf.zeros([0, 3]))
    assert variable.shape == (0, 3)


def test_a_sum_of_another_shape_is_an_error() -> None:
    variable = tf.Variable([1.0, 2.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape \[1\] is assigned to a variable of shape \[2\]"):
        assign(variable, variable.read_value(), tf.constant([1.0]))


def test_a_variable_without_a_value_is_an_error() -> None:
    """The same as of AssignSub."""
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="never assigned")
    with pytest.raises(tf.errors.NotFoundError, match="never assigned"):
        ops().stitch_assign(resource=handle, read=tf.zeros([2]), value=tf.zeros([2]))


def test_steps_of_several_threads_all_count() -> None:
    """As AssignSub does it: each step takes a whole number off, so that the order cannot matter."""
    variable = tf.Variable(tf.zeros([64, 33]))

    @tf_stitch.function
    def step(x: Any) -> None:
        variable.assign_sub(tf.tanh(x * 0.0) + tf.exp(variable * 0.0))  # 1, from a read of the variable

    x = tf.constant(np.ones((64, 33), np.float32))
    step(x)
    threads = [threading.Thread(target=lambda: [step(x) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(variable.numpy(), np.full((64, 33), -201.0, np.float32))
