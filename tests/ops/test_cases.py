"""Values that fusing compilers got wrong, with the right answers: TensorFlow's unfused CPU kernels'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.oracle import Sample, body_of, evaluated
from tf_stitch.errors import Unsupported
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.graph import Node
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Operands
from tf_stitch.runtime.reference import evaluate

NAN, INF = np.nan, np.inf
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def run(op: str, *operands: Any, known: tuple[int, ...] = (), **attributes: Any) -> Any:
    """The op's first output; a plain list is f32."""
    arrays = tuple(np.asarray(o, None if isinstance(o, np.ndarray | np.generic) else np.float32) for o in operands)
    sample = Sample(op, arrays, attributes, frozenset(known))
    return evaluated(body_of(sample)[0], sample)[0]


def i32(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


def same(result: np.ndarray[Any, Any], wanted: Any) -> None:
    """Equal, NaN to NaN, -0 apart from 0."""
    wanted = np.asarray(wanted, result.dtype)
    np.testing.assert_array_equal(result.astype(np.float64), wanted.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(result) | np.isnan(result), np.signbit(wanted) | np.isnan(wanted))


class Program:
    """Several nodes in one body: `p.node("AddV2", p.input(x), p.input(y))`."""

    def __init__(self) -> None:
        self.builder = BodyBuilder(FUNCTIONS, REDUCERS)
        self.fed: list[np.ndarray[Any, Any]] = []

    def input(self, values: np.ndarray[Any, Any]) -> int:
        dtype = next(d for d in DType if d is not DType.OTHER and d.numpy == values.dtype)
        self.fed.append(values)
        return self.builder.input(TensorType(dtype, shape_of(*values.shape)))

    def node(self, op: str, *operands: int | np.ndarray[Any, Any], **attributes: Any) -> int:
        """An array stands for a constant operand."""
        static = OPS[op].static_operands(len(operands))
        values: list[int | None] = []
        for index, operand in enumerate(operands):
            if isinstance(operand, int):
                values.append(operand)
            else:
                values.append(None if index in static else self.input(operand))
        constants = tuple(None if isinstance(o, int) else o for o in operands)
        node = Node(op, op, (), (), attributes=attributes)
        result = OPS[op].expand(self.builder, Operands(node, tuple(values), constants, (None,) * len(operands)))
        assert isinstance(result, int)
        return result

    def run(self, output: int) -> np.ndarray[Any, Any]:
        return evaluate(self.body(output), self.fed, {})[0]

    def body(self, output: int) -> Body:
        return self.builder.finish([output])


def test_maximum_and_minimum_keep_nan_from_either_side() -> None:
    same(run("Maximum", [NAN, 1], [1, NAN]), [NAN, NAN])
    same(run("Minimum", [NAN, 1], [1, NAN]), [NAN, NAN])


def test_rectifiers_keep_nan() -> None:
    same(run("Relu6", [NAN, -1, 7]), [NAN, 0, 6])
    same(run("Relu", [NAN, -1, 7]), [NAN, 0, 7])
    same(run("ClipByValue", [NAN, 5], np.float32(0), np.float32(1)), [NAN, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, DType.BF16.numpy.type])
def test_zeros_of_either_sign(dtype: Any) -> None:
    """As TensorFlow's kernels have it in whole vectors, with a constant zero on either side, too."""
    zeros, others = np.array([0.0, -0.0, 0.0, -0.0] * 16, dtype), np.array([0.0, 0.0, -0.0, -0.0] * 16, dtype)
    for op in ("Maximum", "Minimum"):
        theirs = getattr(tf.raw_ops, op)(x=zeros, y=others).numpy()
        same(run(op, zeros, others), theirs)
        for zero in (dtype(0.0), dtype(-0.0)):
            # not of a scalar, which TensorFlow's f64 kernels have a path of their own for
            same(run(op, zeros, zero), getattr(tf.raw_ops, op)(x=zeros, y=np.full_like(zeros, zero)).numpy())
            same(run(op, zero, zeros), getattr(tf.raw_ops, op)(x=np.full_like(zeros, zero), y=zeros).numpy())
    same(run("Relu", zeros), tf.raw_ops.Relu(features=zeros).numpy())
    same(run("Relu6", zeros), tf.raw_ops.Relu6(features=zeros).numpy())


def test_gradient_of_a_maximum_keeps_nan_and_splits_ties() -> None:
    """As tf.gradients writes it: the indicators of equality, divided by their number, times the gradient."""

    def gradient(values: list[float]) -> np.ndarray[Any, Any]:
        p = Program()
        x = p.input(np.array(values, np.float32))
        largest = p.node("Max", x, i32(0), keep_dims=True)
        hits = p.node("Cast", p.node("Equal", largest, x), DstT=DType.F32)
        return p.run(
            p.node(
                "Mul",
                p.node("RealDiv", hits, p.node("Sum", hits, i32(0), keep_dims=True)),
                p.node("OnesLike", x),
            )
        )

    same(gradient([1, NAN, 2]), [NAN, NAN, NAN])
    same(gradient([1, 3, 3]), [0, 0.5, 0.5])


def test_unsigned_and_small_integers_are_left_alone() -> None:
    with pytest.raises(Unsupported, match="DTYPE"):
        run("Cast", [-1.0, 256.0], DstT=DType.OTHER)


def test_i32_wraps_before_it_is_widened() -> None:
    p = Program()
    a = p.input(i32(INT_MAX))
    wide = p.node("Cast", p.node("AddV2", a, a), DstT=DType.I64)
    assert p.run(p.node("FloorDiv", wide, np.array(2, np.int64))) == [-1]


def test_integer_mean_does_not_overflow() -> None:
    assert run("Mean", i32(INT_MAX, INT_MAX).reshape(1, 2), i32(1)) == [INT_MAX]
    assert run("Sum", i32(INT_MAX, INT_MAX).reshape(1, 2), i32(1)) == [-2]
    assert run("Mean", i32(-1, -2), i32(0)) == -1


@pytest.mark.parametrize("op", ["FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"])
def test_an_integer_division_that_can_fail_is_refused(op: str) -> None:
    with pytest.raises(Unsupported, match="can fail"):
        run(op, i32(3), i32(2))
    with pytest.raises(Unsupported, match="can fail"):
        run(op, i32(3, 3), i32(2, 0), known=(1,))


def test_hardware_defined_integers() -> None:
    assert run("FloorDiv", i32(INT_MIN), i32(-1), known=(1,)) == [INT_MIN]
    assert run("TruncateDiv", i32(INT_MIN), i32(-1), known=(1,)) == [INT_MIN]
    assert run("FloorMod", i32(INT_MIN), i32(-1), known=(1,)) == [0]
    assert run("Abs", i32(INT_MIN)) == [INT_MIN]
    assert run("SquaredDifference", i32(INT_MIN), i32(1)) == [1]


def test_float_powers() -> None:
    same(run("Pow", [0, -0.0, NAN, 1], [-1, -1, 0, NAN]), [INF, -INF, 1, 1])
    same(run("Pow", np.float32(3), [2.0], known=(1,)), [9])  # of shape [1], which TensorFlow's optimizer loses
    with pytest.raises(Unsupported, match="DTYPE"):
        run("Pow", i32(2), i32(-1))


def test_constants_are_told_apart_by_their_bits() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    assert b.constant(0.0, DType.F32) != b.constant(-0.0, DType.F32)
    assert b.constant(0.0, DType.F32) == b.constant(0.0, DType.F32)


def test_functions_of_constants_are_computed_at_once() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    ten, third = b.constant(10.0, DType.F32), b.constant(1 / 3, DType.F16)
    assert b.apply("log", ten) == b.constant(np.log(10.0), DType.F32)
    assert b.apply("add", third, third) == b.constant(np.float16(1 / 3) * 2, DType.F16)
    assert b.apply("less", ten, ten) == b.constant(False, DType.BOOL)
    assert b.apply("div", ten, b.constant(-0.0, DType.F32)) == b.constant(-np.inf, DType.F32)
    assert b.apply("mul", ten, b.input(TensorType(DType.F32, ()))) not in (ten, b.constant(10.0, DType.F32))


def test_adding_zero_is_no_identity() -> None:
    same(run("AddV2", [-0.0], [0.0]), [0.0])
    same(run("Sub", [0.0], [0.0]), [0.0])


def test_sums_are_not_reassociated() -> None:
    p = Program()
    x, y, z = (p.input(np.float32([v])) for v in (1e8, 1, 1e8))
    assert p.run(p.node("Sub", p.node("AddV2", x, y), z)) == [0]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_halves_accumulate_in_f32(dtype: DType) -> None:
    assert run("Mean", np.full(4096, 100, dtype.numpy), i32(0)) == 100
    assert run("Sum", np.ones(4096, dtype.numpy), i32(0)) == 4096


def test_a_narrowing_cast_rounds() -> None:
    p = Program()
    x = p.input(np.float32([1.00390625, 1.001, 1.01171875]))
    back = p.node("Cast", p.node("Cast", x, DstT=DType.BF16), DstT=DType.F32)
    same(p.run(back), [1, 1, 1.015625])


def test_mixed_dtypes_convert_at_each_edge() -> None:
    p = Program()
    x = p.input(np.array([1.0], np.float16))
    product = p.node("Mul", p.node("Cast", p.node("Tanh", x), DstT=DType.F32), p.input(np.float32([2])))
    same(p.run(product), np.float32(np.float16(np.tanh(1.0))) * np.float32([2]))


@pytest.mark.parametrize(
    ("op", "dtype", "wanted"),
    [
        ("Sum", np.float32, 0),
        ("Mean", np.float32, NAN),
        ("Max", np.float32, -INF),
        ("Min", np.float32, INF),
        ("Prod", np.float32, 1),
        ("Max", np.int32, INT_MIN),
        ("Min", np.int32, INT_MAX),
        ("Mean", np.int32, 0),
        ("All", np.bool_, True),
        ("Any", np.bool_, False),
    ],
)
def test_reductions_of_nothing(op: str, dtype: type[np.generic], wanted: float) -> None:
    result = run(op, np.zeros((2, 0), dtype), i32(1))
    np.testing.assert_array_equal(result, np.full(2, wanted, dtype))


def test_broadcast_of_one_against_nothing() -> None:
    p = Program()
    total = p.node("AddV2", p.input(np.zeros((1, 3), np.float32)), p.input(np.zeros((0, 1), np.float32)))
    same(p.run(p.node("Sum", total, i32(0))), [0, 0, 0])


def test_scalars() -> None:
    assert run("Sum", np.float32(3), i32()) == 3
    assert run("Max", np.float32(3), i32(), keep_dims=True).shape == ()
    with pytest.raises(Unsupported, match="rank 0"):
        run("Sum", np.float32(3), i32(-1))


def test_axes_given_twice_are_refused() -> None:
    with pytest.raises(Unsupported, match="twice"):
        run("Sum", [[1.0]], i32(0, -2))


def test_softmax_of_extremes() -> None:
    same(run("Softmax", [[-INF, -INF], [1e4, 1e4]]), [[NAN, NAN], [0.5, 0.5]])


def test_guarded_products() -> None:
    same(run("Xlogy", [0.0], [NAN]), [0])
    same(run("Xdivy", [0.0], [0.0]), [0])
    same(run("DivNoNan", [NAN], [0.0]), [0])
    same(run("MulNoNan", [INF], [0.0]), [0])


def test_halves_round_to_even() -> None:
    same(run("Round", [0.5, 1.5, 2.5, -0.5]), [0, 2, 2, -0.0])
    same(run("Cast", i32(65519, 65520), DstT=DType.F16), [65504, INF])


def test_float_to_integer_out_of_range() -> None:
    result = run("Cast", [NAN, INF, -INF, 3e9, -1.9], DstT=DType.I32)
    np.testing.assert_array_equal(result, [INT_MIN, INT_MIN, INT_MIN, INT_MIN, -1])


def test_a_bias_does_not_enlarge() -> None:
    with pytest.raises(Unsupported, match="channels"):
        run("BiasAdd", np.zeros((2, 1), np.float32), np.zeros(3, np.float32))
    with pytest.raises(Unsupported):
        run("ClipByValue", np.zeros((1, 1), np.float32), np.zeros(2, np.float32), np.float32(1))
    with pytest.raises(Unsupported):
        run("ReluGrad", np.zeros(2, np.float32), np.zeros(1, np.float32))
