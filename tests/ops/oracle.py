"""One op, three ways: TensorFlow's kernel in a tf.function, the same in float64, and our Body in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library, op_def_registry

from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.graph import Node
from tf_stitch.ir.types import ALL, Dim, DType, TensorType
from tf_stitch.ir.verify import verify_body
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Operands
from tf_stitch.runtime.reference import evaluate, symbols_of

Array = np.ndarray[Any, np.dtype[Any]]
DTYPE_OF = {d.numpy: d for d in ALL}


@dataclass(frozen=True)
class Sample:
    """One node of TensorFlow op `op`.

    operands: arrays, static ones too.
    attributes: besides those that TensorFlow infers; dtypes as DType.
    known: operands other than static ones whose value the compiler sees.
    scale: an absolute error allowed in units of the result's epsilon, for sums that cancel; 0 for none.
    """

    op: str
    operands: tuple[Array, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    known: frozenset[int] = frozenset()
    scale: float = 0.0

    @property
    def static(self) -> frozenset[int]:
        return OPS[self.op].static_operands(len(self.operands))

    def __str__(self) -> str:
        operands = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.operands)
        return f"{self.op}({operands}) {self.attributes}"


# -- TensorFlow --------------------------------------------------------------------------------------------


def tensorflow(samples: list[Sample]) -> list[list[Array]]:
    """The outputs of each sample, all from one tf.function; static and known operands are constants in it."""

    @tf.function(autograph=False)
    def run(*fed: Any) -> list[list[Any]]:
        results: list[list[Any]] = []
        tensors = iter(fed)
        for sample in samples:
            operands = [
                tf.constant(a) if i in sample.static | sample.known else next(tensors)
                for i, a in enumerate(sample.operands)
            ]
            outputs = op_def_library.apply_op(sample.op, **_arguments(sample, operands))
            results.append(list(outputs) if isinstance(outputs, list | tuple) else [outputs])
        return results

    fed = [tf.constant(a) for s in samples for i, a in enumerate(s.operands) if i not in s.static | s.known]
    return [[np.asarray(t.numpy()) for t in outputs] for outputs in run(*fed)]


def _arguments(sample: Sample, operands: list[Any]) -> dict[str, Any]:
    definition = op_def_registry.get(sample.op)
    arguments: dict[str, Any] = {}
    left = list(operands)
    for behind, argument in zip(range(len(definition.input_arg) - 1, -1, -1), definition.input_arg, strict=True):
        count = len(left) - behind
        arguments[argument.name] = [left.pop(0) for _ in range(count)] if argument.number_attr else left.pop(0)
    for attribute in definition.attr:
        if attribute.HasField("default_value") and not _is_inferred(definition, attribute.name):
            kind = attribute.default_value.WhichOneof("value")
            arguments[attribute.name] = [] if kind == "list" else getattr(attribute.default_value, kind)
    for name, value in sample.attributes.items():
        arguments[name] = tf.as_dtype(value.numpy) if isinstance(value, DType) else value
    return arguments


def _is_inferred(definition: Any, attribute: str) -> bool:
    """Whether the attribute follows from the operands."""
    return any(attribute in (a.type_attr, a.number_attr, a.type_list_attr) for a in definition.input_arg)


def widened(sample: Sample, widest: Any) -> Sample:
    """The sample with float operands in a wider dtype."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        operands = tuple(a.astype(widest) if is_float(a.dtype) else a for a in sample.operands)
    return Sample(sample.op, operands, sample.attributes, sample.known, sample.scale)


def is_float(dtype: Any) -> bool:
    return np.dtype(dtype).kind == "f" or dtype == ml_dtypes.bfloat16


# -- ours --------------------------------------------------------------------------------------------------


def body_of(sample: Sample, types: list[TensorType] | None = None) -> tuple[Body, list[int]]:
    """The verified Body of a sample, and which of the node's outputs it produces."""
    definition = OPS[sample.op]
    types = types or [type_of(a) for a in sample.operands]
    builder = BodyBuilder(FUNCTIONS, REDUCERS)
    values: list[int | None] = []
    for index, type_ in enumerate(types):
        if index in sample.static:
            builder.skip_input()
            values.append(None)
        else:
            values.append(builder.input(type_))
    known = sample.static | sample.known
    constants = tuple(a if i in known else None for i, a in enumerate(sample.operands))
    node = Node("node", sample.op, (), (), attributes=sample.attributes)
    steps = definition.expand(builder, Operands(node, tuple(values), constants, (None,) * len(constants)))
    outputs = [steps] if isinstance(steps, int) else list(steps)
    produced = [i for i, step in enumerate(outputs) if step is not None]
    body = builder.finish([step for step in outputs if step is not None])
    verify_body(body, FUNCTIONS, REDUCERS)
    return body, produced


def type_of(array: Array) -> TensorType:
    return TensorType(DTYPE_OF[array.dtype], tuple(map(Dim, array.shape)))


def symbolic(array: Array, axes: slice = slice(None)) -> TensorType:
    """The array's type with a symbol for each dim in `axes` that is not 1; equal extents share a symbol."""
    chosen = set(range(array.ndim)[axes])
    dims = [Dim.symbol(f"n{e}") if a in chosen and e != 1 else Dim(e) for a, e in enumerate(array.shape)]
    return TensorType(DTYPE_OF[array.dtype], tuple(dims))


def evaluated(body: Body, sample: Sample) -> list[Array]:
    """The results of the sample's body; a symbol `n7` is 7, others follow from the operands."""
    fed = [None if t is None else a for t, a in zip(body.inputs, sample.operands, strict=True)]
    named = {f"n{extent}": extent for a in sample.operands for extent in a.shape}
    return evaluate(body, fed, named | symbols_of(body, fed))


# -- comparison --------------------------------------------------------------------------------------------

ULPS = 2.0
ULPS_F64 = 8.0  # no better arithmetic to compare with: TensorFlow's own polynomials are off by a few


def assert_matches(ours: Array, theirs: Array, exact: Array, sample: Sample, zeros_alike: bool = False) -> None:
    """Asserts that `ours` is TensorFlow's result, or nearer to `exact`, the result in float64.

    In detail: dtype and shape are TensorFlow's; integers and bools are equal; a float is equal (NaN is NaN,
    -0 is not 0), or within ULPS of `exact` rounded, or not further from it than TensorFlow's. Results below
    the smallest normal are all alike, for TensorFlow flushes them.
    """
    assert ours.dtype == theirs.dtype, f"{sample}: dtype {ours.dtype}, TensorFlow has {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{sample}: shape {ours.shape}, TensorFlow has {theirs.shape}"
    if not is_float(ours.dtype):
        np.testing.assert_array_equal(ours, theirs, err_msg=str(sample))
        return
    with np.errstate(all="ignore"):
        good = _alike(ours, theirs, exact, sample.scale, zeros_alike)
    if not good.all():
        at = tuple(int(i[0]) for i in np.nonzero(~good))
        fed = [np.broadcast_to(a, ours.shape)[at] if a.size and _fits(a, ours) else a for a in sample.operands]
        raise AssertionError(
            f"{sample}: at {at}, from {fed}: ours {ours[at]!r}, TensorFlow {theirs[at]!r}, f64 {exact[at]!r}"
        )


def _fits(array: Array, result: Array) -> bool:
    try:
        return np.broadcast_shapes(array.shape, result.shape) == result.shape
    except ValueError:
        return False


def _alike(ours: Array, theirs: Array, exact: Array, scale: float, zeros_alike: bool) -> Array:
    dtype = ours.dtype
    information = ml_dtypes.finfo(dtype)
    tiny = float(np.finfo(np.float32).tiny if dtype == np.float16 else information.tiny)
    epsilon = float(information.eps)
    mine, tf_s = ours.astype(np.float64), theirs.astype(np.float64)
    wanted = exact if dtype == np.float64 else exact.astype(np.float32).astype(dtype).astype(np.float64)
    same = (mine == tf_s) & ((np.signbit(mine) == np.signbit(tf_s)) | zeros_alike) | (np.isnan(mine) & np.isnan(tf_s))
    flushed = (np.abs(mine) <= tiny) & (np.abs(tf_s) <= tiny) & (np.abs(exact) <= tiny) & (exact != 0)
    spacing = np.maximum(
        np.abs(wanted) * epsilon, tiny if dtype != np.float16 else float(information.smallest_subnormal)
    )
    allowed = (ULPS_F64 if dtype == np.float64 else ULPS) * spacing + scale * epsilon
    error = np.abs(mine - exact)
    near = (error <= allowed) | (mine == wanted) & (wanted != 0) | (np.isnan(mine) & np.isnan(wanted))
    nearer = np.isfinite(mine) & (error <= np.abs(tf_s - exact))
    return same | flushed | (near | nearer) & ~((mine == 0) & (tf_s == 0))
