"""Operands to try each op with, as a list of Sample. An op without an entry here fails its test."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.ops.oracle import Array, Sample, is_float
from tf_stitch.ir.types import DType
from tf_stitch.ops import FUNCTIONS, OPS

Shape = tuple[int, ...]

ONE_SHAPE: list[Shape] = [(), (1,), (67,), (3, 5), (0, 4), (2, 1, 7), (2, 3, 2, 3)]
TWO_SHAPES: list[tuple[Shape, Shape]] = [
    ((), (7,)),
    ((3, 5), (3, 5)),
    ((3, 5), (5,)),
    ((2, 1, 3), (4, 1)),
    ((0, 3), (1, 3)),
    ((1, 3), (0, 1)),
    ((67,), (1,)),
]
SPECIAL_FLOATS = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    6.0,
    7.0,
    100.0,
    -100.0,
]
SPECIAL_INTS = {DType.I32: [-(2**31), 2**31 - 1], DType.I64: [-(2**63), 2**63 - 1, 2**32]}


def _generator(*key: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def draw(dtype: DType, shape: Shape, domain: tuple[float, float] = (-4.0, 4.0), key: Any = 0) -> Array:
    """Random values; floats from `domain`, integers from -9 to 9 and now and then any."""
    random = _generator(dtype, shape, domain, key)
    if dtype is DType.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if dtype in SPECIAL_INTS:
        small = random.integers(-9, 10, shape)
        large = random.integers(np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max, shape)
        return np.where(random.random(shape) < 0.8, small, large).astype(dtype.numpy)
    with np.errstate(over="ignore"):
        return np.asarray(random.uniform(*domain, shape)).astype(dtype.numpy)


def special(dtype: DType) -> Array:
    """The values that go wrong."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype in SPECIAL_INTS:
        return np.array([0, 1, -1, 2, -2, 7, -8, *SPECIAL_INTS[dtype]], dtype.numpy)
    return np.array(SPECIAL_FLOATS, dtype.numpy)


# -- elementwise -------------------------------------------------------------------------------------------

DOMAINS: dict[str, tuple[float, float]] = {
    "RsqrtGrad": (0.1, 4.0),
    "SqrtGrad": (0.1, 4.0),
    "TanhGrad": (-1.0, 1.0),
    "SigmoidGrad": (0.0, 1.0),
}
UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Erfc",
    "Exp",
    "Expm1",
    "Floor",
    "Identity",
    "Inv",
    "IsFinite",
    "IsInf",
    "IsNan",
    "LeakyRelu",
    "Log",
    "Log1p",
    "LogicalNot",
    "Neg",
    "OnesLike",
    "PreventGradient",
    "Reciprocal",
    "Relu",
    "Relu6",
    "Rint",
    "Round",
    "Rsqrt",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Snapshot",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Square",
    "StopGradient",
    "Tan",
    "Tanh",
    "ZerosLike",
]
BROADCAST = [
    "Add",
    "AddV2",
    "Atan2",
    "Div",
    "DivNoNan",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "LogicalAnd",
    "LogicalOr",
    "Maximum",
    "Minimum",
    "Mul",
    "MulNoNan",
    "NotEqual",
    "Equal",
    "Pow",
    "RealDiv",
    "SquaredDifference",
    "Sub",
    "Xdivy",
    "Xlog1py",
    "Xlogy",
]
SAME_SHAPE = [
    "EluGrad",
    "InvGrad",
    "LeakyReluGrad",
    "ReciprocalGrad",
    "ReluGrad",
    "Relu6Grad",
    "RsqrtGrad",
    "SeluGrad",
    "SigmoidGrad",
    "SoftplusGrad",
    "SoftsignGrad",
    "SqrtGrad",
    "TanhGrad",
]
DIVISION = ["FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"]


def _domain(op: str) -> tuple[float, float]:
    names = [f for f in FUNCTIONS if f.replace("_", "") == op.lower()]
    return DOMAINS.get(op, FUNCTIONS[names[0]].domain if names else (-4.0, 4.0))


def _unary(op: str, dtype: DType) -> Iterator[Sample]:
    odd = special(dtype)
    if (op, dtype) == ("Erf", DType.F64):
        odd = odd[~np.isinf(odd)]  # TensorFlow: NaN
    for attributes in OPS[op].samples:
        for shape in ONE_SHAPE:
            yield Sample(op, (draw(dtype, shape, _domain(op), op),), attributes)
        yield Sample(op, (odd,), attributes)


def _pair(left: Array, right: Array) -> tuple[Array, Array]:
    """Every value of one with every value of the other."""
    grid = list(itertools.product(range(left.size), range(right.size)))
    return left[[i for i, _ in grid]], right[[j for _, j in grid]]


def _binary(op: str, dtype: DType) -> Iterator[Sample]:
    domain = _domain(op)
    for attributes in OPS[op].samples:
        shapes = [(s, s) for s in ONE_SHAPE] if op in SAME_SHAPE else TWO_SHAPES
        if not attributes.get("incompatible_shape_error", True):
            shapes = [(s, s) for s in ONE_SHAPE[:4]]
        for left, right in shapes:
            operands = draw(dtype, left, domain, (op, 0)), draw(dtype, right, domain, (op, 1))
            yield Sample(op, operands, attributes)
        yield Sample(op, _pair(special(dtype), special(dtype)), attributes)


def _division(op: str, dtype: DType) -> Iterator[Sample]:
    if dtype.is_float:
        yield from _binary(op, dtype)
        return
    values = special(dtype)
    yield Sample(op, _pair(values, values[values != 0]), known=frozenset({1}))
    for divisor in (1, -1, 3, -7):
        yield Sample(op, (draw(dtype, (5, 13)), np.array(divisor, dtype.numpy)), known=frozenset({1}))


def _pow(op: str, dtype: DType) -> Iterator[Sample]:
    yield from _binary(op, dtype)
    for exponent in (1.0, 2.0, 3.0, 0.5, -0.5, -1.0, 0.0, 2.5):
        known = np.array(exponent, dtype.numpy)
        yield Sample(op, (special(dtype), known), known=frozenset({1}))
        yield Sample(op, (draw(dtype, (3, 5), (0.1, 8.0)), known), known=frozenset({1}))


def _select(op: str, dtype: DType) -> Iterator[Sample]:
    conditions: list[tuple[Shape, Shape, Shape]] = [
        ((), (5,), (5,)),
        ((3, 5), (3, 5), (3, 5)),
        ((67,), (67,), (67,)),
        ((0, 2), (0, 2), (0, 2)),
    ]
    vector: list[tuple[Shape, Shape, Shape]] = [((3,), (3, 5), (3, 5)), ((2,), (2, 3, 4), (2, 3, 4))]
    broadcast: list[tuple[Shape, Shape, Shape]] = [
        ((5,), (3, 5), (3, 1)),
        ((3, 1), (), (1, 4)),
        ((1,), (0, 2), ()),
    ]
    for shapes in conditions + (vector if op == "Select" else broadcast):
        yes, no = (draw(dtype, s, key=(op, i)) for i, s in enumerate(shapes[1:]))
        yield Sample(op, (draw(DType.BOOL, shapes[0]), yes, no))
    values = special(dtype)
    yield Sample(op, (np.arange(values.size) % 2 == 0, values, values[::-1].copy()))


def _clip(op: str, dtype: DType) -> Iterator[Sample]:
    low, high = np.array(-1, dtype.numpy), np.array(2, dtype.numpy)
    for shape in ONE_SHAPE:
        yield Sample(op, (draw(dtype, shape), low, high))
    yield Sample(op, (special(dtype), low, high))
    yield Sample(op, (special(dtype), high, low))
    yield Sample(op, (draw(dtype, (3, 5)), draw(dtype, (3, 5), key=1), draw(dtype, (3, 5), key=2)))
    if dtype.is_float:
        nan = np.full(special(dtype).shape, np.nan).astype(dtype.numpy)
        yield Sample(op, (special(dtype), nan, nan))
        yield Sample(op, (special(dtype), nan, np.ones_like(nan)))


def _cast(op: str, dtype: DType) -> Iterator[Sample]:
    values = special(dtype)
    if dtype.is_float:
        edges = [
            2.0**31,
            2.0**31 - 1,
            -(2.0**31) - 1,
            2.0**63,
            -(2.0**63),
            1e19,
            -1e19,
            1.9999,
            -1.9999,
            65519,
            65520,
        ]
        edges += [1 + 2**-8, 1 + 3 * 2**-9, 2049.0000001, 1 + 2**-11 + 2**-30, 65519.999999, 3e38, 1.7e308]
        with np.errstate(all="ignore"):
            values = np.concatenate([values, np.array(edges).astype(dtype.numpy)])
    elif dtype is not DType.BOOL:
        edges = [65519, 65520, 2**24 + 1, 2**31 - 65, 257, 2049, -65521, 2**25 + 3]
        values = np.concatenate([values, np.array(edges, dtype.numpy)])
        if dtype is DType.I64:
            values = np.concatenate([values, np.array([2**53 + 1, 2**62 + 1, 2**40 + 1, -(2**55) - 1])])
    for attributes in OPS[op].samples:
        yield Sample(op, (values,), attributes)
        yield Sample(op, (draw(dtype, (3, 5)),), attributes)
        yield Sample(op, (draw(dtype, (0, 2)),), attributes)


def _add_n(op: str, dtype: DType) -> Iterator[Sample]:
    for count, shape in [(1, (5,)), (2, (3, 5)), (3, ()), (5, (0, 2)), (8, (67,)), (12, (7,))]:
        terms = tuple(draw(dtype, shape, key=(op, i)) for i in range(count))
        yield Sample(op, terms, scale=4.0 * count)


# -- reductions --------------------------------------------------------------------------------------------

AXES: list[tuple[Shape, Any]] = [
    ((), []),
    ((7,), [0]),
    ((3, 5), []),
    ((3, 5), [1]),
    ((3, 5), [0]),
    ((3, 5), [-1]),
    ((3, 5), [0, 1]),
    ((2, 3, 4, 5), [0, -2]),
    ((2, 3, 4, 5), [1, 3]),
    ((2, 0), [1]),
    ((0, 3), [1]),
    ((0, 3), [0]),
    ((2, 131), [1]),
    ((131, 2), [0]),
    ((3, 1), [1]),
    ((2, 3, 4), 1),
]
REDUCTIONS = ["Sum", "Mean", "Prod", "Max", "Min", "All", "Any", "EuclideanNorm"]


def _reduce(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        for shape, axes in AXES if attributes["keep_dims"] else AXES[::3]:
            domain = (0.9, 1.1) if op == "Prod" else (-4.0, 4.0)
            value = draw(dtype, shape, domain, op)
            size = float(max(value.size, 1))
            scale = {"Sum": 4.0, "Mean": 4.0, "Prod": 1.0, "EuclideanNorm": 4.0}.get(op, 0.0) * size**0.5
            yield Sample(op, (value, np.array(axes, np.int32)), attributes, scale=scale)
        if dtype.is_float:
            rows = np.array([[1, np.nan, 3], [np.nan, 1, 2], [1, 2, np.nan], [np.inf, 1, -np.inf], [1, -np.inf, 2]])
            yield Sample(op, (rows.astype(dtype.numpy), np.array(1, np.int64)), attributes)
            yield Sample(op, (np.array([[-0.0, -0.0], [0.0, 0.0]]).astype(dtype.numpy), np.array(0)), attributes)
        elif dtype is not DType.BOOL:
            rows = [[SPECIAL_INTS[dtype][1]] * 2, [-1, -2], [7, -8]]
            yield Sample(op, (np.array(rows, dtype.numpy), np.array([-1], np.int32)), attributes)


def _l2_loss(op: str, dtype: DType) -> Iterator[Sample]:
    for shape in ONE_SHAPE:
        yield Sample(op, (draw(dtype, shape),), scale=100.0)


# -- movement ----------------------------------------------------------------------------------------------


def _shapes(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def _moved(
    cases: list[tuple[Shape, list[Array], dict[str, Any]]],
) -> Callable[[str, DType], Iterator[Sample]]:
    """An op whose first operand is the tensor and whose other operands are static."""

    def generate(op: str, dtype: DType) -> Iterator[Sample]:
        for shape, static, attributes in cases:
            yield Sample(op, (draw(dtype, shape), *static), attributes)

    return generate


RESHAPE = [
    ((6,), (2, 3)),
    ((2, 3), (-1,)),
    ((2, 3, 4), (2, 12)),
    ((2, 3, 4), (-1, 4)),
    ((0, 3), (3, 0)),
    ((0, 3), (-1, 3)),
    ((1,), ()),
    ((), (1, 1)),
    ((4, 3), (4, 1, 3)),
]
TRANSPOSE = [
    ((), ()),
    ((5,), (0,)),
    ((3, 5), (1, 0)),
    ((2, 3, 4), (2, 0, 1)),
    ((2, 3, 4, 5), (0, 3, 1, 2)),
    ((0, 3), (1, 0)),
]
BROADCAST_TO = [
    ((), (3,)),
    ((5,), (3, 5)),
    ((3, 1), (3, 4)),
    ((2, 1, 3), (4, 2, 5, 3)),
    ((1,), (0,)),
    ((3, 5), (3, 5)),
]
TILE = [((1, 3), (4, 1)), ((3, 1), (1, 5)), ((2, 3), (1, 1)), ((1,), (0,)), ((), ())]


def _strided(begin: Any, end: Any, strides: Any, **masks: int) -> tuple[list[Array], dict[str, Any]]:
    return [_shapes(*begin), _shapes(*end), _shapes(*strides)], masks


STRIDED_SLICES: list[tuple[Shape, list[Array], dict[str, Any]]] = [
    ((7,), *_strided([1], [5], [2])),
    ((7,), *_strided([-1], [0], [-2])),
    ((7,), *_strided([0], [0], [-1], begin_mask=1, end_mask=1)),
    ((3, 5), *_strided([1, 0], [2, 0], [1, 1], shrink_axis_mask=1, begin_mask=2, end_mask=2)),
    ((3, 5), *_strided([0, -1], [0, 0], [1, 1], ellipsis_mask=1, shrink_axis_mask=2)),
    ((3, 5), *_strided([0, 0, 1], [0, 0, 9], [1, 1, 1], new_axis_mask=1, begin_mask=2, end_mask=2)),
    (
        (2, 3, 4),
        *_strided([0, 0, 0], [0, 0, 0], [1, 1, 1], ellipsis_mask=2, new_axis_mask=4, shrink_axis_mask=1),
    ),
    ((2, 3, 4), *_strided([1], [2], [1])),
    ((3, 5), *_strided([2, 4], [0, 1], [-1, -2])),
    ((3, 5), *_strided([5], [9], [1])),
    ((0, 5), *_strided([0, 1], [0, 3], [1, 1], begin_mask=1, end_mask=1)),
    ((3, 5), *_strided([], [], [])),
]
SLICES = [
    ((7,), (2,), (3,)),
    ((3, 5), (0, 1), (-1, 2)),
    ((3, 5), (0, 0), (3, 5)),
    ((3, 5), (1, 2), (-1, -1)),
    ((0, 2), (0, 1), (0, 1)),
]


def _fill(op: str, dtype: DType) -> Iterator[Sample]:
    for dims in [(), (3,), (2, 5), (0, 4)]:
        yield Sample(op, (_shapes(*dims), draw(dtype, ())))


def _split(op: str, dtype: DType) -> Iterator[Sample]:
    for shape, axis, count in [((6,), 0, 3), ((4, 6), 1, 2), ((4, 6), -2, 4), ((2, 3), 0, 1), ((0, 4), 1, 2)]:
        yield Sample(op, (np.array(axis, np.int32), draw(dtype, shape)), {"num_split": count})


def _split_v(op: str, dtype: DType) -> Iterator[Sample]:
    for shape, sizes, axis in [
        ((6,), [1, 2, 3], 0),
        ((4, 6), [2, -1], 1),
        ((4, 6), [4], 0),
        ((4, 6), [0, 4], -2),
    ]:
        yield Sample(op, (draw(dtype, shape), _shapes(*sizes), np.array(axis, np.int32)), {"num_split": len(sizes)})


def _unpack(op: str, dtype: DType) -> Iterator[Sample]:
    for shape, axis in [((3,), 0), ((2, 5), 1), ((2, 3, 4), -2), ((2, 0), 0), ((1, 4), 0)]:
        yield Sample(op, (draw(dtype, shape),), {"axis": axis, "num": shape[axis]})


def _concat(op: str, dtype: DType) -> Iterator[Sample]:
    for shapes, axis in [
        ([(3,), (5,)], 0),
        ([(2, 3), (2, 5), (2, 1)], -1),
        ([(2, 3), (4, 3)], 0),
        ([(2, 1, 3), (2, 4, 3)], 1),
        ([(2, 0), (2, 3), (2, 0)], 1),
        ([(0, 2), (0, 2)], 0),
        ([(0, 2), (0, 3)], 1),
        ([(3, 3)] * 5, -2),
    ]:
        values = tuple(draw(dtype, shape, key=(op, i)) for i, shape in enumerate(shapes))
        yield Sample(op, (*values, np.array(axis, np.int32)))


def _pack(op: str, dtype: DType) -> Iterator[Sample]:
    for count, shape, axis in [
        (1, (3,), 0),
        (2, (3,), 1),
        (3, (), 0),
        (4, (2, 3), -1),
        (2, (2, 3), -2),
        (2, (0, 3), 0),
    ]:
        yield Sample(op, tuple(draw(dtype, shape, key=(op, i)) for i in range(count)), {"axis": axis})


# -- composites --------------------------------------------------------------------------------------------


def _bias_add(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        first = attributes.get("data_format") == "NCHW"
        for shape in [(2, 3, 4), (2, 3, 4, 5), (2, 2, 3, 4, 3), (0, 5, 2)] + [(3, 5), (0, 5)] * (not first):
            channels = shape[1] if first else shape[-1]
            yield Sample(op, (draw(dtype, shape), draw(dtype, (channels,), key=1)), attributes)


def _softmax(op: str, dtype: DType) -> Iterator[Sample]:
    for shape in [(5,), (3, 67), (2, 3, 4), (0, 4), (3, 1)]:
        yield Sample(op, (draw(dtype, shape, (-20.0, 20.0)),), scale=20.0 if op == "LogSoftmax" else 1.0)
    rows = [[-np.inf, -np.inf], [1e4, 1e4], [-np.inf, 1], [0, -0.0]]
    yield Sample(op, (np.array(rows).astype(dtype.numpy),), scale=1.0)


def _batch_norm(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        training, averages = attributes["is_training"], attributes.get("exponential_avg_factor", 1.0) != 1
        shapes = [(2, 3, 4, 5), (1, 1, 1, 3), (67, 2, 5, 3), *[(0, 2, 2, 3)] * (not training)]
        for shape in shapes:
            channels = shape[1] if attributes["data_format"] == "NCHW" else shape[-1]
            vectors = [draw(DType.F32, (channels,), (0.1, 3.0), (op, i)) for i in range(4)]
            image = draw(dtype, shape, key=op) + (2.0 if training else 0.0)
            yield Sample(op, (image.astype(dtype.numpy), *vectors), attributes, scale=40.0)
            if training and not averages:  # then there need be none before
                nothing = np.zeros(0, np.float32)
                yield Sample(op, (image.astype(dtype.numpy), *vectors[:2], nothing, nothing), attributes, scale=40.0)


def _batch_norm_grad(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        for shape in [(2, 3, 4, 5), (1, 1, 1, 3), (67, 2, 5, 3), (0, 2, 2, 3)]:
            channels = shape[1] if attributes["data_format"] == "NCHW" else shape[-1]
            vectors = [draw(DType.F32, (channels,), (0.1, 3.0), (op, i)) for i in range(3)]
            reserved = [np.zeros(0, np.float32)] * op.endswith("V3")
            operands = draw(dtype, shape, key=(op, 0)), draw(dtype, shape, key=(op, 1))
            terms = 4.0 * operands[0].size  # what the sums are made of, without signs
            yield Sample(op, (*operands, *vectors, *reserved), attributes, scale=40.0 + terms)


def _cross_entropy(op: str, dtype: DType) -> Iterator[Sample]:
    pairs: list[tuple[Shape, Shape]] = [
        ((3, 7), (3, 7)),
        ((3, 7), (1, 7)),
        ((7,), (3, 7)),
        ((0, 4), (0, 4)),
        ((3, 0), (3, 0)),
    ]
    for logits, labels in pairs:
        yield Sample(op, (draw(dtype, logits, (-20.0, 20.0)), draw(dtype, labels, (0.0, 1.0), key=1)), scale=100.0)
    rows = [[-np.inf, 1.0], [1e4, 1e4], [np.nan, 0.0], [0.0, -0.0]]
    chosen = [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]
    yield Sample(op, (np.array(rows).astype(dtype.numpy), np.array(chosen).astype(dtype.numpy)), scale=1.0)


def _sparse_cross_entropy(op: str, dtype: DType) -> Iterator[Sample]:
    for kind in (np.int32, np.int64):
        for rows, classes in [(3, 7), (1, 1), (67, 5), (2, 130), (0, 4)]:
            labels = _generator(op, rows).integers(0, classes, rows).astype(kind)
            yield Sample(op, (draw(dtype, (rows, classes), (-20.0, 20.0)), labels), scale=100.0)
        rows = [[-np.inf, 1.0], [-np.inf, 1.0], [1e4, 1e4], [np.nan, 0.0], [0.0, -0.0], [np.inf, 0.0]]
        labels = np.array([0, 1, 1, 1, 0, 1], kind)
        yield Sample(op, (np.array(rows).astype(dtype.numpy), labels), scale=1.0)


def _one_hot(op: str, dtype: DType) -> Iterator[Sample]:
    on, off = draw(dtype, (), key=1), draw(dtype, (), key=2)
    if dtype is DType.BOOL:
        on, off = np.array(True), np.array(False)
    for attributes in OPS[op].samples:
        for kind in (np.int32, np.int64):
            for shape, depth in [((5,), 7), ((2, 3), 67), ((4, 0), 3), ((3, 2), 1), ((2,), 0)]:
                indices = _generator(op, shape).integers(-1, depth + 1, shape).astype(kind)
                yield Sample(op, (indices, np.array(depth, np.int32), on, off), attributes)


def _range(op: str, dtype: DType) -> Iterator[Sample]:
    for numbers in [(0, 7, 1), (0, 100, 1), (3, 20, 4), (5, -6, -2), (0, 0, 1)]:
        yield Sample(op, tuple(np.array(n, dtype.numpy) for n in numbers))


def _bias_add_grad(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        first = attributes.get("data_format") == "NCHW"
        for shape in [(2, 3, 4), (2, 3, 4, 5), (2, 2, 3, 4, 3), (0, 5, 2), (131, 3, 2)] + [(3, 5), (0, 5)] * (
            not first
        ):
            yield Sample(op, (draw(dtype, shape),), attributes, scale=4.0 * float(max(np.prod(shape), 1)) ** 0.5)


def _gather(op: str, dtype: DType) -> Iterator[Sample]:
    for kind in (np.int32, np.int64):
        for table, shape, axis in [
            ((7,), (), 0),
            ((7,), (67,), 0),
            ((5, 67), (3,), 0),
            ((5, 3), (2, 4), 0),
            ((5, 16, 3), (2,), 0),
            ((4, 7), (5,), 1),
            ((4, 7, 33), (2, 3), 1),
            ((2, 3, 1), (0,), -1),
            ((0, 3), (0,), 0),
            ((2, 0), (3,), 0),
        ]:
            indices = _generator(op, table, shape).integers(0, max(table[axis], 1), shape).astype(kind)
            if op == "GatherV2":
                yield Sample(op, (draw(dtype, table), indices, np.array(axis, np.int32)))
            elif axis == 0:
                yield Sample(op, (draw(dtype, table), indices))


def _gather_nd(op: str, dtype: DType) -> Iterator[Sample]:
    for kind in (np.int32, np.int64):
        for table, shape in [
            ((7,), (1,)),
            ((7,), (67, 1)),
            ((5, 67), (3, 1)),
            ((5, 7), (2, 3, 2)),
            ((3, 4, 33), (2, 4, 2)),
            ((2, 3, 4, 5), (6, 3)),
            ((2, 3), (0, 2)),
            ((0, 3), (0, 1)),
        ]:
            columns = [
                _generator(op, table, shape, a).integers(0, max(table[a], 1), shape[:-1]) for a in range(shape[-1])
            ]
            yield Sample(op, (draw(dtype, table), np.stack(columns, -1).astype(kind)))


def _special_matrix(dtype: DType) -> Array:
    """Rows with one value each that goes wrong, and one of zeros."""
    rows = np.ones((6, 5))
    rows[:, 2] = [np.nan, np.inf, -np.inf, -0.0, 1e30, 1.0]
    rows[5] = -0.0
    return rows.astype(dtype.numpy)


def _matmul(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        for rows, depth, columns in [(3, 5, 7), (1, 4, 1), (67, 33, 20), (2, 0, 3), (0, 2, 3), (3, 2, 0), (1, 300, 9)]:
            left = (depth, rows) if attributes["transpose_a"] else (rows, depth)
            right = (columns, depth) if attributes["transpose_b"] else (depth, columns)
            operands = draw(dtype, left, key=(op, 0)), draw(dtype, right, key=(op, 1))
            yield Sample(op, operands, attributes, scale=16.0 * max(depth, 1))
    yield Sample(op, (_special_matrix(dtype), draw(dtype, (5, 4), (0.5, 2.0))), scale=1e31)


def _einsum(op: str, dtype: DType) -> Iterator[Sample]:
    sizes = {"a": 3, "b": 4, "c": 5, "d": 7, "e": 6}
    for attributes in OPS[op].samples:
        left, right = attributes["equation"].split("->")[0].split(",")
        operands = (draw(dtype, tuple(sizes[label] for label in labels), key=labels) for labels in (left, right))
        yield Sample(op, tuple(operands), attributes, scale=16.0 * 35)


def _convolution(op: str, dtype: DType) -> Iterator[Sample]:
    sizes = [
        ((2, 3, 4, 5), (1, 1), 7),
        ((1, 1, 1, 3), (1, 1), 1),
        ((1, 9, 7, 33), (1, 1), 20),
        ((3, 5, 2, 1), (1, 1), 6),
        ((2, 6, 7, 3), (3, 3), 5),
        ((1, 19, 9, 2), (3, 2), 17),
        ((1, 5, 8, 1), (2, 4), 1),
    ]
    for attributes in OPS[op].samples:
        for image, size, filters in sizes:
            operands = draw(dtype, image, key=(op, 0)), draw(dtype, (*size, image[-1], filters), key=(op, 1))
            yield Sample(op, operands, attributes, scale=16.0 * image[-1] * size[0] * size[1])


def _depthwise(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        for image, size in [
            ((2, 7, 6, 5), (3, 3)),
            ((1, 9, 9, 24), (3, 3)),
            ((1, 5, 17, 1), (1, 2)),
            ((1, 6, 5, 67), (3, 2)),
        ]:
            operands = draw(dtype, image, key=(op, 0)), draw(dtype, (*size, image[-1], 1), key=(op, 1))
            yield Sample(op, operands, attributes, scale=16.0 * size[0] * size[1])


def _pool(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        for image in [(2, 7, 6, 5), (1, 9, 9, 24), (3, 3, 17, 1), (1, 4, 5, 67), (0, 4, 4, 3)]:
            yield Sample(op, (draw(dtype, image, key=op),), attributes, scale=4.0)
        if op == "MaxPool" and dtype in (DType.F32, DType.F64):  # of halves oneDNN has another least one
            image = draw(dtype, (1, 6, 6, 8), key=op)
            image[0, ::2, 1::2, :3] = np.nan
            image[0, :, :, 4] = -np.inf
            image[0, 3, :, 5] = np.inf
            image[0, :, :, 6:] = [np.nan, -0.0]
            yield Sample(op, (image,), attributes)


PADS = [
    ((3,), [(1, 2)]),
    ((2, 3), [(0, 0), (2, 0)]),
    ((4, 3), [(1, 1), (0, 2)]),
    ((2, 3, 4, 2), [(0, 0), (1, 2), (2, 1), (0, 0)]),
    ((5, 33), [(0, 3), (1, 0)]),
    ((2, 3), [(0, 0), (0, 0)]),
]


def _pad(op: str, dtype: DType) -> Iterator[Sample]:
    for attributes in OPS[op].samples:
        for shape, around in PADS:
            for kind in (np.int32, np.int64):
                fill = [draw(dtype, (), key=(op, 2))] if op == "PadV2" else []
                yield Sample(op, (draw(dtype, shape), np.array(around, kind), *fill), attributes)
    if op != "MirrorPad":
        yield Sample(op, (draw(dtype, (0, 3)), np.array([(1, 0), (0, 1)], np.int32), *fill))


# -- the table ---------------------------------------------------------------------------------------------

Generate = Callable[[str, DType], Iterator[Sample]]
TABLE: dict[str, Generate] = {
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BROADCAST + SAME_SHAPE, _binary),
    **dict.fromkeys(DIVISION, _division),
    **dict.fromkeys(REDUCTIONS, _reduce),
    "Pow": _pow,
    "Select": _select,
    "SelectV2": _select,
    "ClipByValue": _clip,
    "Cast": _cast,
    "AddN": _add_n,
    "L2Loss": _l2_loss,
    "Reshape": _moved([(s, [_shapes(*t)], {}) for s, t in RESHAPE]),
    "Transpose": _moved([(s, [_shapes(*p)], {}) for s, p in TRANSPOSE]),
    "BroadcastTo": _moved([(s, [_shapes(*t)], {}) for s, t in BROADCAST_TO]),
    "Tile": _moved([(s, [_shapes(*m)], {}) for s, m in TILE]),
    "ExpandDims": _moved([(s, [np.array(a, np.int32)], {}) for s in [(), (3, 5), (0,)] for a in (0, -1)]),
    "Squeeze": _moved(
        [
            ((1, 3, 1), [], {}),
            ((1, 3, 1), [], {"squeeze_dims": (0,)}),
            ((1, 3, 1), [], {"squeeze_dims": (-1, 0)}),
        ]
    ),
    "StridedSlice": _moved(STRIDED_SLICES),
    "Slice": _moved([(s, [_shapes(*b), _shapes(*n)], {}) for s, b, n in SLICES]),
    "ReverseV2": _moved(
        [
            (s, [_shapes(*a)], {})
            for s, a in [
                ((7,), [0]),
                ((3, 5), [-1]),
                ((2, 3, 4), [0, 2]),
                ((0, 3), [0]),
                ((3, 1), [1]),
                ((3, 2), []),
            ]
        ]
    ),
    "Fill": _fill,
    "Split": _split,
    "SplitV": _split_v,
    "Unpack": _unpack,
    "ConcatV2": _concat,
    "Pack": _pack,
    "BiasAdd": _bias_add,
    "BiasAddV1": _bias_add,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "FusedBatchNorm": _batch_norm,
    "FusedBatchNormV2": _batch_norm,
    "FusedBatchNormV3": _batch_norm,
    "FusedBatchNormGrad": _batch_norm_grad,
    "FusedBatchNormGradV2": _batch_norm_grad,
    "FusedBatchNormGradV3": _batch_norm_grad,
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "BiasAddGrad": _bias_add_grad,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
    "OneHot": _one_hot,
    "Range": _range,
    "Gather": _gather,
    "GatherV2": _gather,
    "GatherNd": _gather_nd,
    "MatMul": _matmul,
    "Conv2D": _convolution,
    "DepthwiseConv2dNative": _depthwise,
    "MaxPool": _pool,
    "AvgPool": _pool,
    "Pad": _pad,
    "PadV2": _pad,
    "MirrorPad": _pad,
    "Einsum": _einsum,
}


def samples(op: str, dtype: DType) -> list[Sample]:
    if op not in TABLE:
        raise LookupError(f"{op} has no samples: add it to TABLE in tests/ops/samples.py")
    return list(TABLE[op](op, dtype))


__all__ = ["is_float", "samples"]
