"""Ops that expand to several steps. f16 and bf16 run in f32 throughout and are rounded once, at the end.

Batch normalisation is in `normalization`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tf_stitch.ir.types import ALL, FLOATS, NUMBERS, ONE
from tf_stitch.ops.opdef import Kind, OpDef, Operands, axis_of, define_op, with_halves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.ir.body import BodyBuilder


def channels_first(x: Operands) -> bool:
    """Whether `data_format` puts channels right behind the batch: NCHW, NCDHW."""
    return str(x.attribute("data_format", "NHWC")).startswith("NC")


def channel_axis(b: BodyBuilder, x: Operands, value: int) -> int:
    return 1 if channels_first(x) else len(b.shape(value)) - 1


def all_but_channels(b: BodyBuilder, x: Operands, value: int) -> list[int]:
    """The axes that statistics of the channels of `value` are taken over."""
    return [a for a in range(len(b.shape(value))) if a != channel_axis(b, x, value)]


def along_channels(b: BodyBuilder, x: Operands, value: int, vector: int) -> int:
    """`vector` with one element a channel of `value`, in a shape that broadcasts to it.

    Raises:
      Unsupported: where it has not as many elements as there are channels.
    """
    shape = b.shape(value)
    axis = channel_axis(b, x, value)
    (length,) = b.shape(vector)
    b.join(length, shape[axis], f"{x.node.op}'s channels")
    return b.reshape(vector, tuple(length if a == axis else ONE for a in range(len(shape))))


def _bias_add(b: BodyBuilder, x: Operands) -> int:
    if b.type(x[0]).rank in (0, 1):
        raise x.unsupported("a tensor of rank below 2")
    return b.apply("add", x[0], along_channels(b, x, x[0], x[1]))


def _shifted(b: BodyBuilder, x: Operands) -> int:
    """The logits in the compute dtype, less the greatest of their row."""
    logits = b.widen(x[0])
    if not b.type(logits).rank:
        raise x.unsupported("a scalar")
    return b.apply("sub", logits, b.reduce("max", logits, (-1,), keep_dims=True))


def _softmax(b: BodyBuilder, x: Operands) -> int:
    exponentials = b.apply("exp", _shifted(b, x))
    total = b.reduce("sum", exponentials, (-1,), keep_dims=True)
    return b.convert(b.apply("div", exponentials, total), b.dtype(x[0]))


def _log_softmax(b: BodyBuilder, x: Operands) -> int:
    shifted = _shifted(b, x)
    total = b.reduce("sum", b.apply("exp", shifted), (-1,), keep_dims=True)
    return b.convert(b.apply("sub", shifted, b.apply("log", total)), b.dtype(x[0]))


def _cross_entropy(b: BodyBuilder, x: Operands) -> Sequence[int]:
    """The loss of each row, and the gradient of the logits; `shifted` as in a log-softmax.

    loss = sum(labels * (log(sum(exp(shifted))) - shifted)): a label of 0 where the logit is -inf gives NaN, as in
    core/kernels/xent_op.h.
    """
    shape = b.common_shape(x[0], x[1])
    if len(shape) != 2:
        raise x.unsupported("logits and labels that are not of rank 2 together")
    logits, labels = (b.broadcast(b.widen(x[i]), shape) for i in range(2))
    shifted = b.apply("sub", logits, b.reduce("max", logits, (1,), keep_dims=True))
    exponentials = b.apply("exp", shifted)
    total = b.reduce("sum", exponentials, (1,), keep_dims=True)
    losses = b.apply("mul", labels, b.apply("sub", b.apply("log", total), shifted))
    gradient = b.apply("sub", b.apply("div", exponentials, total), labels)
    return [b.convert(b.reduce("sum", losses, (1,)), b.dtype(x[0])), b.convert(gradient, b.dtype(x[0]))]


def _sparse_cross_entropy(b: BodyBuilder, x: Operands) -> Sequence[int]:
    """As `_cross_entropy`, each label the number of a class; what is off the label counts as 0, NaN or not.

    Of a label that no class has, TensorFlow's kernel for a CPU raises, as the guard on labels has it; that for GPUs
    gives NaN for all of the row: core/kernels/sparse_xent_op.h.
    """
    logits = b.shape(x[0])
    if len(logits) != 2 or len(b.shape(x[1])) != 1:
        raise x.unsupported("logits that are no matrix, or labels that are no vector")
    rows, classes = logits
    b.require(ONE, classes, "SparseSoftmaxCrossEntropyWithLogits of no classes, which raises")
    b.require_indices(x[1], classes)
    shifted = _shifted(b, x)
    dtype = b.dtype(shifted)
    zero, one, nan = (b.constant(number, dtype) for number in (0, 1, math.nan))
    exponentials = b.apply("exp", shifted)
    total = b.reduce("sum", exponentials, (1,), keep_dims=True)
    label, kind = b.reshape(x[1], (rows, ONE)), b.dtype(x[1])
    below = b.apply("less", label, b.extent(classes, kind))
    there = b.apply("logical_and", b.apply("greater_equal", label, b.constant(0, kind)), below)
    elsewhere = b.apply("select", there, zero, nan)
    chosen = b.apply("equal", label, b.iota(classes, kind))
    losses = b.apply("select", chosen, b.apply("sub", b.apply("log", total), shifted), elsewhere)
    labels = b.apply("select", chosen, one, elsewhere)
    gradient = b.apply("sub", b.apply("div", exponentials, total), labels)
    return [b.convert(b.reduce("sum", losses, (1,)), b.dtype(x[0])), b.convert(gradient, b.dtype(x[0]))]


def _one_hot(b: BodyBuilder, x: Operands) -> int:
    """`on` where an index is the place along the new axis, `off` elsewhere: all along it, if there is no such place."""
    shape = b.shape(x[0])
    (depth,) = x.dims(1)
    if depth.coefficient < 0:
        raise x.unsupported("a negative depth")
    axis = axis_of(int(x.attribute("axis", -1)), len(shape) + 1, "OneHot")
    along = tuple(ONE for _ in shape[axis:])
    places = b.reshape(b.iota(depth, b.dtype(x[0])), (depth, *along))
    chosen = b.apply("equal", b.reshape(x[0], (*shape[:axis], ONE, *shape[axis:])), places)
    return b.apply("select", chosen, x[2], x[3])


def _bias_add_grad(b: BodyBuilder, x: Operands) -> int:
    if len(b.shape(x[0])) < (3 if channels_first(x) else 2):
        raise x.unsupported("a tensor of too low a rank")
    return b.reduce("sum", x[0], all_but_channels(b, x, x[0]))


_LAYOUTS = ({"data_format": "NHWC"}, {"data_format": "NCHW"})
_ONCE = "f16 and bf16: computed in f32, rounded once"
define_op(
    OpDef(("BiasAdd",), Kind.COMPOSITE, _bias_add, samples=_LAYOUTS, dtypes=NUMBERS),
    OpDef(("BiasAddV1",), Kind.COMPOSITE, _bias_add, dtypes=NUMBERS),
    OpDef(("Softmax",), Kind.COMPOSITE, _softmax, dtypes=with_halves(FLOATS), notes=_ONCE),
    OpDef(("LogSoftmax",), Kind.COMPOSITE, _log_softmax, dtypes=with_halves(FLOATS), notes=_ONCE),
    OpDef(("SoftmaxCrossEntropyWithLogits",), Kind.COMPOSITE, _cross_entropy, dtypes=with_halves(FLOATS), notes=_ONCE),
    OpDef(
        ("SparseSoftmaxCrossEntropyWithLogits",),
        Kind.COMPOSITE,
        _sparse_cross_entropy,
        outside=(1,),
        dtypes=with_halves(FLOATS),
        notes=f"{_ONCE}; the labels come from outside of the kernel",
    ),
    OpDef(("OneHot",), Kind.COMPOSITE, _one_hot, (1,), samples=tuple({"axis": a} for a in (-1, 0, 1)), dtypes=ALL),
    OpDef(
        ("BiasAddGrad",),
        Kind.COMPOSITE,
        _bias_add_grad,
        samples=_LAYOUTS,
        dtypes=NUMBERS,
        notes="f16 and bf16 accumulate in f32",
    ),
)
