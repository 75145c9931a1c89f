"""Ops whose operands hold dims that are known only at run time: the bodies they become."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Body, BodyBuilder, Extent
from tf_stitch.ir.graph import Node
from tf_stitch.ir.printer import print_body
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import verify_body
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Operands
from tf_stitch.ops.extents import IDLE

B, S = Dim.symbol("B"), Dim.symbol("S")


def f32(*dims: int | str | Dim) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def body(op: str, *operands: TensorType | list[int] | tuple[Dim, ...], **attributes: Any) -> Body:
    """A type is data, a list a constant, a tuple of dims an operand that was computed from shapes."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    values = [b.input(o) if isinstance(o, TensorType) else None for o in operands]
    constants = tuple(np.array(o, np.int32) if isinstance(o, list) else None for o in operands)
    extents = tuple(o if isinstance(o, tuple) else None for o in operands)
    node = Node("node", op, (), (), attributes=attributes)
    result = OPS[op].expand(b, Operands(node, tuple(values), constants, extents))
    steps = [result] if isinstance(result, int) else [r for r in result if r is not None]
    finished = b.finish(steps)
    verify_body(finished, FUNCTIONS, REDUCERS)
    return finished


def shape_after(op: str, *operands: Any, **attributes: Any) -> str:
    """The type of the (first) output, and what it requires."""
    found = body(op, *operands, **attributes)
    required = "".join(f", {small} <= {large}" for small, large in found.requires)
    return str(found.steps[found.outputs[0]].type)[3:] + required


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        (f32("B", "S", 768), [-1, 768], "[B*S, 768]"),
        (f32(Dim(1, ("B", "S")), 768), (B, S, Dim(12), Dim(64)), "[B, S, 12, 64]"),
        (f32("B", "S", 768), (B, Dim(-1), Dim(12), Dim(64)), "[B, S, 12, 64]"),
        (f32("B", 12), [-1, 3, 4], "[B, 3, 4]"),
        (f32("B", 3), (Dim(3, ("B",)),), "[3*B]"),
    ],
)
def test_reshape(source: TensorType, target: Any, wanted: str) -> None:
    assert shape_after("Reshape", source, target) == wanted


OPEN = {"begin_mask": 1, "end_mask": 1}  # x[:, ...


@pytest.mark.parametrize(
    ("operands", "masks", "wanted"),
    [
        # x[:, 0]: there has to be a first
        ((f32("B", "S"), [0, 0], [0, 1], [1, 1]), OPEN | {"shrink_axis_mask": 2}, "[B], 1 <= S"),
        # x[:5] and x[1:5:2]
        ((f32("S", 8), [0], [5], [1]), {}, "[5, 8], 5 <= S"),
        ((f32("S"), [1], [5], [2]), {}, "[2], 5 <= S"),
        # table[:S]: position embeddings; x[:S] of an axis of S
        ((f32(512, 8), [0], (S,), [1]), {}, "[S, 8], S <= 512"),
        ((f32("S", 8), [0], (S,), [1]), {}, "[S, 8]"),
        # x[...] and x[:, tf.newaxis]
        ((f32("B", "S"), [0], [0], [1]), {"ellipsis_mask": 1}, "[B, S]"),
        ((f32("B", "S"), [0, 0], [0, 0], [1, 1]), OPEN | {"new_axis_mask": 2}, "[B, 1, S]"),
        # x[::2] of an even axis, and x[2:2]
        ((f32(Dim(2, ("S",))), [0], [0], [2]), OPEN, "[S]"),
        ((f32("S"), [2], [2], [1]), {}, "[0], 2 <= S"),
        # of any axis: x[1:], x[:-1], x[2:-3:2] and x[::2], of which nothing may be left
        ((f32("S"), [1], [0], [1]), {"end_mask": 1}, "[(S - 1)]"),
        ((f32("S"), [0], [-1], [1]), {}, "[(S - 1)]"),
        ((f32("S"), [2], [-3], [2]), {}, "[((S - 4)/2)]"),
        ((f32("S"), [0], [0], [2]), OPEN, "[((S + 1)/2)]"),
    ],
)
def test_strided_slice(operands: Any, masks: dict[str, int], wanted: str) -> None:
    assert shape_after("StridedSlice", *operands, **masks) == wanted


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks"),
    [
        ([-1], [0], [1], {"shrink_axis_mask": 1}),  # x[-1]
        ([-2], [0], [1], {"end_mask": 1}),  # x[-2:]
        ([0], [0], [-1], {"begin_mask": 1, "end_mask": 1}),  # x[::-1]
    ],
)
def test_slices_from_an_unknown_end_are_refused(begin: Any, end: Any, strides: Any, masks: Any) -> None:
    with pytest.raises(Unsupported) as refusal:
        body("StridedSlice", f32("S"), begin, end, strides, **masks)
    assert refusal.value.reason is Reason.UNKNOWN_DIM


def test_an_index_out_of_range_is_refused() -> None:
    with pytest.raises(Unsupported):
        body("StridedSlice", f32(3), [3], [4], [1], shrink_axis_mask=1)
    with pytest.raises(Unsupported):
        body("StridedSlice", f32(3), [-4], [4], [1], shrink_axis_mask=1)


def test_slice() -> None:
    assert shape_after("Slice", f32("B", 8), [0, 2], [-1, 3]) == "[B, 3]"
    assert shape_after("Slice", f32("S", 8), [2, 0], [3, 8]) == "[3, 8], 5 <= S"
    assert shape_after("Slice", f32(512, 8), [0, 0], (S, Dim(8))) == "[S, 8], S <= 512"
    assert shape_after("Slice", f32(512, 8), [1, 0], (S, Dim(8))) == "[S, 8], (S + 1) <= 512"
    assert shape_after("Slice", f32("S", 8), [2, 0], [-1, 8]) == "[(S - 2), 8], 2 <= S"
    with pytest.raises(Unsupported):
        body("Slice", f32(512, 8), [513, 0], [-1, 8])


def test_padding_and_windows() -> None:
    filter_ = f32(3, 3, 8, 5)
    assert shape_after("Pad", f32("B", "S"), [[0, 0], [1, 2]]) == "[B, (S + 3)]"
    ones = {"strides": (1, 1, 1, 1), "padding": "SAME"}
    assert shape_after("Conv2D", f32("B", "S", 7, 8), filter_, **ones) == "[B, S, 7, 5], 3 <= (S + 2)"
    twos = {"strides": (1, 2, 2, 1), "padding": "VALID"}
    assert shape_after("Conv2D", f32("B", "S", 7, 8), filter_, **twos) == "[B, ((S - 1)/2), 3, 5], 3 <= S"
    twos["padding"] = "SAME"  # what is around it depends on whether S is even
    assert shape_after("Conv2D", f32("B", "S", 7, 8), filter_, **twos).startswith("[B, ((S + 1)/2), 4, 5], 3 <= ")
    assert shape_after("Conv2D", f32("B", "S", 7, 8), f32(1, 1, 8, 5), **twos) == "[B, ((S + 1)/2), 4, 5], 1 <= S"
    with pytest.raises(Unsupported):  # whether there is anything around it
        body("Conv2D", f32("B", "S", 7, 8), f32(2, 2, 8, 5), **(twos | {"strides": (1, 3, 3, 1)}))


def test_repetition() -> None:
    assert shape_after("BroadcastTo", f32(1, 8), (B, Dim(8))) == "[B, 8]"
    assert shape_after("Tile", f32(1, "S"), (B, Dim(1))) == "[B, S]"
    assert shape_after("Fill", (B, Dim(4)), f32()) == "[B, 4]"
    with pytest.raises(Unsupported):
        body("Tile", f32("B", 2), [1, 2])
    with pytest.raises(Unsupported):
        body("Fill", [2, -1], f32())


def test_squeeze() -> None:
    assert shape_after("Squeeze", f32("B", 1, 8), squeeze_dims=(1,)) == "[B, 8]"
    assert shape_after("Squeeze", f32("B", "S"), squeeze_dims=(1,)) == "[B]"  # under the assumption that S is 1
    with pytest.raises(Unsupported) as refusal:
        body("Squeeze", f32("B", 1))
    assert refusal.value.reason is Reason.UNKNOWN_RANK


def test_pieces_of_an_unknown_extent_are_refused() -> None:
    with pytest.raises(Unsupported):
        body("Split", [0], f32("S"), num_split=2)
    assert shape_after("Split", [1], f32("S", 6), num_split=2) == "[S, 3]"
    with pytest.raises(Unsupported):
        body("ReverseV2", f32("S"), [0])


def test_what_no_operand_tells_is_refused() -> None:
    """A target that is neither a constant nor computed from shapes."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(f32("B", 8))
    node = Node("node", "Reshape", (), ())
    with pytest.raises(Unsupported) as refusal:
        OPS["Reshape"].expand(b, Operands(node, (x, None), (None, None), (None, None)))
    assert refusal.value.reason is Reason.UNKNOWN_DIM


def test_axes_that_are_computed_from_shapes() -> None:
    assert shape_after("Sum", f32("B", "S"), (Dim(1),)) == "[B]"
    assert shape_after("Sum", f32("B", "S"), ()) == "[B, S]"
    assert shape_after("Sum", f32("B", "S"), (Dim(1), IDLE), keep_dims=True) == "[B, 1]"
    for axes, kept in (((Dim(1), IDLE), False), ((B,), True)):  # which of B and 1 are left?
        with pytest.raises(Unsupported) as refusal:
            body("Sum", f32("B", "S"), axes, keep_dims=kept)
        assert refusal.value.reason is Reason.UNKNOWN_RANK


def test_mean_divides_by_an_extent() -> None:
    assert print_body(body("Mean", TensorType(DType.BF16, (B, S)), [1], keep_dims=True)) == dedent("""\
        %0 = input 0         : bf16[B, S]
        %1 = convert %0      : f32[B, S]
        %2 = sum %1 over (1) : f32[B, 1]
        %3 = extent S        : f32[]
        %4 = reshape %3      : f32[1, 1]
        %5 = broadcast %4    : f32[B, 1]
        %6 = div %2 %5       : f32[B, 1]
        %7 = convert %6      : bf16[B, 1]
        return %7
        """)


def batch_norm(op: str, *operands: TensorType, **attributes: Any) -> list[int | None]:
    """The steps of the outputs."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    values = tuple(map(b.input, operands))
    nothing = (None,) * len(values)
    result = OPS[op].expand(b, Operands(Node("node", op, (), (), attributes=attributes), values, nothing, nothing))
    assert not isinstance(result, int)
    return list(result)


def test_batch_normalisation_keeps_nothing_for_a_gradient_that_is_not_taken() -> None:
    operands = (f32("B", 2, 2, 3), *[f32(3)] * 4)
    kept = batch_norm("FusedBatchNormV3", *operands, is_training=False)
    assert [r is None for r in kept] == [False, False, False, True, True, False]
    assert None not in batch_norm("FusedBatchNormV3", *operands, is_training=True)
    assert len(batch_norm("FusedBatchNormV2", *operands, is_training=True)) == 5


def test_batch_normalisation_refuses_what_tensorflow_refuses() -> None:
    with pytest.raises(Unsupported, match="rank 4 or 5"):
        batch_norm("FusedBatchNormV3", f32("B", 3), *[f32(3)] * 4)
    with pytest.raises(Unsupported, match="channels first"):
        batch_norm(
            "FusedBatchNormGradV3", *[f32("B", 3, 2, 2)] * 2, *[f32(3)] * 4, is_training=False, data_format="NCHW"
        )
    with pytest.raises(Unsupported, match="channels"):  # no averages to be mixed with the batch's
        batch_norm("FusedBatchNormV3", f32("B", 2, 2, 3), f32(3), f32(3), f32(0), f32(0), exponential_avg_factor=0.5)


def test_the_number_of_elements_of_a_channel_is_a_product_of_extents() -> None:
    found = body("FusedBatchNormGradV3", *[f32("B", "S", 5, 3)] * 2, *[f32(3)] * 4, is_training=True)
    extents = [s.op for s in found.steps if isinstance(s.op, Extent)]
    assert {str(op.dim) for op in extents} == {"5*B*S"}


def test_cross_entropy_broadcasts_to_rank_2_only() -> None:
    assert shape_after("SoftmaxCrossEntropyWithLogits", f32("B", 8), f32(1, 8)) == "[B]"
    with pytest.raises(Unsupported, match="rank 2"):
        body("SoftmaxCrossEntropyWithLogits", f32(8), f32(8))
