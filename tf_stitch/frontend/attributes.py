"""From TensorFlow's attribute protos to plain Python values (what `ir.graph.Node.attributes` holds)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tensorflow.python.framework import tensor_util

from tf_stitch.ir.types import DType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tf_stitch.frontend.protos import Proto

Array = np.ndarray[Any, np.dtype[Any]]

LARGEST_TENSOR = 16 * 1024
"""Bytes above which a tensor attribute is not read; a larger constant is data, and enters as an input."""

_DTYPES = {
    1: DType.F32,
    2: DType.F64,
    3: DType.I32,
    9: DType.I64,
    10: DType.BOOL,
    14: DType.BF16,
    19: DType.F16,
}
_SKIPPED = frozenset({"_output_shapes", "_handle_shapes", "_handle_dtypes"})


def dtype_of(enum: int) -> DType:
    """The DType of a DataType enum; those that are never computed on (and references) are OTHER."""
    return _DTYPES.get(enum, DType.OTHER)


def enum_of(dtype: DType) -> int:
    """The inverse of `dtype_of`, for all but OTHER."""
    return next(enum for enum, known in _DTYPES.items() if known is dtype)


def attributes_of(attr: Mapping[str, Proto]) -> dict[str, Any]:
    """Every attribute but those that only tell of shapes."""
    return {name: python_value(value) for name, value in attr.items() if name not in _SKIPPED}


def python_value(attr: Proto) -> Any:
    """int, float, bool, str (bytes where it is no text), DType, shape as a tuple of int | None, ndarray, or a
    tuple of these; a function is its name. None for a tensor too large to read and a shape of unknown rank.
    """
    match attr.WhichOneof("value"):
        case "s":
            return _text(attr.s)
        case "i":
            return attr.i
        case "f":
            return attr.f
        case "b":
            return attr.b
        case "type":
            return dtype_of(attr.type)
        case "shape":
            return shape_of_proto(attr.shape)
        case "tensor":
            return small_tensor(attr.tensor)
        case "func":
            return attr.func.name
        case "list":
            return _list(attr.list)
        case _:
            return None


def _list(values: Proto) -> tuple[Any, ...]:
    for field, items in values.ListFields():
        match field.name:
            case "s":
                return tuple(_text(s) for s in items)
            case "type":
                return tuple(dtype_of(t) for t in items)
            case "shape":
                return tuple(shape_of_proto(s) for s in items)
            case "tensor":
                return tuple(small_tensor(t) for t in items)
            case "func":
                return tuple(f.name for f in items)
            case _:
                return tuple(items)
    return ()


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def shape_of_proto(shape: Proto) -> tuple[int | None, ...] | None:
    """Dims, None where unknown; None for an unknown rank."""
    if shape.unknown_rank:
        return None
    return tuple(d.size if d.size >= 0 else None for d in shape.dim)


def small_tensor(tensor: Proto) -> Array | None:
    """The tensor's value; None where it is large, or of a dtype that is never computed on."""
    dtype = dtype_of(tensor.dtype)
    if dtype is DType.OTHER:
        return None
    size = 1
    for dim in tensor.tensor_shape.dim:
        size *= dim.size
    if size * dtype.size > LARGEST_TENSOR:
        return None
    content = tensor.tensor_content
    if content:
        shape: tuple[int, ...] = tuple(d.size for d in tensor.tensor_shape.dim)
        return np.frombuffer(content, dtype.numpy).reshape(shape)
    return np.asarray(tensor_util.MakeNdarray(tensor))
