"""Convolutions: products of windows of an image with a filter.

    y[i, j, f] = sum over u, v, c of x[i * stride + u, j * stride + v, c] * w[u, v, c, f]

                 windows of x, [n, i, u, j, v, c]          a depthwise one keeps c, and has no f

Padding is part of what windows are cut from: what computes x stores it in the middle of that (`ops.padding`). So it is
multiplied, and a weight that is infinite or NaN makes NaNs of it where TensorFlow leaves padding out. A filter of one
pixel is a matrix product of all pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_stitch.errors import Reason
from tf_stitch.ir.types import ONE, Dim, product
from tf_stitch.ops.composite import channels_first
from tf_stitch.ops.opdef import Operands
from tf_stitch.ops.padding import padded
from tf_stitch.ops.products import DTYPES, PRODUCTS, define_product, matrix_product

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


def _listed(x: Operands, name: str) -> list[int]:
    return [int(n) for n in x.attribute(name, ())] or [1, 1, 1, 1]


def _windows(b: BodyBuilder, x: Operands) -> int:
    """The windows of an image [n, h, w, c] that meet the filter: [n, i, u, j, v, c].

    Raises:
      Unsupported: where the filter's height and width are not known, or where what is around the image depends on
        whether it is even.
    """
    image, sizes = b.shape(x[0]), b.shape(x[1])[:2]
    if not all(d.is_static for d in sizes):
        raise x.unsupported("a filter of unknown size", Reason.UNKNOWN_DIM)
    strides, dilations = _listed(x, "strides"), _listed(x, "dilations")
    explicit = [int(n) for n in x.attribute("explicit_paddings", ())] or [0] * 8
    around = [(0, 0)] * 4
    reach = [0, *((size.coefficient - 1) * dilations[axis] + 1 for axis, size in zip((1, 2), sizes, strict=True))]
    for axis in (1, 2):
        match str(x.attribute("padding", "VALID")):
            case "SAME":
                missing = _missing(x, image[axis], reach[axis], strides[axis])
                around[axis] = missing // 2, missing - missing // 2
            case "EXPLICIT":
                around[axis] = explicit[2 * axis], explicit[2 * axis + 1]
            case _:
                pass
    found = padded(b, x[0], around)
    for axis in (2, 1):  # the later one first: axes in front stay where they are
        extent, step = b.shape(found)[axis], strides[axis]
        b.require(Dim(reach[axis]), extent, "an image and its filter", or_error=True)
        count = b.derived((extent, Dim(step - reach[axis])), step)
        found = b.windows(found, axis, count, sizes[axis - 1].coefficient, step, dilations[axis])
    return found


def _missing(x: Operands, extent: Dim, reach: int, step: int) -> int:
    """How many elements an axis lacks for a window of `reach` to begin at every `step`-th of its own."""
    if step == 1:
        return reach - 1
    if not extent.is_static:
        raise x.unsupported(f"SAME with a stride of {step} along {extent}", Reason.UNKNOWN_DIM)
    return max((-(-extent.coefficient // step) - 1) * step + reach - extent.coefficient, 0)


def _convolution(b: BodyBuilder, x: Operands) -> int:
    _checked(b, x)
    image, (height, width, channels, filters) = b.shape(x[0]), b.shape(x[1])
    b.join(image[3], channels, "the channels of an image and its filter")
    is_padded = any(x.attribute("explicit_paddings", ()))
    if height.is_one and width.is_one and not is_padded and all(n == 1 for n in _listed(x, "strides")):
        flat = b.reshape(x[0], (product(image[:3]), image[3]))
        found = matrix_product(b, flat, b.reshape(x[1], (channels, filters)))
        return b.reshape(found, (*image[:3], filters))
    windows = _windows(b, x)
    shape = (*b.shape(windows), filters)
    spread = b.broadcast(b.reshape(windows, (*b.shape(windows), ONE)), shape)
    weights = b.broadcast(b.reshape(x[1], (ONE, ONE, height, ONE, width, channels, filters)), shape)
    return b.reduce(PRODUCTS, b.apply("mul", spread, weights), (2, 4, 5))


def _depthwise(b: BodyBuilder, x: Operands) -> int:
    _checked(b, x)
    height, width, channels, each = b.shape(x[1])
    if any(n != 1 for n in _listed(x, "dilations")):
        raise x.unsupported("dilations: TensorFlow has no kernel for them")
    if not each.is_one:
        raise x.unsupported("several filters for each channel")
    b.join(b.shape(x[0])[3], channels, "the channels of an image and its filter")
    windows = _windows(b, x)
    weights = b.broadcast(b.reshape(x[1], (ONE, ONE, height, ONE, width, channels)), b.shape(windows))
    return b.reduce(PRODUCTS, b.apply("mul", windows, weights), (2, 4))


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
