"""Types of compute-intensive ops, and of others that no code is generated for: dims flow through them.

A rule gives the type of each output from those of the operands, as TensorFlow's shape functions do, but with
symbols: `MatMul` of `f32[B, 768]` and `f32[768, 3072]` is `f32[B, 3072]`. None stands for an output that has
a dim which does not follow from known ones: the importer then takes what the graph declares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tf_stitch.ir.types import Dim, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from tf_stitch.ir.graph import Node
    from tf_stitch.ir.symbols import Symbols
    from tf_stitch.ir.types import Shape

    Constants = Sequence[np.ndarray[Any, Any] | None]
    Extents = Sequence[tuple[Dim, ...] | None]
    Rule = Callable[[Node, tuple[TensorType, ...], Constants, Extents, Symbols], tuple[TensorType | None, ...]]


class _Underivable(Exception):
    """A dim of the result does not follow from known ones, or a rank is not known."""


@dataclass(frozen=True)
class _Facts:
    """What is known of a node and its operands; `symbols` derives dims from others."""

    node: Node
    types: Sequence[TensorType]
    constants: Constants
    extents: Extents
    symbols: Symbols

    def attribute(self, name: str, default: Any) -> Any:
        return self.node.attributes.get(name, default)

    def shape(self, index: int) -> Shape:
        shape = self.types[index].shape
        if shape is None:
            raise _Underivable
        return shape

    def integers(self, index: int) -> list[int]:
        """The value of a constant operand, flat."""
        constant = self.constants[index]
        if constant is None:
            raise _Underivable
        return [int(i) for i in constant.ravel()]

    def dims(self, index: int) -> Shape:
        """The dims that a shape operand holds."""
        extents = self.extents[index]
        dims = extents if self.constants[index] is None else tuple(map(Dim, self.integers(index)))
        if dims is None or any(d.coefficient < 0 for d in dims):
            raise _Underivable
        return dims

    def axis(self, index: int, rank: int) -> int:
        (axis,) = self.integers(index)
        if not -rank <= axis < rank:
            raise _Underivable
        return axis % rank


def _typed(shape: Callable[[_Facts], Shape], dtype: Callable[[_Facts], DType] | None = None) -> Rule:
    """The rule of an op of one output, from one for its shape; its dtype is that of the first operand."""

    def rule(
        node: Node, types: tuple[TensorType, ...], constants: Constants, extents: Extents, symbols: Symbols
    ) -> tuple[TensorType | None, ...]:
        facts = _Facts(node, types, constants, extents, symbols)
        try:
            return (TensorType(dtype(facts) if dtype else types[0].dtype, shape(facts)),)
        except (_Underivable, IndexError, ValueError):  # the last two: of a node that cannot run
            return (None,)

    return rule


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


def _matmul(x: _Facts) -> Shape:
    left, right = x.shape(0), x.shape(1)
    rows = left[-1] if x.attribute("transpose_a", False) or x.attribute("adj_x", False) else left[-2]
    columns = right[-2] if x.attribute("transpose_b", False) or x.attribute("adj_y", False) else right[-1]
    return (*_broadcast(left[:-2], right[:-2]), rows, columns)


def _einsum(x: _Facts) -> Shape:
    sources, target = str(x.attribute("equation", "")).replace(" ", "").split("->")
    dims: dict[str, Dim] = {}
    batch: Shape = ()  # what the ellipsis stands for
    for index, labels in enumerate(sources.split(",")):
        shape = x.shape(index)
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


def _axes(x: _Facts, rank: int) -> tuple[list[int], int]:
    """The spatial axes and the channel axis."""
    if str(x.attribute("data_format", "NHWC")).startswith("NC"):
        return list(range(2, rank)), 1
    return list(range(1, rank - 1)), rank - 1


def _listed(x: _Facts, name: str, rank: int) -> list[int]:
    return [int(i) for i in x.attribute(name, ())] or [1] * rank


def _windows(x: _Facts, shape: Shape, sizes: Mapping[int, Dim]) -> list[Dim]:
    """`shape` with each spatial axis replaced by the number of windows of `sizes[axis]` along it."""
    rank = len(shape)
    strides, dilations = _listed(x, "strides", rank), _listed(x, "dilations", rank)
    explicit = [int(i) for i in x.attribute("explicit_paddings", ())] or [0] * (2 * rank)
    padding = str(x.attribute("padding", "VALID"))
    result = list(shape)
    for axis, size in sizes.items():
        extent, stride = shape[axis], strides[axis]
        if padding == "SAME":
            result[axis] = x.symbols.derived((extent, Dim(stride - 1)), stride)
            continue
        if not size.is_static:
            raise _Underivable
        around = explicit[2 * axis] + explicit[2 * axis + 1] if padding == "EXPLICIT" else 0
        missing = (size.coefficient - 1) * dilations[axis] - around  # how many fewer windows than elements
        result[axis] = x.symbols.derived((extent, Dim(stride - 1 - missing)), stride)
    return result


def _conv(x: _Facts) -> Shape:
    """Conv2D and Conv3D: the filter is `[..., in, out]` whatever the data format."""
    shape, window = x.shape(0), x.shape(1)
    spatial, channel = _axes(x, len(shape))
    result = _windows(x, shape, dict(zip(spatial, window[:-2], strict=True)))
    result[channel] = window[-1]
    return tuple(result)


def _depthwise(x: _Facts) -> Shape:
    shape, window = x.shape(0), x.shape(1)
    spatial, channel = _axes(x, len(shape))
    result = _windows(x, shape, dict(zip(spatial, window[:2], strict=True)))
    result[channel] = window[2] * window[3]
    return tuple(result)


def _pool(x: _Facts) -> Shape:
    shape = x.shape(0)
    sizes = _listed(x, "ksize", len(shape))
    spatial, channel = _axes(x, len(shape))
    if sizes[0] != 1 or sizes[channel] != 1:
        raise _Underivable
    return tuple(_windows(x, shape, {a: Dim(sizes[a]) for a in spatial}))


def _resize(x: _Facts) -> Shape:
    batch, _, _, channels = x.shape(0)
    height, width = x.dims(1)
    return batch, height, width, channels


# -- indexing ----------------------------------------------------------------------------------------------


def _gather(x: _Facts) -> Shape:
    source, indices = x.shape(0), x.shape(1)
    axis = x.axis(2, len(source)) if len(x.types) > 2 else 0
    batch = int(x.attribute("batch_dims", 0))
    return source[:axis] + indices[batch if batch >= 0 else batch + len(indices) :] + source[axis + 1 :]


def _gather_nd(x: _Facts) -> Shape:
    source, indices = x.shape(0), x.shape(1)
    if not indices[-1].is_static:
        raise _Underivable
    return indices[:-1] + source[indices[-1].coefficient :]


def _concat(x: _Facts) -> Shape:
    last = len(x.types) - 1
    result = list(x.shape(0))
    axis = x.axis(last, len(result))
    for index in range(1, last):
        for a, dim in enumerate(x.shape(index)):
            result[a] = x.symbols.derived((result[a], dim)) if a == axis else _merged(result[a], dim)
    return tuple(result)


def _pack(x: _Facts) -> Shape:
    shape = x.shape(0)
    for index in range(1, len(x.types)):
        shape = tuple(_merged(a, b) for a, b in zip(shape, x.shape(index), strict=True))
    axis = int(x.attribute("axis", 0)) % (len(shape) + 1)
    return (*shape[:axis], Dim(len(x.types)), *shape[axis:])


def _pad(x: _Facts) -> Shape:
    around = x.integers(1)
    return tuple(x.symbols.derived((d, Dim(around[2 * a] + around[2 * a + 1]))) for a, d in enumerate(x.shape(0)))


def _one_hot(x: _Facts) -> Shape:
    indices = x.shape(0)
    (depth,) = x.dims(1)
    axis = int(x.attribute("axis", -1)) % (len(indices) + 1)
    return (*indices[:axis], depth, *indices[axis:])


def _arg_extreme(x: _Facts) -> Shape:
    shape = x.shape(0)
    axis = x.axis(1, len(shape))
    return shape[:axis] + shape[axis + 1 :]


def _range(x: _Facts) -> Shape:
    (start,), (limit,), (step,) = x.dims(0), x.dims(1), x.dims(2)
    if (start, step) == (Dim(0), Dim(1)):
        return (limit,)
    if not (start.is_static and limit.is_static and step.is_static):
        raise _Underivable
    return (Dim(len(range(start.coefficient, limit.coefficient, step.coefficient))),)


# -- the shape of an operand, or what one holds ------------------------------------------------------------


def _like(index: int) -> Callable[[_Facts], Shape]:
    return lambda x: x.shape(index)


def _given(index: int) -> Callable[[_Facts], Shape]:
    return lambda x: x.dims(index)


def _attribute(name: str) -> Callable[[_Facts], DType]:
    def dtype(x: _Facts) -> DType:
        return x.attribute(name, x.node.types[0].dtype if x.node.types else DType.OTHER)

    return dtype


def _of(index: int) -> Callable[[_Facts], DType]:
    return lambda x: x.types[index].dtype


def _product_dtype(x: _Facts) -> DType:
    return x.attribute("Tout", x.types[0].dtype)


def _f32(_: _Facts) -> DType:
    return DType.F32


# -- several outputs ---------------------------------------------------------------------------------------


def _cross_entropy(
    node: Node, types: tuple[TensorType, ...], constants: Constants, extents: Extents, symbols: Symbols
) -> tuple[TensorType | None, ...]:
    """The loss of each row, and the gradient of the logits."""
    del node, constants, extents, symbols
    logits = types[0]
    if logits.rank != 2:
        return None, None
    return TensorType(logits.dtype, logits.dims[:1]), logits


COMPUTE_TYPES: dict[str, Rule] = {
    "ArgMax": _typed(_arg_extreme, _attribute("output_type")),
    "ArgMin": _typed(_arg_extreme, _attribute("output_type")),
    "AvgPool": _typed(_pool),
    "AvgPoolGrad": _typed(_given(0), _of(1)),
    "BatchMatMul": _typed(_matmul),
    "BatchMatMulV2": _typed(_matmul),
    "BatchMatMulV3": _typed(_matmul, _product_dtype),
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
    "ResizeBilinear": _typed(_resize, _f32),
    "ResizeNearestNeighbor": _typed(_resize),
    "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
    "StatelessRandomNormalV2": _typed(_given(0), _attribute("dtype")),
    "StatelessRandomUniformV2": _typed(_given(0), _attribute("dtype")),
}
