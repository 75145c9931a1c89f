"""Variables are not read back, and what is added to them is added in the kernel that computes it.

    m ─► Read ─► amount ─► AssignAdd(m) ┄┄► Read ─► …         m ─► Read ─► amount ─► AddV2 ─► StitchAssign(m)
                                                                     └────────────────┘ └─► …

    w ─► Read ─► … ─► step ─► AssignSub(w)                    w ─► Read ─► … ─► step ─► Sub ─► StitchAssign(w)
                                                                     └───────────────────┘

Optimizers update their moments, and then read them for the step that they take. The read waits for the assignment, and
so cuts what is one formula in three, with all between written and read again; the step itself is written, for
AssignSub to read it again. The sum is computed instead, by AddV2 or Sub as by the assignment, once for both. What
another step adds in the meantime is not lost: StitchAssign adds, where the variable no longer holds what was read, and
else takes the sum over as it is (kernels/stitch_assign.cc). It is no gain where rows of a variable are gathered or
scattered to: then TensorFlow copies what it reads, and adds in place.

GPUs have no StitchAssign. There only moments are assigned, by AssignVariable: what is added to them is computed from a
read of their own, and so is no single step anyway.

    rule                                                      what would change otherwise
    one node of the graph assigns, nothing else has the       another assignment might come between
      handle but reads, and no other name for it
    who reads later says so by a control edge to the          an order that the read back had given, and that is gone
      assignment
    what was read before does not wait for the assignment     it would have to wait for itself
    it has the type of what is added                          an addition of another shape is an error
    all run under the same frame, condition and device        they would run another number of times
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tf_stitch.config import is_for_gpus
from tf_stitch.ir.graph import Node, Value
from tf_stitch.ir.types import FLOATS, DType
from tf_stitch.ops import OPS
from tf_stitch.passes.legality import may_run_there
from tf_stitch.passes.profitability import works

if TYPE_CHECKING:
    from tf_stitch.ir.graph import Graph

_READ = "ReadVariableOp"
_ASSIGN = "AssignVariableOp"
_ASSIGN_SUM = "StitchAssign"
_SUMS = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}
_GATHERS = frozenset({"ResourceGather", "ResourceGatherNd"})
_HARMLESS = _GATHERS | {_READ, "VarIsInitializedOp", "VariableShape"}
_NAMES = frozenset({"_Arg", "Placeholder", "VarHandleOp"})  # each another variable, but for handles of one shared name
_ADDED = FLOATS | {DType.I32, DType.I64}  # what StitchAssign adds
_REACH = 16  # nodes between a read and what is added: beyond them they would not be in one kernel


def without_reads_back(graph: Graph, target: str = "cpu") -> Graph:
    """The graph with values in place of reads back, and sums in place of additions to variables.

    Nodes that have changed for it are in its `revised`. target: what its kernels are for, as in Config.
    """
    writers = [n for n in graph.nodes.values() if n.op in _SUMS or (n.op == _ASSIGN and graph.consumers[n.name])]
    if not writers:
        return graph
    users = _users(graph, {w.inputs[0] for w in writers} - _of_two_names(graph))
    sums: dict[str, _Sum] = {}  # what an assignment will assign
    instead: dict[Value, Value] = {}
    for writer in writers:
        others = [n for n in users.get(writer.inputs[0], ()) if n is not writer]
        if not _is_known(graph, writer, others):
            continue
        later = _later_reads(graph, writer, others)
        if writer.op == _ASSIGN:
            value = writer.inputs[1]
        elif (found := _sum(graph, writer, others, later, target)) is not None:
            sums[writer.name] = found
            value = Value(found.node.name)
        else:
            continue
        instead |= {Value(read.name): value for read in later}
    return _revised(graph, sums, instead) if sums or instead else graph


@dataclass(frozen=True)
class _Sum:
    """node: computes what the variable holds behind the assignment. before: what was read of it; None on a GPU."""

    node: Node
    before: Value | None


def _revised(graph: Graph, sums: Mapping[str, _Sum], instead: Mapping[Value, Value]) -> Graph:
    def connected(node: Node) -> Node:
        inputs = tuple(map(resolved, node.inputs))
        return node if inputs == node.inputs else replace(node, inputs=inputs)

    def resolved(value: Value) -> Value:
        while value in instead:
            value = instead[value]
        return value

    named = {name for node in graph.nodes.values() for name in (*node.controls, *node.colocated)} | graph.fetched
    gone = {v.node for v in instead if v.node not in named and v not in graph.returned}
    nodes: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        if name in sums:
            found = sums[name]
            amount = connected(found.node)
            nodes[amount.name] = amount
            nodes[name] = _assignment(node, found, Value(amount.name))
        elif name not in gone:
            nodes[name] = connected(node)
    revised = {n for n, node in nodes.items() if graph.nodes.get(n) is not node} | gone
    return replace(graph, nodes=nodes, revised=graph.revised | revised)


def _assignment(writer: Node, found: _Sum, value: Value) -> Node:
    attributes: dict[str, object] = {"dtype": writer.attributes["dtype"]}
    if found.before is None:
        inputs = (writer.inputs[0], value)
        return replace(writer, op=_ASSIGN, inputs=inputs, attributes=attributes | {"validate_shape": False})
    return replace(writer, op=_ASSIGN_SUM, inputs=(writer.inputs[0], found.before, value), attributes=attributes)


def _of_two_names(graph: Graph) -> set[Value]:
    """Handles of variables that another node of the graph has a handle of, too."""
    found: dict[object, set[Value]] = {}
    for node in graph.nodes.values():
        if node.op == "VarHandleOp":
            name = node.attributes.get("container"), node.attributes.get("shared_name") or node.name
            found.setdefault(name, set()).add(Value(node.name))
    return {handle for handles in found.values() if len(handles) > 1 for handle in handles}


def _users(graph: Graph, handles: Iterable[Value]) -> Mapping[Value, list[Node]]:
    users: dict[Value, list[Node]] = {handle: [] for handle in handles}
    for node in graph.nodes.values():
        for value in dict.fromkeys(node.inputs):
            if value in users:
                users[value].append(node)
    return users


def _is_known(graph: Graph, writer: Node, others: Sequence[Node]) -> bool:
    """Whether it is known of all `others` that have the handle what they do with the variable: that they only read."""
    handle = graph.nodes[writer.inputs[0].node]
    return bool(others) and handle.op in _NAMES and all(n.op in _HARMLESS for n in others)


def _later_reads(graph: Graph, writer: Node, others: Iterable[Node]) -> list[Node]:
    """The reads that wait for the assignment; none where not all is known of who reads later."""
    later = [n for n in others if n.op == _READ and writer.name in n.controls]
    if not later or any(_place(n) != _place(writer) for n in later):
        return []
    untold = {n.name for n in others if writer.name not in n.controls}
    return [] if untold and untold & set(_descendants(graph, writer)) else later


def _descendants(graph: Graph, node: Node) -> Iterator[str]:
    found, stack = {node.name}, [node.name]
    while stack:
        for user in graph.consumers[stack.pop()]:
            if user not in found:
                found.add(user)
                stack.append(user)
                yield user


def _sum(graph: Graph, writer: Node, others: Sequence[Node], later: Sequence[Node], target: str) -> _Sum | None:
    """What becomes of an addition, where there is something to gain and it can be done; else None."""
    amount = writer.inputs[1]
    on_gpu = is_for_gpus(target) or not may_run_there(writer.device, target)
    before: Value | None = None
    if on_gpu:
        before = _own_read(graph, writer) if later else None
    elif _pays(graph, amount, others, later):
        before = _read_before(graph, writer, others)
    name = f"{writer.name}/value"
    type_ = graph.type_of(amount)
    if before is None or name in graph.nodes or type_.shape is None or graph.type_of(before) != type_:
        return None
    if type_.dtype not in _ADDED:
        return None
    attributes = {"T": writer.attributes["dtype"]}
    inputs = (before, amount)
    node = Node(name, _SUMS[writer.op], inputs, (type_,), (), attributes, writer.device, writer.context)
    return _Sum(node, None if on_gpu else before)


def _pays(graph: Graph, amount: Value, others: Sequence[Node], later: Sequence[Node]) -> bool:
    """Whether taking the sum over saves work: a kernel has it, and what is read of the variable is no copy."""
    if any(n.op in _GATHERS for n in others):
        return False
    return bool(later) or (graph.nodes[amount.node].op in OPS and works(graph, [amount.node], frozenset()))


def _read_before(graph: Graph, writer: Node, others: Iterable[Node]) -> Value | None:
    """A read of the variable that does not wait for the assignment."""
    behind: set[str] | None = None
    for node in others:
        if node.op == _READ and _place(node) == _place(writer):
            behind = set(_descendants(graph, writer)) if behind is None else behind
            if node.name not in behind:
                return Value(node.name)
    return None


def _own_read(graph: Graph, writer: Node) -> Value | None:
    """The read of the variable that what is added is computed from, by ops that may be stitched."""
    handle, amount = writer.inputs
    near = [amount.node]
    for name in near:
        node = graph.nodes[name]
        if node.op == _READ and node.inputs[0] == handle and _place(node) == _place(writer):
            return Value(name)
        if node.op in OPS and len(near) < _REACH:
            near += [v.node for v in dict.fromkeys(node.inputs) if v.node not in near]
    return None


def _place(node: Node) -> tuple[frozenset[str], str]:
    return node.context, node.device
