"""Ops that expand to several steps. f16 and bf16 run in f32 throughout and are rounded once, at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_stitch.ir.types import FLOATS, NUMBERS, ONE, DType
from tf_stitch.ops.opdef import Kind, OpDef, Operands, define_op, with_halves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.ir.body import BodyBuilder


def channels_first(x: Operands) -> bool:
    """Whether `data_format` puts channels right behind the batch: NCHW, NCDHW."""
    return str(x.attribute("data_format", "NHWC")).startswith("NC")


def _along_channels(b: BodyBuilder, x: Operands, value: int, vector: int) -> int:
    """`vector` with one element a channel of `value`, in a shape that broadcasts to it.

    Raises:
      Unsupported: where it has not as many elements as there are channels.
    """
    shape = b.shape(value)
    axis = 1 if channels_first(x) else len(shape) - 1
    (length,) = b.shape(vector)
    b.join(length, shape[axis], f"{x.node.op}'s channels")
    return b.reshape(vector, tuple(length if a == axis else ONE for a in range(len(shape))))


def _bias_add(b: BodyBuilder, x: Operands) -> int:
    if b.type(x[0]).rank in (0, 1):
        raise x.unsupported("a tensor of rank below 2")
    return b.apply("add", x[0], _along_channels(b, x, x[0], x[1]))


def _shifted(b: BodyBuilder, x: Operands) -> int:
    """The logits in the compute dtype, less the greatest of their row."""
    logits = b.widen(x[0])
    if not b.type(logits).rank:
        raise x.unsupported("a scalar")
    return b.apply("sub", logits, b.reduce("max", logits, (-1,), keep_dims=True))


def _softmax(b: BodyBuilder, x: Operands) -> int:
    exponentials = b.apply("exp", _shifted(b, x))
    total = b.reduce("sum", exponentials, (-1,), keep_dims=True)
    return b.convert(b.apply("div", exponentials, total), b.dtype(x[0]))


def _log_softmax(b: BodyBuilder, x: Operands) -> int:
    shifted = _shifted(b, x)
    total = b.reduce("sum", b.apply("exp", shifted), (-1,), keep_dims=True)
    return b.convert(b.apply("sub", shifted, b.apply("log", total)), b.dtype(x[0]))


def _batch_norm(outputs: int) -> OpDef:
    """`(x - mean) * (rsqrt(variance + epsilon) * scale) + offset`, in f32.

    That is the order of core/kernels/fused_batch_norm_op.cc.
    """
    names = {5: ("FusedBatchNorm", "FusedBatchNormV2"), 6: ("FusedBatchNormV3",)}[outputs]

    def expand(b: BodyBuilder, x: Operands) -> Sequence[int | None]:
        if x.attribute("is_training", True):
            raise x.unsupported("is_training=True")
        scale, offset, mean, variance = (_along_channels(b, x, x[0], b.convert(x[i], DType.F32)) for i in range(1, 5))
        epsilon = b.constant(x.attribute("epsilon", 1e-4), DType.F32)
        factor = b.apply("mul", b.apply("rsqrt", b.apply("add", variance, epsilon)), scale)
        centred = b.apply("sub", b.widen(x[0]), mean)
        result = b.apply("add", b.apply("mul", centred, factor), offset)
        return [b.convert(result, b.dtype(x[0])), *[None] * (outputs - 1)]

    samples = tuple(
        {"is_training": False, "data_format": layout, "epsilon": epsilon}
        for layout in ("NHWC", "NCHW")
        for epsilon in (1e-3, 1e-4)
    )
    dtypes = frozenset({DType.F32}) if outputs == 5 else frozenset({DType.F16, DType.BF16, DType.F32})
    notes = "inference only, and only the first output"
    return OpDef(names, Kind.COMPOSITE, expand, samples=samples, dtypes=dtypes, notes=notes)


_LAYOUTS = ({"data_format": "NHWC"}, {"data_format": "NCHW"})
_ONCE = "f16 and bf16: computed in f32, rounded once"
define_op(
    OpDef(("BiasAdd",), Kind.COMPOSITE, _bias_add, samples=_LAYOUTS, dtypes=NUMBERS),
    OpDef(("BiasAddV1",), Kind.COMPOSITE, _bias_add, dtypes=NUMBERS),
    OpDef(("Softmax",), Kind.COMPOSITE, _softmax, dtypes=with_halves(FLOATS), notes=_ONCE),
    OpDef(("LogSoftmax",), Kind.COMPOSITE, _log_softmax, dtypes=with_halves(FLOATS), notes=_ONCE),
    _batch_norm(5),
    _batch_norm(6),
)
