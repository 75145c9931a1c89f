"""Ops that compute in float32 only, as float64 functions: attributes → a traced function.

None where the attributes are not those that the formula is for; the op is treated like any other then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, types_pb2

AttrValue: TypeAlias = attr_value_pb2.AttrValue
Attrs: TypeAlias = dict[str, AttrValue]

FLOAT = types_pb2.DT_FLOAT


def _spec(dtype: Any = tf.float64) -> tf.TensorSpec:
    return tf.TensorSpec(None, dtype)  # pyright: ignore[reportArgumentType]  (None is any rank)


def expansion(op: str, attrs: Attrs) -> Any:
    """The traced function, or None."""
    trace = EXPANSIONS.get(op)
    return trace(attrs) if trace else None


def _batch_norm(attrs: Attrs, outputs: int) -> Any:
    if attrs["T"].type != FLOAT:
        return None
    epsilon, training = attrs["epsilon"].f, attrs["is_training"].b
    newest = attrs["exponential_avg_factor"].f if "exponential_avg_factor" in attrs else 1.0
    channels = _Channels(first=_channels_first(attrs))

    @tf.function(input_signature=[_spec()] * 5, autograph=False)
    def batch_norm(x, scale, offset, mean, variance):
        used = channels.moments(x) if training else (mean, variance)
        y = (x - channels.along(used[0], x)) * channels.along(scale / tf.sqrt(used[1] + epsilon), x)
        if training:
            count = channels.count(x)
            unbiased = used[1] * count / tf.maximum(count - 1, 1)
            before = (mean, variance) if newest != 1 else (0.0, 0.0)  # they are empty then
            mean, variance = (
                (1 - newest) * old + newest * new for old, new in zip(before, (used[0], unbiased), strict=True)
            )
        return (y + channels.along(offset, x), mean, variance, *used, tf.zeros([], tf.float64))[:outputs]

    return batch_norm.get_concrete_function()


def _batch_norm_gradient(attrs: Attrs, inputs: int) -> Any:
    """In training; what it is given of the forward op are the mean and the variance that `_batch_norm` has used."""
    if attrs["T"].type != FLOAT or not attrs["is_training"].b:
        return None
    epsilon = attrs["epsilon"].f
    channels = _Channels(first=_channels_first(attrs))

    @tf.function(input_signature=[_spec()] * inputs, autograph=False)
    def gradient(dy, x, scale, mean, variance, *_):
        inverse = 1 / tf.sqrt(variance + epsilon)
        normal = (x - channels.along(mean, x)) * channels.along(inverse, x)
        d_scale, d_offset = channels.sum(dy * normal), channels.sum(dy)
        count = channels.count(x)
        rest = channels.along(d_offset / count, x) + normal * channels.along(d_scale / count, x)
        empty = tf.zeros([0], tf.float64)
        return (dy - rest) * channels.along(scale * inverse, x), d_scale, d_offset, empty, empty

    return gradient.get_concrete_function()


@dataclass(frozen=True)
class _Channels:
    """The axis of the channels: the second where they come first, else the last."""

    first: bool

    def along(self, p: Any, x: Any) -> Any:
        """f64[C], in a shape that broadcasts to x."""
        ones = tf.ones([tf.rank(x) - 2], tf.int32)
        return tf.reshape(p, tf.concat([[-1], ones], 0)) if self.first else p

    def sum(self, x: Any) -> Any:
        """Over all other axes: f64[C]."""
        others = tf.range(2, tf.rank(x)) if self.first else tf.range(1, tf.rank(x) - 1)
        return tf.reduce_sum(x, tf.concat([[0], others], 0))

    def count(self, x: Any) -> Any:
        """Elements of a channel."""
        return tf.cast(tf.size(x) // tf.shape(x)[1 if self.first else -1], tf.float64)

    def moments(self, x: Any) -> tuple[Any, Any]:
        mean = self.sum(x) / self.count(x)
        return mean, self.sum(tf.square(x - self.along(mean, x))) / self.count(x)


def _channels_first(attrs: Attrs) -> bool:
    return attrs["data_format"].s.startswith(b"NC")


def _resize_bilinear(attrs: Attrs) -> Any:
    """Bilinear resizing as two matrix products, one for the rows and one for the columns."""
    align, half_pixel = attrs["align_corners"].b, attrs["half_pixel_centers"].b

    def weights(old, new):
        """float64[new, old]: how much of each old pixel is in each new one."""
        n, m = tf.cast(old, tf.float64), tf.cast(new, tf.float64)
        at = tf.range(m)
        if align:
            at = at * tf.where(m > 1, (n - 1) / tf.maximum(m - 1, 1), n / m)
        else:
            at = (at + 0.5) * (n / m) - 0.5 if half_pixel else at * (n / m)
        low, high = tf.floor(at), tf.math.ceil(at)
        share = (at - low)[:, None]
        low, high = tf.maximum(low, 0), tf.minimum(high, n - 1)
        pick_low, pick_high = (tf.one_hot(tf.cast(p, tf.int32), old, dtype=tf.float64) for p in (low, high))
        return pick_low * (1 - share) + pick_high * share

    @tf.function(input_signature=[_spec(_wide_type(attrs["T"].type)), _spec(tf.int32)], autograph=False)
    def resize_bilinear(images, size):
        shape = tf.shape(images)
        rows, columns = weights(shape[1], size[0]), weights(shape[2], size[1])
        return tf.einsum("ih,bhwc,jw->bijc", rows, tf.cast(images, tf.float64), columns)

    return resize_bilinear.get_concrete_function()


def _wide_type(dtype: int) -> tf.DType:
    return tf.float64 if dtype == FLOAT else tf.as_dtype(dtype)


EXPANSIONS: dict[str, Callable[[Attrs], Any]] = {
    "FusedBatchNorm": functools.partial(_batch_norm, outputs=5),
    "FusedBatchNormV2": functools.partial(_batch_norm, outputs=5),
    "FusedBatchNormV3": functools.partial(_batch_norm, outputs=6),
    "FusedBatchNormGrad": functools.partial(_batch_norm_gradient, inputs=5),
    "FusedBatchNormGradV2": functools.partial(_batch_norm_gradient, inputs=5),
    "FusedBatchNormGradV3": functools.partial(_batch_norm_gradient, inputs=6),
    "ResizeBilinear": _resize_bilinear,
}
