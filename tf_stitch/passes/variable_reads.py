"""Variables are not read back: what is read after an assignment is what was assigned.

    m ─► Read ─► amount ─► AssignAdd(m) ┄┄► Read ─► …       m ─► Read ─► amount ─► AddV2 ─► AssignVariable(m)
                                                                  └─────────────────┘  └─► …

Optimizers update their moments, and then read them for the step that they take. The read waits for the assignment, and
so cuts what is one formula in three, with everything between written and read again. The sum is computed instead, by
AddV2 as by the assignment, once for both.

    rule                                                      what would change otherwise
    one node of the graph assigns, nothing else has the       another assignment might come between
      handle but reads, and no other name for it
    who reads later says so by a control edge to the          an order that the read back had given, and that is gone
      assignment
    what is added is computed from a read of the variable     one of two additions at a time would be lost; this one is
                                                              no single step anyway
    it has the variable's type                                an addition of another shape is an error
    all run under the same frame, condition and device        they would run another number of times
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tf_stitch.ir.graph import Node, Value
from tf_stitch.ops import OPS

if TYPE_CHECKING:
    from tf_stitch.ir.graph import Graph

_READ = "ReadVariableOp"
_ASSIGN = "AssignVariableOp"
_SUMS = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}
_WRITERS = frozenset({_ASSIGN, *_SUMS})
_HARMLESS = frozenset({_READ, "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})
_NAMES = frozenset({"_Arg", "Placeholder", "VarHandleOp"})  # each another variable, but for handles of one shared name
_REACH = 16  # nodes between a read and what is added: beyond them they would not be in one kernel


def without_reads_back(graph: Graph) -> Graph:
    """The graph with values in place of reads back. Nodes that have changed for it are in its `revised`."""
    writers = [n for n in graph.nodes.values() if n.op in _WRITERS and graph.consumers[n.name]]
    if not writers:
        return graph
    users = _users(graph, {w.inputs[0] for w in writers} - _of_two_names(graph))
    sums: dict[str, Node] = {}  # what an assignment will assign
    instead: dict[Value, Value] = {}
    for writer in writers:
        later = _later_reads(graph, writer, users.get(writer.inputs[0], ()))
        if not later:
            continue
        if writer.op == _ASSIGN:
            value = writer.inputs[1]
        elif (found := _sum(graph, writer)) is not None:
            sums[writer.name] = found
            value = Value(found.name)
        else:
            continue
        instead |= {Value(read.name): value for read in later}
    return _revised(graph, sums, instead) if instead else graph


def _revised(graph: Graph, sums: Mapping[str, Node], instead: Mapping[Value, Value]) -> Graph:
    def connected(node: Node) -> Node:
        inputs = tuple(map(resolved, node.inputs))
        return node if inputs == node.inputs else replace(node, inputs=inputs)

    def resolved(value: Value) -> Value:
        while value in instead:
            value = instead[value]
        return value

    named = {name for node in graph.nodes.values() for name in (*node.controls, *_beside(node))} | graph.fetched
    gone = {v.node for v in instead if v.node not in named and v not in graph.returned}
    nodes: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        if name in sums:
            amount = connected(sums[name])
            nodes[amount.name] = amount
            attributes = {"dtype": node.attributes["dtype"], "validate_shape": False}
            inputs = (node.inputs[0], Value(amount.name))
            nodes[name] = replace(node, op=_ASSIGN, inputs=inputs, attributes=attributes)
        elif name not in gone:
            nodes[name] = connected(node)
    revised = {n for n, node in nodes.items() if graph.nodes.get(n) is not node} | gone
    return replace(graph, nodes=nodes, revised=graph.revised | revised)


def _beside(node: Node) -> Iterator[str]:
    """The nodes that it has to be placed with."""
    for place in node.attributes.get("_class", ()):
        yield str(place).removeprefix("loc:@")


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


def _later_reads(graph: Graph, writer: Node, users: Iterable[Node]) -> list[Node]:
    """The reads that wait for the assignment; none where not all is known of who else reads and assigns."""
    handle = graph.nodes[writer.inputs[0].node]
    others = [n for n in users if n is not writer]
    later = [n for n in others if n.op == _READ and writer.name in n.controls]
    if not later or handle.op not in _NAMES or any(n.op not in _HARMLESS for n in others):
        return []
    if any(_place(n) != _place(writer) for n in later):
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


def _sum(graph: Graph, writer: Node) -> Node | None:
    """The node that computes what the variable holds behind the assignment."""
    before, amount = _own_read(graph, writer), writer.inputs[1]
    name = f"{writer.name}/value"
    if before is None or name in graph.nodes:
        return None
    type_ = graph.type_of(amount)
    if type_.shape is None or graph.type_of(before) != type_:
        return None
    attributes = {"T": writer.attributes["dtype"]}
    inputs = (before, amount)
    return Node(name, _SUMS[writer.op], inputs, (type_,), (), attributes, writer.device, writer.context)


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
