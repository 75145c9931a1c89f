"""Types of compute-intensive ops, and of others that we never generate code for: dims flow through them.

A rule gives the type of each output from those of the operands, as TensorFlow's shape functions do but with symbols:
`MatMul` of `f32[B, 768]` and `f32[768, 3072]` is `f32[B, 3072]`. None stands for an output that has a dim which is no
product of known dims (`ceil(H / 2)`): the importer then takes what the graph declares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_stitch.ir.types import Dim, DType, TensorType, product
from tf_stitch.ops.extents import dim_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from tf_stitch.ir.graph import Node
    from tf_stitch.ir.types import Shape

    Types = tuple[TensorType, ...]
    Constants = Sequence[np.ndarray[Any, Any] | None]
    Extents = Sequence[tuple[Dim, ...] | None]
    Rule = Callable[[Node, Types, Constants, Extents], tuple[TensorType | None, ...]]
    ShapeRule = Callable[[Node, Types, Constants, Extents], Shape]


class _Underivable(Exception):
    """A dim of the result is no product of known dims, or the rank is not known."""


def _shape(type_: TensorType) -> Shape:
    if type_.shape is None:
        raise _Underivable
    return type_.shape


def _typed(rule: ShapeRule, dtype: Callable[[Node, Types], DType] = lambda node, types: types[0].dtype) -> Rule:
    """A rule for an op of one output, from one for its shape."""

    def typed(node: Node, types: Types, constants: Constants, extents: Extents) -> tuple[TensorType | None, ...]:
        try:
            return (TensorType(dtype(node, types), rule(node, types, constants, extents)),)
        except (_Underivable, IndexError, ValueError):  # the last two: of a node that cannot run
            return (None,)

    return typed


def _dims(constants: Constants, extents: Extents, index: int) -> Shape:
    """The dims that operand `index` holds."""
    constant, dims = constants[index], extents[index]
    if constant is not None:
        dims = tuple(Dim(int(i)) for i in constant.reshape(-1))
    if dims is None or any(d.coefficient < 0 for d in dims):
        raise _Underivable
    return dims


def _constant(constants: Constants, index: int) -> list[int]:
    constant = constants[index]
    if constant is None:
        raise _Underivable
    return [int(i) for i in constant.reshape(-1)]


def _merged(a: Dim, b: Dim) -> Dim:
    """The better known of two dims that are equal in any program that runs."""
    return b if b.is_static else a


def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    result: list[Dim] = []
    for mine, theirs in zip((Dim(1),) * (rank - len(a)) + a, (Dim(1),) * (rank - len(b)) + b, strict=True):
        if mine.is_one or mine == theirs:
            result.append(theirs)
        elif theirs.is_one:
            result.append(mine)
        elif mine.is_static or theirs.is_static:  # a symbol beside 5 is 1 or 5
            result.append(_merged(mine, theirs))
        else:
            raise _Underivable
    return tuple(result)


# -- products ----------------------------------------------------------------------------------------------


def _product_dtype(node: Node, types: Types) -> DType:
    return node.attributes.get("Tout", types[0].dtype)


def _matmul(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    left, right = _shape(types[0]), _shape(types[1])
    flag = node.attributes.get
    rows = left[-1] if flag("transpose_a", False) or flag("adj_x", False) else left[-2]
    columns = right[-2] if flag("transpose_b", False) or flag("adj_y", False) else right[-1]
    return (*_broadcast(left[:-2], right[:-2]), rows, columns)


def _einsum(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    equation = str(node.attributes["equation"]).replace(" ", "")
    sources, target = equation.split("->")
    dims: dict[str, Dim] = {}
    batch: Shape = ()  # what the ellipsis stands for
    for labels, type_ in zip(sources.split(","), types, strict=True):
        shape = _shape(type_)
        before, dots, after = labels.partition("...")
        middle = len(shape) - len(before) - len(after)
        if middle < 0 or (middle and not dots):
            raise _Underivable
        batch = _broadcast(batch, shape[len(before) : len(before) + middle])
        named = shape[: len(before)] + shape[len(before) + middle :]
        for label, dim in zip(before + after, named, strict=True):
            dims[label] = _merged(dims.get(label, dim), dim)
    before, dots, after = target.partition("...")
    return (*(dims[c] for c in before), *(batch if dots else ()), *(dims[c] for c in after))


# -- windows -----------------------------------------------------------------------------------------------


def _axes(node: Node, rank: int) -> tuple[list[int], int]:
    """The spatial axes and the channel axis."""
    if str(node.attributes.get("data_format", "NHWC")).startswith("NC"):
        return list(range(2, rank)), 1
    return list(range(1, rank - 1)), rank - 1


def _listed(attributes: Mapping[str, Any], name: str, rank: int) -> list[int]:
    return [int(i) for i in attributes.get(name, ())] or [1] * rank


def _windows(node: Node, shape: Shape, sizes: Mapping[int, Dim]) -> list[Dim]:
    """`shape` with each spatial axis replaced by the number of windows of `sizes[axis]` along it."""
    attributes, rank = node.attributes, len(shape)
    strides, dilations = _listed(attributes, "strides", rank), _listed(attributes, "dilations", rank)
    explicit = [int(i) for i in attributes.get("explicit_paddings", ())] or [0] * (2 * rank)
    padding = str(attributes.get("padding", "VALID"))
    result = list(shape)
    for axis, size in sizes.items():
        extent, stride = shape[axis], strides[axis]
        if padding == "SAME":
            result[axis] = _ceiling(extent, stride)
            continue
        if not size.is_static:
            raise _Underivable
        around = explicit[2 * axis] + explicit[2 * axis + 1] if padding == "EXPLICIT" else 0
        missing = (size.coefficient - 1) * dilations[axis] - around  # how many fewer than extent, at stride 1
        if extent.is_static:
            result[axis] = Dim(max(0, -(-(extent.coefficient - missing) // stride)))
        elif missing == 0:
            result[axis] = _ceiling(extent, stride)
        else:
            raise _Underivable
    return result


def _ceiling(extent: Dim, stride: int) -> Dim:
    if extent.is_static:
        return Dim(-(-extent.coefficient // stride))
    quotient = extent.divided_by(Dim(stride))
    if quotient is None:
        raise _Underivable
    return quotient


def _conv(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    """Conv2D and Conv3D: the filter is `[..., in, out]` whatever the data format."""
    shape, window = _shape(types[0]), _shape(types[1])
    spatial, channel = _axes(node, len(shape))
    result = _windows(node, shape, dict(zip(spatial, window[:-2], strict=True)))
    result[channel] = window[-1]
    return tuple(result)


def _depthwise(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    shape, window = _shape(types[0]), _shape(types[1])
    spatial, channel = _axes(node, len(shape))
    result = _windows(node, shape, dict(zip(spatial, window[:2], strict=True)))
    result[channel] = window[2] * window[3]
    return tuple(result)


def _pool(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    shape = _shape(types[0])
    sizes = _listed(node.attributes, "ksize", len(shape))
    spatial, channel = _axes(node, len(shape))
    if sizes[0] != 1 or sizes[channel] != 1:
        raise _Underivable
    return tuple(_windows(node, shape, {a: Dim(sizes[a]) for a in spatial}))


def _resize(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    batch, _, _, channels = _shape(types[0])
    height, width = _dims(constants, extents, 1)
    return batch, height, width, channels


# -- indexing ----------------------------------------------------------------------------------------------


def _axis(constants: Constants, index: int, rank: int) -> int:
    (axis,) = _constant(constants, index)
    if not -rank <= axis < rank:
        raise _Underivable
    return axis % rank


def _gather(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    source, indices = _shape(types[0]), _shape(types[1])
    axis = _axis(constants, 2, len(source)) if len(types) > 2 else 0
    batch = int(node.attributes.get("batch_dims", 0)) % (len(indices) + 1)
    return source[:axis] + indices[batch:] + source[axis + 1 :]


def _gather_nd(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    source, indices = _shape(types[0]), _shape(types[1])
    if not indices[-1].is_static:
        raise _Underivable
    return indices[:-1] + source[indices[-1].coefficient :]


def _concat(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    shapes = [_shape(t) for t in types[:-1]]
    axis = _axis(constants, len(types) - 1, len(shapes[0]))
    result = list(shapes[0])
    for shape in shapes[1:]:
        for a, dim in enumerate(shape):
            total = dim_sum(result[a], dim) if a == axis else _merged(result[a], dim)
            if total is None:
                raise _Underivable
            result[a] = total
    return tuple(result)


def _pack(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    shape = _shape(types[0])
    for type_ in types[1:]:
        shape = tuple(_merged(a, b) for a, b in zip(shape, _shape(type_), strict=True))
    axis = int(node.attributes.get("axis", 0)) % (len(shape) + 1)
    return (*shape[:axis], Dim(len(types)), *shape[axis:])


def _pad(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    around = _constant(constants, 1)
    padded = [dim_sum(d, Dim(around[2 * a] + around[2 * a + 1])) for a, d in enumerate(_shape(types[0]))]
    known = tuple(d for d in padded if d is not None)
    if len(known) != len(padded):
        raise _Underivable
    return known


def _one_hot(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    indices = _shape(types[0])
    (depth,) = _dims(constants, extents, 1)
    axis = int(node.attributes.get("axis", -1)) % (len(indices) + 1)
    return (*indices[:axis], depth, *indices[axis:])


def _arg_extreme(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    shape = _shape(types[0])
    axis = _axis(constants, 1, len(shape))
    return shape[:axis] + shape[axis + 1 :]


def _range(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    start, limit, step = (_dims(constants, extents, i) for i in range(3))
    if start == (Dim(0),) and step == (Dim(1),):
        return limit
    numbers = range(*(d.coefficient for (d,) in (start, limit, step) if d.is_static))
    if not all(d.is_static for (d,) in (start, limit, step)):
        raise _Underivable
    return (Dim(len(numbers)),)


# -- shapes that are those of an operand -------------------------------------------------------------------


def _like(index: int) -> ShapeRule:
    return lambda node, types, constants, extents: _shape(types[index])


def _given(index: int) -> ShapeRule:
    """The shape is what operand `index` holds."""
    return lambda node, types, constants, extents: _dims(constants, extents, index)


def _attribute(name: str) -> Callable[[Node, Types], DType]:
    return lambda node, types: node.attributes.get(name, node.types[0].dtype if node.types else DType.OTHER)


def _of(index: int) -> Callable[[Node, Types], DType]:
    return lambda node, types: types[index].dtype


def _channel_vector(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    shape = _shape(types[0])
    return (shape[_axes(node, len(shape))[1]],)


def _batch_norm(node: Node, types: Types, constants: Constants, extents: Extents) -> tuple[TensorType | None, ...]:
    """y, then batch mean and variance and two reserved vectors; V3 has a third, of no fixed shape."""
    vector = types[1] if types[1].shape is not None else None
    third: list[TensorType | None] = [None] if node.op.endswith("V3") else []
    return (types[0] if types[0].shape is not None else None, *[vector] * 4, *third)


def _cross_entropy(node: Node, types: Types, constants: Constants, extents: Extents) -> tuple[TensorType | None, ...]:
    """The loss of each row, and the gradient of the logits."""
    logits = types[0]
    if logits.shape is None or len(logits.shape) != 2:
        return None, None
    return TensorType(logits.dtype, logits.shape[:1]), logits


def _flattened(node: Node, types: Types, constants: Constants, extents: Extents) -> Shape:
    return (product(_shape(types[0])),)


COMPUTE_TYPES: dict[str, Rule] = {
    "ArgMax": _typed(_arg_extreme, _attribute("output_type")),
    "ArgMin": _typed(_arg_extreme, _attribute("output_type")),
    "AvgPool": _typed(_pool),
    "AvgPoolGrad": _typed(_given(0), _of(1)),
    "BatchMatMul": _typed(_matmul),
    "BatchMatMulV2": _typed(_matmul),
    "BatchMatMulV3": _typed(_matmul, _product_dtype),
    "BiasAddGrad": _typed(_channel_vector),
    "ConcatV2": _typed(_concat),
    "Conv2D": _typed(_conv),
    "Conv2DBackpropFilter": _typed(_given(1)),
    "Conv2DBackpropInput": _typed(_given(0), _of(2)),
    "Conv3D": _typed(_conv),
    "Cumprod": _typed(_like(0)),
    "Cumsum": _typed(_like(0)),
    "DepthwiseConv2dNative": _typed(_depthwise),
    "DepthwiseConv2dNativeBackpropFilter": _typed(_given(1)),
    "DepthwiseConv2dNativeBackpropInput": _typed(_given(0), _of(2)),
    "Einsum": _typed(_einsum),
    "FusedBatchNorm": _batch_norm,
    "FusedBatchNormV2": _batch_norm,
    "FusedBatchNormV3": _batch_norm,
    "Gather": _typed(_gather),
    "GatherNd": _typed(_gather_nd),
    "GatherV2": _typed(_gather),
    "MatMul": _typed(_matmul),
    "MaxPool": _typed(_pool),
    "MaxPoolGrad": _typed(_like(0)),
    "MirrorPad": _typed(_pad),
    "OneHot": _typed(_one_hot, _of(2)),
    "Pack": _typed(_pack),
    "Pad": _typed(_pad),
    "PadV2": _typed(_pad),
    "RandomStandardNormal": _typed(_given(0), _attribute("dtype")),
    "RandomUniform": _typed(_given(0), _attribute("dtype")),
    "Range": _typed(_range),
    "ResizeBilinear": _typed(_resize, lambda node, types: DType.F32),
    "ResizeNearestNeighbor": _typed(_resize),
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
    "StatelessRandomNormalV2": _typed(_given(0), _attribute("dtype")),
    "StatelessRandomUniformV2": _typed(_given(0), _attribute("dtype")),
}
