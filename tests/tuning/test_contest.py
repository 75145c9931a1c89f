"""What makes two contests equal, and the operands that are made up for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.report import by_hand
from tf_stitch.frontend import explainable
from tf_stitch.ir.types import DType
from tf_stitch.tuning.contest import BATCH, OTHER, Contest, Operand, Unraceable, contest_of


def contest(stitched: Any, dims: dict[str, int] | None = None, cluster: int = 0) -> Contest:
    made = stitched.clusters[cluster]
    return contest_of(stitched.graph, made, "key", dims)


def of_function(function: Any, *specs: tf.TensorSpec) -> Any:
    (graph,) = explainable.of_function(function, specs, {}).graphs
    (stitched,) = by_hand.stitched(graph)
    return stitched


def test_names_do_not_count_and_nodes_do():
    one, other = by_hand.stitched(by_hand.layer_norm(), by_hand.layer_norm("block_7/"))
    assert contest(one) == contest(other)
    assert contest(one).key == contest(other).key
    exact = by_hand.layer_norm()
    constants = {v: np.float32(1e-5) if v.node == "epsilon" else c for v, c in exact.constants.items()}
    (changed,) = by_hand.stitched(replace(exact, constants=constants))
    assert contest(changed).nodes != contest(one).nodes


def test_the_same_kernel_for_other_nodes_is_another_contest():
    spec = tf.TensorSpec([32, 64])
    square = of_function(lambda x: tf.sqrt(tf.square(x) + 1.0), spec)
    product = of_function(lambda x: tf.sqrt(tf.multiply(x, x) + 1.0), spec)
    assert contest(square).nodes != contest(product).nodes


def test_unknown_dims_have_defaults_and_take_what_is_known():
    (stitched,) = by_hand.stitched(by_hand.layer_norm())
    assert contest(stitched).sizes == f"f32[{BATCH}, 64], f32[64]"
    assert contest(stitched, {"batch": 33}).sizes == "f32[33, 64], f32[64]"
    spec = tf.TensorSpec([None, None, 48])
    assert contest(of_function(lambda x: tf.exp(x) * 2.0 + 1.0, spec)).sizes == f"f32[{BATCH}, {OTHER}, 48]"


def test_known_sizes_of_a_general_kernel():
    """It is made for any batch and any width; the contest is about these."""
    stitched = of_function(lambda x: tf.nn.softmax(x * 2.0 + 1.0), tf.TensorSpec([40, 768]))
    assert contest(stitched).sizes == "f32[40, 768]"


def test_operands_that_hold_shapes_fit_the_others():
    def merged(x: tf.Tensor) -> tf.Tensor:
        y = tf.exp(x) * 2.0
        return tf.reshape(y, [tf.shape(x)[0] * tf.shape(x)[1], 48]) + 1.0

    found = contest(of_function(merged, tf.TensorSpec([None, None, 48])))
    shapes = [o for o in found.operands if o.content is not None]
    for operand in shapes:
        assert operand.array(np.random.default_rng(0)).tolist() == [BATCH * OTHER, 48]


def test_no_contest_without_a_dtype_or_within_reason():
    (stitched,) = by_hand.stitched(by_hand.layer_norm())
    with pytest.raises(Unraceable, match="MiB"):
        contest(stitched, {"batch": 1 << 23})


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16, DType.I64, DType.BOOL])
def test_arrays(dtype):
    made = Operand(dtype, (50, 3)).array(np.random.default_rng(0))
    assert made.dtype == dtype.numpy
    assert made.shape == (50, 3)
    if dtype is DType.I64:
        assert made.min() >= 1  # a divisor, perhaps
        assert made.max() <= 7
    else:
        assert len(np.unique(made)) > 1
    assert Operand(dtype, ()).array(np.random.default_rng(0)).shape == ()


def test_indices_are_in_range():
    def looked_up(table: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.gather(table, indices)) + 1.0

    for rows in (3, 5000):
        found = contest(of_function(looked_up, tf.TensorSpec([rows, 48]), tf.TensorSpec([2000], tf.int32)))
        (indices,) = (o.array(np.random.default_rng(0)) for o in found.operands if o.dtype is DType.I32)
        assert indices.min() >= 0
        assert rows // 2 < indices.max() < rows


def test_a_product_of_dims_has_the_factors_that_the_shapes_say():
    """f32[b*s, 48] is made a f32[b, s, 48] by a shape that the kernel does not read and the nodes do."""

    def split(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        flat = tf.matmul(tf.reshape(x, [-1, 48]), weights, transpose_b=True)
        return tf.exp(tf.reshape(flat, tf.shape(x))) * x + 1.0

    found = contest(of_function(split, tf.TensorSpec([None, None, 48]), tf.TensorSpec([48, 48])))
    shapes = {o.shape for o in found.operands if o.content is None}
    assert shapes == {(BATCH * OTHER, 48), (BATCH, OTHER, 48)}
    (held,) = (o.array(np.random.default_rng(0)) for o in found.operands if o.content is not None)
    assert held.tolist() == [BATCH, OTHER, 48]
