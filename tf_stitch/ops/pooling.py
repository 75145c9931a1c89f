"""Pooling: what is largest in each window of an image, or their mean.

Of what is around an image neither takes notice. As in TensorFlow's kernels (core/kernels/pooling_ops_common.h), the
search for the largest begins with the least finite number, and a NaN is never larger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.ir.types import FLOATS, NUMBERS, ONE, Dim, DType
from tf_stitch.ops.composite import channels_first
from tf_stitch.ops.opdef import REDUCERS, Kind, OpDef, Operands, define_op
from tf_stitch.ops.windows import around, listed, windows

if TYPE_CHECKING:
    from tf_stitch.ir.body import BodyBuilder


_LEAST = {
    DType.F16: -65504.0,
    DType.BF16: -3.3895313892515355e38,
    DType.F32: float(np.finfo(np.float32).min),
    DType.F64: float(np.finfo(np.float64).min),
}


def _sizes(b: BodyBuilder, x: Operands) -> list[int]:
    """Height and width of the windows.

    Raises:
      Unsupported: for anything but pixels of an image with its channels last.
    """
    sizes = listed(x, "ksize")
    if channels_first(x) or len(b.shape(x[0])) != 4:
        raise x.unsupported("what is no image with its channels last")
    if sizes[0] != 1 or sizes[3] != 1:
        raise x.unsupported("windows along the batch or the channels")
    return sizes[1:3]


def _max_pool(b: BodyBuilder, x: Operands) -> int:
    dtype, value = b.dtype(x[0]), x[0]
    if dtype in FLOATS:
        least = b.constant(_LEAST[dtype], dtype)
        value = b.apply("at_least", least, value)  # which is `least` of a NaN
    else:
        least = b.constant(REDUCERS["max"].neutral(dtype), dtype)
    found = windows(b, x, value, _sizes(b, x), least)
    return b.reduce("max", found, (2, 4))


def _avg_pool(b: BodyBuilder, x: Operands) -> int:
    sizes, dtype = _sizes(b, x), b.dtype(x[0])
    wide = b.widen(x[0])
    total = b.reduce("sum", windows(b, x, wide, sizes), (2, 4))
    if any(end != Dim(0) for ends in around(b, x, x[0], sizes) for end in ends):
        _, height, width, _ = b.shape(x[0])
        one = b.broadcast(b.constant(1, b.dtype(wide)), (ONE, height, width, ONE))
        count = b.reduce("sum", windows(b, x, one, sizes), (2, 4))
    else:
        count = b.constant(sizes[0] * sizes[1], b.dtype(wide))
    return b.convert(b.apply("div", total, count), dtype)


def _samples(*given: tuple[str, int, int]) -> tuple[dict[str, Any], ...]:
    """Attributes, from (padding, size, stride)."""
    return tuple({"ksize": [1, k, k, 1], "strides": [1, s, s, 1], "padding": p} for p, k, s in given)


_ROUNDED = "f16 and bf16 accumulate in f32"
_SAMPLES = _samples(("VALID", 2, 2), ("SAME", 2, 2), ("SAME", 3, 2), ("SAME", 3, 1), ("VALID", 3, 2))
define_op(
    OpDef(("MaxPool",), Kind.REDUCTION, _max_pool, samples=_SAMPLES, dtypes=NUMBERS, notes="NHWC"),
    OpDef(("AvgPool",), Kind.REDUCTION, _avg_pool, samples=_SAMPLES, dtypes=FLOATS, notes=f"NHWC; {_ROUNDED}"),
)
