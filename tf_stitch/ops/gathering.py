"""Ops that look elements up: where they read is known only when they run.

An index that is out of range makes TensorFlow raise on a CPU. So a guard looks at all of them before the kernel begins,
and where one is, the fallback runs and raises. Hence indices are inputs of a kernel, and so are the tables that they
point into. On a GPU it finds a 0 there instead (core/kernels/gather_functor_gpu.cu.h, gather_nd_op_gpu.cu.cc): the host
does not see the indices, and the kernel looks at each as it comes to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_stitch.errors import Reason
from tf_stitch.ir.types import ALL, Dim
from tf_stitch.ops.opdef import Kind, OpDef, Operands, axis_of, define_op

if TYPE_CHECKING:
    from tf_stitch.ir.body import BodyBuilder


def _gather(b: BodyBuilder, x: Operands) -> int:
    """Axis `axis` of the table is replaced by the axes of the indices."""
    table, indices = b.shape(x[0]), b.shape(x[1])
    axis = axis_of(x.integers(2)[0], len(table), x.node.op) if len(x) > 2 else 0
    if int(x.attribute("batch_dims", 0)):
        raise x.unsupported("batch_dims")
    if not table:
        raise x.unsupported("a scalar")
    constant = x.constants[1]
    if constant is not None and constant.size == 1:
        raise x.unsupported("a constant index")
    b.require_indices(x[1], table[axis])
    rank = len(indices)
    rest = table[axis + 1 :]
    at = b.reshape(x[1], (*indices, *(Dim(1) for _ in rest)))
    along = {a: a if a < axis else a + rank - 1 for a in range(len(table)) if a != axis}
    return b.gather(x[0], {axis: at}, along, (*table[:axis], *indices, *rest))


def _gather_nd(b: BodyBuilder, x: Operands) -> int:
    """Each row of the last axis of the indices names an element of the table, or a slice of it."""
    table, indices = b.shape(x[0]), b.shape(x[1])
    if not indices or not indices[-1].is_static:
        raise x.unsupported("indices of an unknown number of axes", Reason.UNKNOWN_DIM)
    *batch, last = indices
    count = last.coefficient
    if not 0 < count <= len(table):
        raise x.unsupported(f"indices of {count} axes into a tensor of rank {len(table)}")
    rest = table[count:]
    for dim in table:
        if dim not in batch:  # else nothing is asked for where there is nothing
            b.require(Dim(1), dim, "GatherNd of no elements, which raises")
    at: dict[int, int] = {}
    for axis in range(count):
        b.require_indices(x[1], table[axis], axis, count)
        column = b.slice(x[1], (*(0 for _ in batch), axis), (*batch, Dim(1)))
        at[axis] = b.reshape(column, (*batch, *(Dim(1) for _ in rest)))
    along = {a: a - count + len(batch) for a in range(count, len(table))}
    return b.gather(x[0], at, along, (*batch, *rest))


_WHERE = "the tensor and the indices come from outside of the kernel"
define_op(
    OpDef(("GatherV2",), Kind.COMPOSITE, _gather, (2,), outside=(0, 1), dtypes=ALL, notes=f"no batch_dims; {_WHERE}"),
    OpDef(("Gather",), Kind.COMPOSITE, _gather, outside=(0, 1), dtypes=ALL, notes=_WHERE),
    OpDef(("GatherNd",), Kind.COMPOSITE, _gather_nd, outside=(0, 1), dtypes=ALL, notes=_WHERE),
)
