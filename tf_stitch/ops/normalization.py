"""Batch normalisation and its gradient, in f32 whatever the dtype of x: core/kernels/fused_batch_norm_op.cc.

training                                  inference
mean      = sum(x) / n                    mean, variance: operands
variance  = sum((x - mean)^2) / n
y         = (x - mean) * (rsqrt(variance + epsilon) * scale) + offset        both

n: the elements of a channel. The variance that leaves the op, to be averaged, is `variance * n / (n - 1)`; the one
that is kept for the gradient is not. The gradient, with c = rsqrt(variance + epsilon), d = dy - mean(dy):

doffset = sum(dy)        dscale = sum(dy * (x - mean)) * c
dx = scale * c * (d - (x - mean) * c^2 * sum(dy * (x - mean)) / n)           training
dx = dy * (scale * c)                                                        inference
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tf_stitch.ir.types import Dim, DType, product
from tf_stitch.ops.composite import all_but_channels, along_channels, channel_axis, channels_first
from tf_stitch.ops.opdef import Kind, OpDef, Operands, define_op, same_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.ir.body import BodyBuilder


@dataclass(frozen=True)
class _Channels:
    """Steps that know which axis of `value`, an image or a video, is that of the channels."""

    b: BodyBuilder
    x: Operands
    value: int

    def sum(self, value: int) -> int:
        """For each channel; the other axes stay as dims of 1."""
        return self.b.reduce("sum", value, all_but_channels(self.b, self.x, self.value), keep_dims=True)

    def mean(self, value: int) -> int:
        return self.over_count(self.sum(value))

    def over_count(self, total: int) -> int:
        return self.b.apply("div", total, self.b.extent(self.count, DType.F32))

    @property
    def count(self) -> Dim:
        """The number of elements of a channel."""
        shape = self.b.shape(self.value)
        return product(shape[a] for a in all_but_channels(self.b, self.x, self.value))

    def spread(self, operand: int) -> int:
        """An operand of one element a channel, in f32 and a shape that broadcasts."""
        return self.b.convert(along_channels(self.b, self.x, self.value, operand), DType.F32)

    def vector(self, value: int) -> int:
        """A value of one element a channel as a vector."""
        return self.b.reshape(value, (self.b.shape(value)[channel_axis(self.b, self.x, self.value)],))

    def unless_empty(self, value: int, otherwise: float) -> int:
        """`value`, or `otherwise` where there are no elements at all: TensorFlow then computes nothing."""
        if self.count.is_static and self.count.coefficient:
            return value
        b = self.b
        is_empty = b.apply("equal", b.extent(self.count, DType.I64), b.constant(0, DType.I64))
        return b.apply("select", is_empty, b.constant(otherwise, DType.F32), value)

    def factor(self, variance: int) -> int:
        """`rsqrt(variance + epsilon)`."""
        epsilon = self.b.constant(self.x.attribute("epsilon", 1e-4), DType.F32)
        return self.b.apply("rsqrt", self.b.apply("add", variance, epsilon))


def _channels(b: BodyBuilder, x: Operands, value: int) -> _Channels:
    if len(b.shape(value)) not in (4, 5):
        raise x.unsupported("a tensor of rank 4 or 5 is needed")
    return _Channels(b, x, value)


def _batch_norm(b: BodyBuilder, x: Operands) -> Sequence[int | None]:
    """y; mean and variance for the running averages; mean and variance for the gradient; V3: an unread placeholder.

    TensorFlow's two CPU kernels (plain, oneDNN) do not agree on the shape of the last. Ours is the plain one's.
    """
    channels, wide = _channels(b, x, x[0]), b.widen(x[0])
    if x.attribute("is_training", True):
        mean = channels.mean(wide)
        centred = b.apply("sub", wide, mean)
        variance = channels.mean(b.apply("square", centred))
        outputs: list[int | None] = [*_averaged(channels, mean, variance), mean, variance]
    else:
        mean, variance = channels.spread(x[3]), channels.spread(x[4])
        centred = b.apply("sub", wide, mean)
        # What is kept for a gradient that does not read it is not initialised.
        outputs = [channels.unless_empty(mean, np.nan), channels.unless_empty(variance, np.nan), None, None]
    scaled = b.apply("mul", centred, b.apply("mul", channels.factor(variance), channels.spread(x[1])))
    result = b.convert(b.apply("add", scaled, channels.spread(x[2])), b.dtype(x[0]))
    reserved = [b.constant(0, DType.F32)] if x.node.op == "FusedBatchNormV3" else []
    return [result, *(o if o is None else channels.vector(o) for o in outputs), *reserved]


def _averaged(channels: _Channels, mean: int, variance: int) -> tuple[int, int]:
    """The running averages after this batch; those before it are operands, unless the batch is all that counts."""
    b, x = channels.b, channels.x
    one = b.constant(1, DType.F32)
    count = b.extent(channels.count, DType.F32)
    correction = b.apply("div", count, b.apply("maximum", b.apply("sub", count, one), one))
    share = np.float32(x.attribute("exponential_avg_factor", 1.0))
    if share == 1:
        return mean, b.apply("mul", variance, correction)
    new, old = b.constant(share, DType.F32), b.constant(np.float32(1) - share, DType.F32)
    return (
        b.apply("add", b.apply("mul", old, channels.spread(x[3])), b.apply("mul", new, mean)),
        b.apply(
            "add",
            b.apply("mul", old, channels.spread(x[4])),
            b.apply("mul", b.apply("mul", new, correction), variance),
        ),
    )


def _batch_norm_grad(b: BodyBuilder, x: Operands) -> Sequence[int | None]:
    """The gradients of x, scale and offset. Nothing is known of the other two outputs, not even their shape."""
    training = bool(x.attribute("is_training", True))
    if not training and channels_first(x):
        raise x.unsupported("is_training=False with channels first, which TensorFlow's own kernel refuses")
    channels = _channels(b, x, x[1])
    same_shape(b, x.node.op, x[0], x[1])
    gradient, wide = b.widen(x[0]), b.widen(x[1])
    scale, mean, variance = (channels.spread(x[i]) for i in (2, 3, 4))
    factor = channels.factor(variance)
    centred = b.apply("sub", wide, mean)
    total, weighted = channels.sum(gradient), channels.sum(b.apply("mul", gradient, centred))
    slope = b.apply("mul", scale, factor)
    if training:
        along = b.apply("mul", b.apply("square", factor), channels.over_count(weighted))
        across = b.apply("sub", gradient, channels.over_count(total))
        result = b.apply("mul", slope, b.apply("sub", across, b.apply("mul", centred, along)))
    else:
        result = b.apply("mul", gradient, slope)
    of_scale = channels.unless_empty(b.apply("mul", weighted, factor), 0.0)
    return [b.convert(result, b.dtype(x[1])), channels.vector(of_scale), channels.vector(total), None, None]


_F32 = frozenset({DType.F32})
_HALVES_TOO = frozenset({DType.F16, DType.BF16, DType.F32})
_LAYOUTS = ({"data_format": "NHWC"}, {"data_format": "NCHW"})
_TRAINING = tuple({"is_training": True, "epsilon": 1e-3, **layout} for layout in _LAYOUTS)
_INFERENCE = tuple({"is_training": False, "epsilon": 1e-4, **layout} for layout in _LAYOUTS)
_AVERAGING = tuple({**attributes, "exponential_avg_factor": 0.25} for attributes in _TRAINING)

for _names, _dtypes in ((("FusedBatchNorm",), _F32), (("FusedBatchNormV2", "FusedBatchNormV3"), _HALVES_TOO)):
    define_op(
        OpDef(
            _names,
            Kind.COMPOSITE,
            _batch_norm,
            samples=_TRAINING + _AVERAGING + _INFERENCE,
            dtypes=_dtypes,
            notes="inference: not the outputs that are kept for the gradient",
        ),
        OpDef(
            tuple(name.replace("Norm", "NormGrad") for name in _names),
            Kind.COMPOSITE,
            _batch_norm_grad,
            samples=(*_TRAINING, _INFERENCE[0]),
            dtypes=_dtypes,
        ),
    )
