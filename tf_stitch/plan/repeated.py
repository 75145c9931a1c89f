"""What groups compute again and again although it is dear."""

from __future__ import annotations

from collections.abc import Sequence

from tf_stitch.ir.body import Body, Broadcast, Elementwise, Reduce, Reshape, Slice, Transpose, Windows
from tf_stitch.ir.types import Dim, product
from tf_stitch.ops import is_heavy
from tf_stitch.plan.drafts import Draft
from tf_stitch.plan.indexing import IndexMap, axes_of


def dear_and_repeated(body: Body, drafts: list[Draft]) -> set[int]:
    """Steps that a group computes again and again although they are dear: they get a group of their own.

    The cut is at the operand of a broadcast over rows, or of slices or windows that overlap: the last step before the
    value is repeated.
    """
    found: set[int] = set()
    for draft in drafts:
        outer = frozenset(a.identity for a in draft.outer if not a.extent.is_one)
        for index in draft.maps:
            step = body.steps[index]
            if not isinstance(step.op, Broadcast | Slice | Windows):
                continue
            operand = step.operands[0]
            if isinstance(step.op, Broadcast):
                repeated = any(not outer <= axes_of(m) for m in draft.maps.get(operand, []))
            else:
                repeated = _overlap(draft, draft.maps.get(operand, []), body.steps[operand].type.size)
            source = _moved_from(body, operand)
            computed = source not in draft.loaded and isinstance(body.steps[source].op, Elementwise)
            if repeated and computed and not body.steps[source].type.size.is_one and _is_dear(body, draft, source):
                found.add(source)
    return found


def _moved_from(body: Body, index: int) -> int:
    """The step whose elements a step is, but for movement."""
    while isinstance(body.steps[index].op, Reshape | Transpose | Slice | Windows):
        index = body.steps[index].operands[0]
    return index


def _overlap(draft: Draft, maps: Sequence[IndexMap], size: Dim) -> bool:
    """Whether a value of this size is read more often than once an element, at all its maps together."""
    extents = draft.extents
    reads = [product(extents[a] for a in axes_of(index_map)) for index_map in maps]
    if any(r.symbols != size.symbols for r in reads):
        return len(reads) > 1
    return sum(r.coefficient for r in reads) > size.coefficient


def _is_dear(body: Body, draft: Draft, root: int) -> bool:
    """Whether computing `root` in this group evaluates a HEAVY function."""
    stack, seen = [root], {root}
    while stack:
        index = stack.pop()
        step = body.steps[index]
        if index in draft.loaded or isinstance(step.op, Reduce):
            continue
        if isinstance(step.op, Elementwise) and is_heavy(step.op.function):
            return True
        for operand in step.operands:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return False
