"""What a cluster costs, apart (as TensorFlow runs its nodes) and stitched (as its plan does): bytes, and nanoseconds.

    t = x + r ; y = t * g        apart:     read x r, write t, read t g, write y      5*[B, 768] + [768]
                                 stitched:  read x r g, write y                       3*[B, 768] + [768]

A count is a sum of Dims, so that nothing has to be assumed of unknown dims; `Bytes.at` puts numbers in. Both
are counts of what must cross between an op and memory, not of cache lines.

Nanoseconds are for comparing plans. A node of TensorFlow is a dispatch and a loop, a StitchOp is a dispatch and a loop
for each group. A loop is work: the bytes that it reads and writes, and the HEAVY functions that it evaluates. It runs
on all threads where that gains more than the join costs. Arithmetic that is light is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch.ir.body import Broadcast, Constant, Elementwise, Extent, Gather, Input, Reduce, Reshape
from tf_stitch.ir.types import Dim, DType, product
from tf_stitch.ops import is_heavy
from tf_stitch.plan.indexing import axes_of
from tf_stitch.plan.pieces import pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tf_stitch.ir.body import Body, Step
    from tf_stitch.ir.types import TensorType
    from tf_stitch.plan.plan import Group, StitchPlan
    from tf_stitch.plan.target import Target

UNKNOWN_DIM = 1
"""What an unknown dim counts as where one number is wanted."""

_NARROW = (DType.F16, DType.BF16)


@dataclass(frozen=True)
class Bytes:
    """A sum of terms, at most one for each product of symbols; largest product first."""

    terms: tuple[Dim, ...] = ()

    @staticmethod
    def of(dims: Iterable[Dim]) -> Bytes:
        counts: dict[tuple[str, ...], int] = {}
        for dim in dims:
            counts[dim.symbols] = counts.get(dim.symbols, 0) + dim.coefficient
        terms = (Dim(count, symbols) for symbols, count in counts.items() if count)
        return Bytes(tuple(sorted(terms, key=lambda d: (-len(d.symbols), d.symbols))))

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes.of((*self.terms, *other.terms))

    def given(self, symbols: Mapping[str, int]) -> Bytes:
        """The sum with these symbols' values in."""
        return Bytes.of(dim.given(symbols) for dim in self.terms)

    def at(self, symbols: Mapping[str, int] | None = None, unknown: int = UNKNOWN_DIM) -> int:
        """The number for these values of the symbols; a symbol that is not among them counts as `unknown`."""
        known = symbols or {}
        return sum(d.evaluate({s: known.get(s, unknown) for s in d.symbols}) for d in self.terms)

    def __str__(self) -> str:
        return " + ".join(map(str, self.terms)) or "0"


def size(type_: TensorType) -> Dim:
    """Bytes of one value."""
    return Dim(type_.dtype.size) * type_.size


def apart(body: Body) -> Bytes:
    """What TensorFlow moves: each node reads its operands and writes its results; views move nothing."""
    return Bytes.of(dim for reads_and_writes in by_node(body).values() for dim in reads_and_writes.terms)


def by_node(body: Body) -> dict[str, Bytes]:
    """`apart`, for each node that moves anything."""
    working = _working(body)
    moved: dict[str, dict[tuple[str, int], None]] = {}
    for index, step in enumerate(body.steps):
        if isinstance(step.op, Gather):
            moved.setdefault(step.origin, {})["look up", index] = None
        for operand in step.elements:
            value = _in_memory(body, operand, step.origin)
            source = body.steps[value]
            crosses = isinstance(source.op, Input) or source.origin != step.origin
            if not crosses or isinstance(source.op, Constant | Extent):
                continue
            if step.origin in working:
                moved.setdefault(step.origin, {})["read", value] = None
            if not isinstance(source.op, Input):
                moved.setdefault(source.origin, {})["write", value] = None
    for output in body.outputs:
        value = _in_memory(body, output, "")
        if not isinstance(body.steps[value].op, Input | Constant):
            moved.setdefault(body.steps[value].origin, {})["write", value] = None
    return {node: Bytes.of(size(body.steps[v].type) for _, v in values) for node, values in moved.items()}


def stitched(plan: StitchPlan) -> Bytes:
    """What the kernel moves: each input once, or what is looked up in it; each output; scratch to memory and back."""
    body = plan.body
    read = {operand for step in body.steps for operand in step.elements} | {*body.outputs}
    inputs = {i: size(s.type) for i, s in enumerate(body.steps) if isinstance(s.op, Input) and i in read}
    inputs |= {i: size(s.type) for i, s in enumerate(body.steps) if isinstance(s.op, Gather)}
    outputs = [size(body.steps[o].type) for o in body.outputs]
    scratch = [size(body.steps[s].type) for s in plan.scratch]
    return Bytes.of((*inputs.values(), *outputs, *scratch, *scratch))


def apart_ns(body: Body, target: Target) -> float:
    """Nanoseconds of a body's nodes as TensorFlow runs them; an unknown dim counts as UNKNOWN_DIM."""
    moved = by_node(body)
    steps: dict[str, list[int]] = {}
    for index, step in enumerate(body.steps):
        if not isinstance(step.op, Input | Constant | Extent):
            steps.setdefault(step.origin, []).append(index)
    works = (
        work_ns(moved.get(node, Bytes()).at(), evaluations(body, indices).at(), target)
        for node, indices in steps.items()
    )
    return sum(target.op_ns + loop_ns(work, target) for work in works)


def stitched_ns(plan: StitchPlan, target: Target) -> float:
    """Nanoseconds of a StitchOp; an unknown dim counts as UNKNOWN_DIM."""
    works = (work_ns(moved_by(plan, g).at(), evaluated_by(plan, g).at(), target) for g in plan.groups)
    return target.launch_ns + sum(loop_ns(work, target) for work in works)


def evaluations(body: Body, steps: Iterable[int] | None = None) -> Bytes:
    """How many elements HEAVY functions are evaluated for, in these steps or all: a number, not of bytes."""
    chosen = range(len(body.steps)) if steps is None else steps
    return Bytes.of(body.steps[i].type.size for i in chosen if _is_heavy(body, body.steps[i]))


def work_ns(moved: int, evaluated: int, target: Target) -> float:
    """Nanoseconds that one thread takes to move so many bytes, and evaluate so many HEAVY functions."""
    return moved / target.bytes_per_ns + evaluated * target.heavy_ns


def loop_ns(work: float, target: Target) -> float:
    """Nanoseconds that a loop of so much work takes, in the calling thread or on all. Concave: one loop is never
    dearer than two that share its work.
    """
    return min(work, work / target.threads + target.join_ns)


def moved_by(plan: StitchPlan, group: Group) -> Bytes:
    """What one group moves: each value that it reads once, each that it stores once for each place it goes to.

    Over all groups that may be more than `stitched`, where two groups read one value.
    """
    read = {i.step for i in group.instances if i.loaded or isinstance(plan.body.steps[i.step].op, Gather)}
    places = [piece.step for whole in (*plan.body.outputs, *plan.scratch) for piece in pieces_of(plan.body, whole)]
    stored = [step for i in group.stores for step in places if step == group.instances[i].step]
    return Bytes.of(size(plan.body.steps[step].type) for step in (*read, *stored))


def evaluated_by(plan: StitchPlan, group: Group) -> Bytes:
    """How often one group evaluates HEAVY functions: a number, of elements.

    Once in each turn of the loops around it, which are all but the innermost (`inner`, or else the vector axis) for
    a value that does not vary along that.
    """
    axes = [axis for axis in group.outer if not axis.extent.is_one]
    outer, inner = (axes, group.inner) if group.inner else (axes[:-1], axes[-1:])
    innermost = {axis.identity for axis in inner}
    rows = product(axis.extent for axis in outer)
    row = product(axis.extent for axis in inner)
    return Bytes.of(
        rows * row if axes_of(i.index_map) & innermost else rows
        for i in group.instances
        if not i.loaded and _is_heavy(plan.body, plan.body.steps[i.step])
    )


def _is_heavy(body: Body, step: Step) -> bool:
    """Whether a step evaluates a HEAVY function of something that is known only when it runs."""
    if not isinstance(step.op, Elementwise) or not is_heavy(step.op.function):
        return False
    return not all(isinstance(body.steps[o].op, Constant) for o in step.operands)


def _working(body: Body) -> frozenset[str]:
    """The nodes that do more than give a value another shape."""
    idle = (Reshape, Input, Constant, Extent)
    return frozenset(step.origin for step in body.steps if not isinstance(step.op, idle))


def _in_memory(body: Body, value: int, reader: str) -> int:
    """The step whose result TensorFlow has in memory where a node reads `value`.

    Equal steps of two nodes are one step, with the first node's name: a broadcast, or a widening to f32, that
    the second would do for itself. So these are looked through, unless they are all that their node does.
    """
    while True:
        step = body.steps[value]
        is_shared = step.origin != reader and _is_shared(body, value) and _has_more_work(body, value)
        if not (isinstance(step.op, Reshape) or is_shared):
            return value
        value = step.operands[0]


def _is_shared(body: Body, value: int) -> bool:
    """Whether a step is one that a reader does for itself."""
    step = body.steps[value]
    if isinstance(step.op, Broadcast):
        return True
    widens = isinstance(step.op, Elementwise) and step.op.function == "convert"
    return widens and body.steps[step.operands[0]].type.dtype in _NARROW


def _has_more_work(body: Body, value: int) -> bool:
    origin = body.steps[value].origin
    return any(
        step.origin == origin and index != value and isinstance(step.op, Elementwise | Reduce)
        for index, step in enumerate(body.steps)
    )
