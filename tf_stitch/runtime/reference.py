"""The meaning of a Body, executable: each step is one NumPy expression.

    evaluate(body, [x], {"B": 4})      ->      the outputs, in order

The tests compare this with TensorFlow, and the compiled kernels with this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.ir.body import (
    Body,
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Extent,
    Gather,
    Input,
    Iota,
    Reduce,
    Reshape,
    Slice,
    Step,
    Transpose,
    View,
    Windows,
    converted,
)
from tf_stitch.ir.symbols import completed
from tf_stitch.ops import FUNCTIONS, REDUCERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tf_stitch.ir.body import Within

    Array = np.ndarray[Any, np.dtype[Any]]


class GuardFailed(ValueError):
    """The body was built on an assumption that these inputs break; a stitched op would run its fallback."""


def evaluate(
    body: Body, inputs: Sequence[Array | None], symbols: Mapping[str, int], *, guarded: bool = True
) -> list[Array]:
    """The outputs of `body`.

    inputs: one array an input of the body; None where the body does not read it.
    symbols: the value of each symbol.
    guarded: whether an index that is out of range fails, as on a CPU; else it finds a 0, as on a GPU.

    Raises:
      GuardFailed: where an input does not fit its type, or a requirement does not hold.
    """
    symbols = completed(symbols, body.derivations)
    for type_, array in zip(body.inputs, inputs, strict=True):
        if type_ is not None and (array is None or array.shape != _extents(type_.dims, symbols)):
            raise GuardFailed(f"an input of {type_} is {None if array is None else array.shape}")
    for small, large in body.requires:
        if small.evaluate(symbols) > large.evaluate(symbols):
            raise GuardFailed(f"the body requires {small} <= {large}")
    if guarded:
        check_indices(body.indices, inputs, symbols)
    results: list[Array] = []
    with np.errstate(all="ignore"):
        for step in body.steps:
            operands = [results[i] for i in step.operands]
            result = np.asarray(_evaluate(step, operands, inputs, symbols))
            assert result.shape == _extents(step.type.dims, symbols), f"{step}: a result of shape {result.shape}"
            assert result.dtype == step.type.dtype.numpy, f"{step}: a result of dtype {result.dtype}"
            results.append(result)
    return [results[i] for i in body.outputs]


def check_indices(indices: Sequence[Within], inputs: Sequence[Array | None], symbols: Mapping[str, int]) -> None:
    """Looks at the integers that a body, or its kernel, takes for indices.

    Raises:
      GuardFailed: where one is out of range.
    """
    for within in indices:
        array = inputs[within.input]
        assert array is not None, "indices are read"
        picked = array.ravel()[within.first :: within.step]
        if picked.size and not (picked.min() >= 0 and picked.max() < within.below.evaluate(symbols)):
            raise GuardFailed(str(within))


def found_at(table: Array, indices: Sequence[Array]) -> Array:
    """The elements of a table at these indices, one array an axis; 0 where one is out of range."""
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    inside = np.ones(shape, bool)
    for index, extent in zip(indices, table.shape, strict=True):
        inside = inside & (index >= 0) & (index < extent)
    result = np.zeros(shape, table.dtype)
    result[inside] = table[tuple(np.broadcast_to(i, shape)[inside] for i in indices)]
    return result


def symbols_of(body: Body, inputs: Sequence[Array | None]) -> dict[str, int]:
    """The value of each symbol that is (a multiple of) a dim of an input, and of those that follow."""
    found: dict[str, int] = {}
    for type_, array in zip(body.inputs, inputs, strict=True):
        if type_ is None or array is None:
            continue
        for dim, extent in zip(type_.dims, array.shape, strict=True):
            if len(dim.symbols) == 1 and dim.coefficient:
                found[dim.symbols[0]] = extent // dim.coefficient
    return completed(found, body.derivations)


def _extents(dims: Sequence[Any], symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(d.evaluate(symbols) for d in dims)


def _evaluate(
    step: Step, operands: list[Array], inputs: Sequence[Array | None], symbols: Mapping[str, int]
) -> Array | np.generic:
    shape = _extents(step.type.dims, symbols)
    match step.op:
        case Input(index):
            given = inputs[index]
            assert given is not None
            return given
        case Constant():
            return step.op.value(step.type.dtype)
        case Extent(dim):
            return np.asarray(dim.evaluate(symbols)).astype(step.type.dtype.numpy)
        case Iota():
            return np.arange(shape[0], dtype=step.type.dtype.numpy)
        case Elementwise("convert"):
            return converted(operands[0], step.type.dtype)
        case Elementwise(function):
            return FUNCTIONS[function].reference(*operands)
        case Concat(axis):
            return np.concatenate(operands, axis)
        case Gather(axes):
            table, *indices = operands
            grid = np.indices(shape, sparse=True)
            return found_at(table, [grid[a] if a >= 0 else indices[-1 - a] for a in axes])
        case Reduce(function, axes):
            return REDUCERS[function].reference(operands[0], axis=axes, keepdims=True)
        case _:
            return _moved(step.op, operands[0], shape)


def _moved(op: View, operand: Array, shape: tuple[int, ...]) -> Array:
    match op:
        case Broadcast():
            return np.broadcast_to(operand, shape)
        case Reshape():
            return operand.reshape(shape)
        case Transpose(permutation):
            return operand.transpose(permutation)
        case Slice(begin, steps):
            picks = [b + s * np.arange(n) for b, s, n in zip(begin, steps, shape, strict=True)]
            return operand[np.ix_(*picks)]
        case Windows(axis, by, dilation):
            count, size = shape[axis : axis + 2]
            places = by * np.arange(count)[:, None] + dilation * np.arange(size)
            return np.take(operand, places, axis)
