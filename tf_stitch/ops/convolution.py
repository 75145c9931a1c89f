"""Convolutions: products of windows of an image with a filter.

    y[i, j, f] = sum over u, v, c of x[i * stride + u, j * stride + v, c] * w[u, v, c, f]

                 windows of x, [n, i, u, j, v, c]          a depthwise one keeps c, and has no f

Padding is part of what windows are cut from (`ops.windows`). So it is multiplied, and a weight that is infinite or NaN
makes NaNs of it where TensorFlow leaves padding out. A filter of one pixel is a matrix product of all pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_stitch.errors import Reason
from tf_stitch.ir.types import ONE, product
from tf_stitch.ops.composite import channels_first
from tf_stitch.ops.opdef import Operands
from tf_stitch.ops.products import DTYPES, PRODUCTS, define_product, matrix_product
from tf_stitch.ops.windows import listed, windows

if TYPE_CHECKING:
    from tf_stitch.ir.body import BodyBuilder


def _checked(b: BodyBuilder, x: Operands) -> None:
    """Raises:
    Unsupported: for what neither convolution is written for.
    """
    if channels_first(x):
        raise x.unsupported("channels in front of the pixels")
    if b.dtype(x[0]) not in DTYPES:
        raise x.unsupported(f"{b.dtype(x[0]).value}", Reason.DTYPE)
    if len(b.shape(x[0])) != 4 or len(b.shape(x[1])) != 4:
        raise x.unsupported("operands that are no images and filters")


def _windows(b: BodyBuilder, x: Operands) -> int:
    """The windows of the image that meet the filter.

    Raises:
      Unsupported: where the filter's height and width are not known, or as `ops.windows`.
    """
    sizes = b.shape(x[1])[:2]
    if not all(d.is_static for d in sizes):
        raise x.unsupported("a filter of unknown size", Reason.UNKNOWN_DIM)
    return windows(b, x, x[0], [d.coefficient for d in sizes])


def _convolution(b: BodyBuilder, x: Operands) -> int:
    _checked(b, x)
    image, (height, width, channels, filters) = b.shape(x[0]), b.shape(x[1])
    b.join(image[3], channels, "the channels of an image and its filter")
    is_padded = any(x.attribute("explicit_paddings", ()))
    if height.is_one and width.is_one and not is_padded and all(n == 1 for n in listed(x, "strides")):
        flat = b.reshape(x[0], (product(image[:3]), image[3]))
        found = matrix_product(b, flat, b.reshape(x[1], (channels, filters)))
        return b.reshape(found, (*image[:3], filters))
    image_parts = _windows(b, x)
    shape = (*b.shape(image_parts), filters)
    spread = b.broadcast(b.reshape(image_parts, (*b.shape(image_parts), ONE)), shape)
    weights = b.broadcast(b.reshape(x[1], (ONE, ONE, height, ONE, width, channels, filters)), shape)
    return b.reduce(PRODUCTS, b.apply("mul", spread, weights), (2, 4, 5))


def _depthwise(b: BodyBuilder, x: Operands) -> int:
    _checked(b, x)
    height, width, channels, each = b.shape(x[1])
    if any(n != 1 for n in listed(x, "dilations")):
        raise x.unsupported("dilations: TensorFlow has no kernel for them")
    if not each.is_one:
        raise x.unsupported("several filters for each channel")
    b.join(b.shape(x[0])[3], channels, "the channels of an image and its filter")
    image_parts = _windows(b, x)
    weights = b.broadcast(b.reshape(x[1], (ONE, ONE, height, ONE, width, channels)), b.shape(image_parts))
    return b.reduce(PRODUCTS, b.apply("mul", image_parts, weights), (2, 4))


_ONES = [1, 1, 1, 1]
_EXPLICIT = {"strides": _ONES, "dilations": _ONES, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}


def _samples(*given: tuple[str, int, int]) -> tuple[dict[str, Any], ...]:
    """Attributes, from (padding, stride, dilation)."""
    return tuple({"strides": [1, s, s, 1], "dilations": [1, d, d, 1], "padding": p} for p, s, d in given)


define_product(
    "Conv2D",
    _convolution,
    (*_samples(("SAME", 1, 1), ("VALID", 1, 1), ("SAME", 2, 1), ("VALID", 1, 2)), _EXPLICIT),
    "NHWC, of filters of known height and width",
)
define_product(
    "DepthwiseConv2dNative",
    _depthwise,
    _samples(("SAME", 1, 1), ("VALID", 1, 1), ("SAME", 2, 1)),
    "NHWC, one filter a channel, of filters of known height and width",
)
