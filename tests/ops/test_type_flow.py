"""Dims through shape arithmetic (`extents_of`) and through compute-intensive ops (`COMPUTE_TYPES`).

Each test builds a TensorFlow graph over inputs of known shape, walks it with symbols for chosen dims, and
compares with what TensorFlow infers and computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_stitch.ir.graph import Node
from tf_stitch.ir.symbols import Symbols, completed
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ops.compute import COMPUTE_TYPES
from tf_stitch.ops.extents import IDLE, extents_of, extents_of_outputs

v1 = tf.compat.v1
DTYPES = {
    tf.float32: DType.F32,
    tf.float16: DType.F16,
    tf.int32: DType.I32,
    tf.int64: DType.I64,
    tf.bool: DType.BOOL,
}


class Walk:
    """Types, constants and extents of a graph, op by op; `symbols` names the dims of inputs that have one."""

    def __init__(self, graph: tf.Graph, symbols: dict[int, str]) -> None:
        self.types: dict[str, TensorType | None] = {}
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.extents: dict[str, tuple[Dim, ...]] = {}
        self.derived = Symbols()
        for op in graph.get_operations():
            self._visit(op, symbols)

    def _visit(self, op: tf.Operation, symbols: dict[int, str]) -> None:
        declared = tuple(self._declared(t) for t in op.outputs)
        names = [t.name for t in op.inputs]
        types = tuple(self.types[n] for n in names)
        constants = [self.constants.get(n) for n in names]
        extents = [self.extents.get(n) for n in names]
        found: tuple[TensorType | None, ...] = declared
        if op.type == "Placeholder":
            dims = [Dim.symbol(symbols[d]) if d in symbols else Dim(d) for d in op.outputs[0].shape]
            found = (TensorType(declared[0].dtype, tuple(dims)),)
        elif op.type == "Const":
            self.constants[op.outputs[0].name] = tf.make_ndarray(op.get_attr("value"))
        elif None not in types:
            node = Node(op.name, op.type, (), declared, attributes=attributes_of(op))
            dims = extents_of(node, types, constants, extents)
            if dims is not None:
                self.extents[op.outputs[0].name] = dims
            if op.type in COMPUTE_TYPES:
                found = COMPUTE_TYPES[op.type](node, types, constants, extents, self.derived)
        for tensor, type_ in zip(op.outputs, found, strict=True):
            self.types[tensor.name] = type_

    @staticmethod
    def _declared(tensor: tf.Tensor) -> TensorType:
        dims = None if tensor.shape.rank is None or None in tensor.shape.as_list() else tensor.shape.as_list()
        return TensorType(DTYPES.get(tensor.dtype, DType.OTHER), None if dims is None else shape_of(*dims))


def attributes_of(op: tf.Operation) -> dict[str, Any]:
    return {name: plain(op.get_attr(name)) for name in op.node_def.attr if not name.startswith("_")}


def plain(value: Any) -> Any:
    if isinstance(value, tf.DType):
        return DTYPES.get(value, DType.OTHER)
    if isinstance(value, list):
        return tuple(map(plain, value))
    return value.decode() if isinstance(value, bytes) else value


def built(build: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[tf.Graph, list[tf.Tensor], Any]:
    with tf.Graph().as_default() as graph:
        inputs = [v1.placeholder(tf.float32, s) for s in shapes]
        result = build(*inputs)
    return graph, inputs, result


# -- extents -----------------------------------------------------------------------------------------------

B, S = 7, 11
SYMBOLS = {"B": B, "S": S}


def dims_of(build: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    """What `build` computes, as text, after a check against TensorFlow's own values."""
    graph, inputs, result = built(build, *shapes)
    walk = Walk(graph, {B: "B", S: "S"})
    dims = walk.extents.get(result.name)
    if dims is None:
        return "unknown"
    with v1.Session(graph=graph) as session:
        fed = {i: np.zeros(i.shape, np.float32) for i in inputs}
        np.testing.assert_array_equal(session.run(result, fed).reshape(-1), [d.evaluate(SYMBOLS) for d in dims])
    return ", ".join(map(str, dims))


def shape(x: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.Shape(input=x)


def reduced_shape(x: tf.Tensor, axes: list[int] | int) -> tf.Tensor:
    """The shape with ones for the axes, as gradients of reductions write it."""
    rank = tf.raw_ops.Rank(input=x)
    places = (tf.constant(axes, tf.int32) + rank) % rank
    return tf.dynamic_stitch([tf.range(rank), places], [shape(x), tf.ones_like(places)])


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (shape, "B, 8, S"),
        (lambda x: tf.raw_ops.Size(input=x), "8*B*S"),
        (lambda x: tf.raw_ops.Rank(input=x), "3"),
        (lambda x: shape(x)[0], "B"),
        (lambda x: shape(x)[-1], "S"),
        (lambda x: shape(x)[:2], "B, 8"),
        (lambda x: shape(x)[1:], "8, S"),
        (lambda x: shape(x)[::2], "B, S"),
        (lambda x: shape(x)[::-1], "S, 8, B"),
        (lambda x: tf.slice(shape(x), [1], [-1]), "8, S"),
        (lambda x: tf.gather(shape(x), [2, 0]), "S, B"),
        (lambda x: tf.gather(shape(x), 2), "S"),
        (lambda x: tf.stack([shape(x)[0], shape(x)[1] * shape(x)[2]]), "B, 8*S"),
        (lambda x: tf.stack([shape(x)[0], -1, 4]), "B, -1, 4"),
        (lambda x: tf.reshape(tf.transpose(tf.stack([[1, 2, 1], shape(x)])), [-1]), "1, B, 2, 8, 1, S"),
        (lambda x: tf.concat([shape(x)[:1], [16, 2]], 0), "B, 16, 2"),
        (lambda x: tf.cast(shape(x), tf.int64), "B, 8, S"),
        (lambda x: tf.reduce_prod(shape(x)), "8*B*S"),
        (lambda x: tf.reduce_prod(shape(x)[1:], axis=0), "8*S"),
        (lambda x: tf.reduce_prod(shape(x)[:1], axis=0, keepdims=True), "B"),
        (lambda x: tf.reduce_prod(shape(x)[:0]), "1"),
        (lambda x: tf.reduce_sum(shape(x)[1:2]), "8"),
        (lambda x: shape(x)[0] * 4, "4*B"),
        (lambda x: 2 * shape(x) * shape(x)[0], "2*B*B, 16*B, 2*B*S"),
        (lambda x: shape(x)[0] + shape(x)[0], "2*B"),
        (lambda x: shape(x)[0] + 1, "unknown"),
        (lambda x: shape(x)[0] + 0, "B"),
        (lambda x: shape(x)[1] - 3, "5"),
        (lambda x: shape(x)[0] * 3 - shape(x)[0], "2*B"),
        (lambda x: shape(x)[0] - shape(x)[0], "0"),
        (lambda x: shape(x)[0] - 1, "unknown"),
        (lambda x: shape(x)[0] * 6 // 3, "2*B"),
        (lambda x: shape(x)[0] // 2, "unknown"),
        (lambda x: tf.reduce_prod(shape(x)) // shape(x)[0], "8*S"),
        (lambda x: shape(x)[0] // shape(x)[0], "1"),
        (lambda x: tf.maximum(shape(x), 0), "B, 8, S"),
        (lambda x: tf.maximum(shape(x)[0], 1), "unknown"),
        (lambda x: tf.minimum(shape(x)[1], 5), "5"),
        (lambda x: tf.reshape(shape(x), [3, 1]), "B, 8, S"),
        (lambda x: tf.squeeze(tf.reshape(shape(x), [3, 1]), 1), "B, 8, S"),
        (lambda x: tf.expand_dims(shape(x)[0], 0), "B"),
        (lambda x: tf.identity(shape(x)), "B, 8, S"),
        (lambda x: tf.range(tf.rank(x)), "0, 1, 2"),
        (lambda x: tf.range(shape(x)[0]), "unknown"),
        (lambda x: tf.fill([2], shape(x)[0]), "B, B"),
        (lambda x: shape(x)[1] % 3, "2"),
        (lambda x: (tf.constant([-1, 0]) + tf.rank(x)) % tf.rank(x), "2, 0"),
        (lambda x: shape(x)[0] * 6 % 3, "0"),
        (lambda x: shape(x)[0] % 3, "unknown"),
        (lambda x: tf.raw_ops.OnesLike(x=shape(x)), "1, 1, 1"),
        (lambda x: tf.raw_ops.ZerosLike(x=shape(x)[:2]), "0, 0"),
        (lambda x: tf.gather(shape(x), tf.raw_ops.InvertPermutation(x=[2, 0, 1])), "8, S, B"),
        (lambda x: tf.raw_ops.BroadcastArgs(s0=shape(x), s1=[8, 1]), "B, 8, S"),
        (lambda x: tf.raw_ops.BroadcastArgs(s0=[1, 1, 1, 1], s1=shape(x)), "1, B, 8, S"),
        (lambda x: tf.raw_ops.BroadcastArgs(s0=shape(x)[:1], s1=[B]), f"{B}"),
        (lambda x: tf.raw_ops.BroadcastArgs(s0=shape(x)[:2], s1=tf.stack([shape(x)[0], 8])), "B, 8"),
        (lambda x: reduced_shape(x, 1), "B, 1, S"),
        (lambda x: reduced_shape(x, [0, -1]), "1, 8, 1"),
        (lambda x: reduced_shape(x, []), "B, 8, S"),
        (lambda x: tf.dynamic_stitch([[2], [0, 1]], [shape(x)[:1], shape(x)[1:]]), "8, S, B"),
        (lambda x: tf.dynamic_stitch([[0], [2]], [shape(x)[:1], shape(x)[1:2]]), "unknown"),
        (lambda x: tf.cast(tf.cast(shape(x), tf.float32), tf.int32), "unknown"),
        (lambda x: -shape(x)[0], "unknown"),
        (lambda x: shape(x)[0] * -1, "unknown"),
    ],
)
def test_extents(build: Callable[..., Any], wanted: str) -> None:
    assert dims_of(build, (B, 8, S)) == wanted


def test_extents_of_several_outputs() -> None:
    types = (TensorType(DType.F32, shape_of("B", 4)), TensorType(DType.F32, None))
    shapes = Node("n", "ShapeN", (), (), attributes={"N": 2})
    assert extents_of_outputs(shapes, types, [None, None], [None, None]) == (shape_of("B", 4), None)
    pieces = Node("n", "Unpack", (), (), attributes={"num": 2})
    vector = (TensorType(DType.I32, shape_of(2)),)
    assert extents_of_outputs(pieces, vector, [None], [shape_of("B", 4)]) == (shape_of("B"), shape_of(4))
    assert extents_of_outputs(pieces, vector, [None], [None]) == (None, None)
    rank = Node("n", "Rank", (), ())
    assert extents_of_outputs(rank, types[:1], [None], [None]) == (shape_of(2),)


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        (("B", 8), ("B", 8), ("", "")),
        (("B", 1), ("B", 1), ("", "")),
        (("B", "S", 8), ("B", 1, 8), ("idle", "1, idle")),
        (("B", "S", 8), (8,), ("idle", "0, 1")),
        ((), ("B", "S"), ("0, 1", "idle")),
        (("B", 1), (1, "S"), ("1, idle", "0, idle")),
        ((3, 1), (3, 5), ("1", "")),
        (("B", 8), (5, 1), ("unknown", "1")),  # B is 5 or 1
        (("B",), ("S",), ("unknown", "unknown")),
        ((), (), ("", "")),
    ],
)
def test_axes_that_gradients_of_broadcasts_are_summed_over(left: Any, right: Any, wanted: tuple[str, str]) -> None:
    """As TensorFlow computes them; where it says so, but for axes over one element."""
    shapes = (shape_of(*left), shape_of(*right))
    node = Node("n", "BroadcastGradientArgs", (), ())
    vectors = tuple(TensorType(DType.I32, (Dim(len(s)),)) for s in shapes)
    found = extents_of_outputs(node, vectors, [None, None], shapes)
    assert tuple("unknown" if axes is None else ", ".join(map(str, axes)) for axes in found) == wanted
    for symbols in ({"B": 5, "S": 7}, {"B": 1, "S": 7}, {"B": 5, "S": 1}, {"B": 1, "S": 1}):
        sizes = [[d.evaluate(symbols) for d in s] for s in shapes]
        try:
            result = np.broadcast_shapes(*map(tuple, sizes))
        except ValueError:
            continue
        theirs = tf.raw_ops.BroadcastGradientArgs(s0=np.int32(sizes[0]), s1=np.int32(sizes[1]))
        for mine, other in zip(found, theirs, strict=True):
            if mine is not None:
                besides = set(other.numpy().tolist()) ^ {d.coefficient for d in mine if d != IDLE}
                assert all(result[axis] == 1 for axis in besides)
                assert IDLE in mine or not besides


@pytest.mark.parametrize(
    ("axis", "shapes", "wanted"),
    [
        (1, [("B", 3), ("B", 5), ("B", 2)], ["0, 0", "0, 3", "0, 8"]),
        (-1, [(4, 3), (4, 0), (4, 2)], ["0, 0", "0, 3", "0, 3"]),
        (0, [(2, "S"), ("B", "S"), (7, "S"), (1, "S")], ["0, 0", "2, 0", "unknown", "unknown"]),
        (0, [(6,), (2,)], ["0", "6"]),
    ],
)
def test_where_operands_of_a_concatenation_begin(axis: int, shapes: Any, wanted: list[str]) -> None:
    dims = [shape_of(*s) for s in shapes]
    vectors = [TensorType(DType.I32, ()), *(TensorType(DType.I32, (Dim(len(s)),)) for s in dims)]
    node = Node("n", "ConcatOffset", (), ())
    found = extents_of_outputs(node, vectors, [np.int32(axis), *[None] * len(dims)], [None, *dims])
    assert ["unknown" if at is None else ", ".join(map(str, at)) for at in found] == wanted
    sizes = [np.int32([d.evaluate({"B": 5, "S": 7}) for d in s]) for s in dims]
    for mine, theirs in zip(found, tf.raw_ops.ConcatOffset(concat_dim=axis, shape=sizes), strict=True):
        assert mine is None or [d.coefficient for d in mine] == theirs.numpy().tolist()


# -- compute -----------------------------------------------------------------------------------------------

raw = tf.raw_ops
CONVOLUTIONS = [
    {"strides": [1, 1, 1, 1], "padding": "SAME"},
    {"strides": [1, 2, 2, 1], "padding": "SAME"},
    {"strides": [1, 2, 1, 1], "padding": "VALID"},
    {"strides": [1, 1, 1, 1], "padding": "VALID", "dilations": [1, 2, 2, 1]},
    {"strides": [1, 1, 1, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]},
    {"strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"},
]


def _pool(x: tf.Tensor, **attributes: Any) -> tf.Tensor:
    return raw.MaxPool(input=x, ksize=[1, 3, 2, 1], strides=[1, 2, 2, 1], **attributes)


COMPUTED: dict[str, list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]]] = {
    "MatMul": [
        (lambda a, b: raw.MatMul(a=a, b=b), ((B, 3), (3, 5))),
        (lambda a, b: raw.MatMul(a=a, b=b, transpose_a=True, transpose_b=True), ((3, B), (5, 3))),
    ],
    "BatchMatMul": [(lambda a, b: raw.BatchMatMul(x=a, y=b, adj_y=True), ((B, 2, 3, 4), (B, 2, 5, 4)))],
    "BatchMatMulV2": [
        (lambda a, b: raw.BatchMatMulV2(x=a, y=b), ((B, 1, 3, 4), (2, 4, 5))),
        (lambda a, b: raw.BatchMatMulV2(x=a, y=b, adj_x=True), ((B, 4, S), (4, 5))),
    ],
    "BatchMatMulV3": [(lambda a, b: raw.BatchMatMulV3(x=a, y=b, Tout=tf.float32), ((B, 3, 4), (B, 4, 5)))],
    "Einsum": [
        (lambda a, b: raw.Einsum(inputs=[a, b], equation="bsd,df->bsf"), ((B, S, 4), (4, 6))),
        (
            lambda a, b: raw.Einsum(inputs=[a, b], equation="...qd,...kd->...qk"),
            ((B, 2, S, 4), (B, 2, S, 4)),
        ),
        (lambda a: raw.Einsum(inputs=[a], equation="b...d->...db"), ((B, 2, S, 4),)),
    ],
    "Conv2D": [
        (
            lambda a, b, c=c: raw.Conv2D(input=a, filter=b, **c),
            ((B, 4, 10, 12) if "data_format" in c else (B, 10, 12, 4), (3, 2, 4, 6)),
        )
        for c in CONVOLUTIONS
    ],
    "Conv3D": [
        (
            lambda a, b: raw.Conv3D(input=a, filter=b, strides=[1, 1, 2, 1, 1], padding="SAME"),
            ((B, 4, 5, 6, 3), (1, 2, 2, 3, 8)),
        )
    ],
    "DepthwiseConv2dNative": [
        (
            lambda a, b: raw.DepthwiseConv2dNative(input=a, filter=b, strides=[1, 2, 2, 1], padding="VALID"),
            ((B, 9, 9, 3), (3, 3, 3, 2)),
        )
    ],
    "Conv2DBackpropInput": [
        (
            lambda x, w, g: raw.Conv2DBackpropInput(
                input_sizes=tf.stack([tf.shape(x)[0], 8, 8, 3]),
                filter=w,
                out_backprop=g,
                strides=[1, 2, 2, 1],
                padding="SAME",
            ),
            ((B, 8, 8, 3), (3, 3, 3, 5), (B, 4, 4, 5)),
        )
    ],
    "Conv2DBackpropFilter": [
        (
            lambda x, g: raw.Conv2DBackpropFilter(
                input=x, filter_sizes=[3, 3, 3, 5], out_backprop=g, strides=[1, 2, 2, 1], padding="SAME"
            ),
            ((B, 8, 8, 3), (B, 4, 4, 5)),
        )
    ],
    "DepthwiseConv2dNativeBackpropInput": [
        (
            lambda x, w, g: raw.DepthwiseConv2dNativeBackpropInput(
                input_sizes=tf.shape(x), filter=w, out_backprop=g, strides=[1, 1, 1, 1], padding="SAME"
            ),
            ((B, 8, 8, 3), (3, 3, 3, 2), (B, 8, 8, 6)),
        )
    ],
    "DepthwiseConv2dNativeBackpropFilter": [
        (
            lambda x, g: raw.DepthwiseConv2dNativeBackpropFilter(
                input=x, filter_sizes=[3, 3, 3, 2], out_backprop=g, strides=[1, 1, 1, 1], padding="SAME"
            ),
            ((B, 8, 8, 3), (B, 8, 8, 6)),
        )
    ],
    "MaxPool": [(lambda a, p=p: _pool(a, padding=p), ((B, 10, 9, 3),)) for p in ("SAME", "VALID")],
    "MaxPoolGrad": [
        (
            lambda x, y: raw.MaxPoolGrad(
                orig_input=x, orig_output=y, grad=y, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"
            ),
            ((B, 8, 8, 3), (B, 4, 4, 3)),
        )
    ],
    "AvgPool": [
        (
            lambda a: raw.AvgPool(value=a, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME"),
            ((B, 5, 9, 3),),
        )
    ],
    "AvgPoolGrad": [
        (
            lambda x, y: raw.AvgPoolGrad(
                orig_input_shape=tf.shape(x),
                grad=y,
                ksize=[1, 2, 2, 1],
                strides=[1, 2, 2, 1],
                padding="VALID",
            ),
            ((B, 8, 8, 3), (B, 4, 4, 3)),
        )
    ],
    "ResizeBilinear": [(lambda a: raw.ResizeBilinear(images=a, size=[3, 5]), ((B, 4, 4, 2),))],
    "ResizeNearestNeighbor": [
        (lambda a: raw.ResizeNearestNeighbor(images=a, size=tf.shape(a)[1:3] * 2), ((B, 4, S, 2),))
    ],
    "Gather": [(lambda a, i: raw.Gather(params=a, indices=tf.cast(i, tf.int32)), ((50, 6), (B, S)))],
    "GatherV2": [
        (lambda a, i: raw.GatherV2(params=a, indices=tf.cast(i, tf.int32), axis=0), ((50, 6), (B, S))),
        (
            lambda a, i: raw.GatherV2(params=a, indices=tf.cast(i, tf.int32), axis=-1, batch_dims=1),
            ((B, 5, 6), (B, 3)),
        ),
    ],
    "GatherNd": [(lambda a, i: raw.GatherNd(params=a, indices=tf.cast(i, tf.int32)), ((4, 5, 6), (B, 2)))],
    "ConcatV2": [
        (lambda a, b: raw.ConcatV2(values=[a, b], axis=-1), ((B, 3), (B, 5))),
        (lambda a, b: raw.ConcatV2(values=[a, b], axis=0), ((B, 3), (B, 3))),
    ],
    "Pack": [(lambda a, b: raw.Pack(values=[a, b], axis=1), ((B, 3), (B, 3)))],
    "Pad": [(lambda a: raw.Pad(input=a, paddings=[[0, 0], [1, 2]]), ((B, 3),))],
    "PadV2": [(lambda a: raw.PadV2(input=a, paddings=[[0, 0], [1, 2]], constant_values=1.0), ((B, 3),))],
    "MirrorPad": [(lambda a: raw.MirrorPad(input=a, paddings=[[0, 0], [1, 2]], mode="REFLECT"), ((B, 3),))],
    "OneHot": [
        (lambda i: raw.OneHot(indices=tf.cast(i, tf.int32), depth=9, on_value=1.0, off_value=0.0), ((B, S),)),
        (
            lambda i: raw.OneHot(indices=tf.cast(i, tf.int32), depth=9, on_value=1.0, off_value=0.0, axis=1),
            ((B, S),),
        ),
    ],
    "ArgMax": [(lambda a: raw.ArgMax(input=a, dimension=-1), ((B, 5),))],
    "ArgMin": [(lambda a: raw.ArgMin(input=a, dimension=0, output_type=tf.int32), ((3, B),))],
    "Cumsum": [(lambda a: raw.Cumsum(x=a, axis=0), ((B, 5),))],
    "Cumprod": [(lambda a: raw.Cumprod(x=a, axis=0), ((B, 5),))],
    "SparseSoftmaxCrossEntropyWithLogits": [
        (
            lambda a, b: raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=tf.cast(b, tf.int32))[:2],
            ((B, 5), (B,)),
        )
    ],
    "RandomUniform": [(lambda a: raw.RandomUniform(shape=tf.shape(a), dtype=tf.float32), ((B, 5),))],
    "RandomStandardNormal": [(lambda a: raw.RandomStandardNormal(shape=tf.shape(a), dtype=tf.float32), ((B, 5),))],
    "StatelessRandomUniformV2": [
        (
            lambda a: raw.StatelessRandomUniformV2(
                shape=tf.shape(a), key=np.zeros(1, np.uint64), counter=np.zeros(2, np.uint64), alg=1
            ),
            ((B, 5),),
        )
    ],
    "StatelessRandomNormalV2": [
        (
            lambda a: raw.StatelessRandomNormalV2(
                shape=tf.shape(a), key=np.zeros(1, np.uint64), counter=np.zeros(2, np.uint64), alg=1
            ),
            ((B, 5),),
        )
    ],
    "Range": [
        (lambda a: raw.Range(start=0, limit=tf.shape(a)[0], delta=1), ((B,),)),
        (lambda a: raw.Range(start=1, limit=10, delta=2), ((B,),)),
    ],
}


@pytest.mark.parametrize("op", COMPUTE_TYPES)
def test_compute_types(op: str) -> None:
    """The rule's types are TensorFlow's for static shapes; with symbols they stand for the same."""
    for build, shapes in COMPUTED[op]:
        graph, _, result = built(build, *shapes)
        outputs = list(result) if isinstance(result, list | tuple) else [result]
        assert outputs[0].op.type == op
        for symbols in ({}, {B: "B"}, {B: "B", S: "S"}):
            walk = Walk(graph, symbols)
            for output in outputs:
                wanted = output.shape.as_list()
                type_ = walk.types[output.name]
                assert type_ is not None, f"{op} {shapes} {symbols}: not derived"
                assert type_.dtype is DTYPES[output.dtype]
                numbers = completed(SYMBOLS, walk.derived.derivations_of(type_.dims))
                extents = [d.evaluate(numbers) for d in type_.dims]
                known = [w if w is not None else e for w, e in zip(wanted, extents, strict=True)]
                assert extents == known, f"{op} {shapes} {symbols}: {type_}, TensorFlow has {wanted}"


def test_windows_of_unknown_dims() -> None:
    window = Node(
        "n", "MaxPool", (), (), attributes={"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "SAME"}
    )
    rule = COMPUTE_TYPES["MaxPool"]
    derived = Symbols()
    half = derived.derived([Dim.symbol("H"), Dim(1)], 2)
    odd, found = TensorType(DType.F32, shape_of("B", "H", 8, 3)), TensorType(DType.F32, shape_of("B", half, 4, 3))
    assert rule(window, (odd,), [None], [None], derived) == (found,)
    assert rule(window, (TensorType(DType.F32, None),), [None], [None], derived) == (None,)
    even = TensorType(DType.F32, (Dim.symbol("B"), Dim(2, ("H",)), Dim(8), Dim(3)))
    assert rule(window, (even,), [None], [None], derived) == (TensorType(DType.F32, shape_of("B", "H", 4, 3)),)
