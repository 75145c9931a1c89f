"""Strided slices and broadcasts of any form, against TensorFlow and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.ops.oracle import Sample, body_of, evaluated
from tf_stitch.errors import Unsupported
from tf_stitch.ir.types import Dim, DType, TensorType
from tf_stitch.runtime.reference import GuardFailed

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
unhurried = settings(max_examples=200, deadline=None)


@st.composite
def strided_slices(draw: Any) -> Sample:
    shape = draw(shapes)
    count = draw(st.integers(0, 5))
    numbers = st.lists(st.integers(-7, 7), min_size=count, max_size=count)
    strides = st.lists(st.sampled_from([1, 1, 1, 2, 3, -1, -2]), min_size=count, max_size=count)
    masks = {name: draw(st.integers(0, 2**count - 1)) for name in MASKS}
    if draw(st.booleans()):
        masks["ellipsis_mask"] &= -masks["ellipsis_mask"]  # at most one
    value = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    spec = [np.array(draw(s), np.int32) for s in (numbers, numbers, strides)]
    return Sample("StridedSlice", (value, *spec), masks)


def kernel(sample: Sample) -> np.ndarray[Any, Any] | None:
    """TensorFlow's result; None where it raises."""
    value, begin, end, strides = sample.operands
    try:
        result = tf.raw_ops.StridedSlice(
            input=tf.constant(value), begin=begin, end=end, strides=strides, **sample.attributes
        )
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return None
    return result.numpy()


@unhurried
@given(strided_slices())
def test_strided_slices_are_tensorflow_s(sample: Sample) -> None:
    wanted = kernel(sample)
    try:
        body, _ = body_of(sample)
    except Unsupported:
        assert wanted is None, f"{sample} {sample.operands}"
        return
    assert wanted is not None, f"{sample} {sample.operands}"
    np.testing.assert_array_equal(evaluated(body, sample)[0], wanted)


@unhurried
@given(strided_slices(), st.sets(st.integers(0, 3)))
def test_strided_slices_of_unknown_dims(sample: Sample, unknown: set[int]) -> None:
    """With some dims unknown, a slice is right, or refused, or caught by a guard."""
    wanted = kernel(sample)
    assume(wanted is not None)
    shape = sample.operands[0].shape
    dims = tuple(Dim.symbol(f"n{e}") if a in unknown else Dim(e) for a, e in enumerate(shape))
    rest = [TensorType(DType.I32, (Dim(a.size),)) for a in sample.operands[1:]]
    try:
        body, _ = body_of(sample, [TensorType(DType.I32, dims), *rest])
        result = evaluated(body, sample)[0]
    except (Unsupported, GuardFailed):
        return
    np.testing.assert_array_equal(result, wanted)


@unhurried
@given(shapes, shapes, st.sets(st.tuples(st.booleans(), st.integers(0, 3))))
@example((1, 3), (0, 1), set())
@example((1, 3), (0, 1), {(True, 0)})
def test_broadcasts(left: tuple[int, ...], right: tuple[int, ...], unknown: set[tuple[bool, int]]) -> None:
    """A broadcast is NumPy's, or refused; where some dims are unknown, a guard may catch it."""
    operands = tuple(np.arange(np.prod(s, dtype=int), dtype=np.int32).reshape(s) for s in (left, right))
    sample = Sample("AddV2", operands)
    types = [
        TensorType(
            DType.I32,
            tuple(
                Dim.symbol(f"{'xy'[side]}{a}") if (bool(side), a) in unknown else Dim(e) for a, e in enumerate(shape)
            ),
        )
        for side, shape in enumerate((left, right))
    ]
    try:
        wanted = np.add(*operands)
    except ValueError:
        wanted = None
    try:
        result = evaluated(body_of(sample, types)[0], sample)[0]
    except Unsupported:
        assert wanted is None or any(d.symbols for t in types for d in t.dims)
    except GuardFailed:
        assert any(d.symbols for t in types for d in t.dims)
    else:
        np.testing.assert_array_equal(result, wanted)


@unhurried
@given(shapes, st.lists(st.integers(-1, 12), max_size=4))
def test_reshapes(shape: tuple[int, ...], target: list[int]) -> None:
    value = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    sample = Sample("Reshape", (value, np.array(target, np.int32)))
    try:
        wanted = tf.raw_ops.Reshape(tensor=tf.constant(value), shape=tf.constant(target, tf.int32)).numpy()
    except tf.errors.InvalidArgumentError:
        wanted = None
    try:
        body, _ = body_of(sample)
    except Unsupported:
        assert wanted is None or (0 in target and -1 in target)
        return
    np.testing.assert_array_equal(evaluated(body, sample)[0], wanted)
