"""Legality: which nodes may be stitched at all, and which may be stitched together. Says nothing of whether to."""

from __future__ import annotations

from collections.abc import Mapping

from tf_stitch.config import Config
from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import Dim, DType
from tf_stitch.ops import OPS
from tf_stitch.passes.clustering import Rejection
from tf_stitch.passes.expand import Expansion, expand

# Nodes that hold or pass on what others compute. There is nothing to explain about their not being stitched.
_SILENT = frozenset("Const Placeholder PlaceholderWithDefault _Arg _Retval NoOp VarHandleOp ReadVariableOp".split())

# What they pass on belongs to the next iteration of a loop: no path of this one.
_BACK_EDGES = frozenset(("NextIteration", "RefNextIteration"))


def examine(graph: Graph, node: Node, config: Config) -> Expansion | Rejection:
    """The node by itself as a body; or why it may not be stitched, whatever its neighbours."""

    def because(reason: Reason, detail: str = "") -> Rejection:
        return Rejection(node.name, node.op, reason, detail)

    if node.op not in OPS:
        return because(Reason.UNSUPPORTED_OP)
    if node.op in config.exclude or node.name in config.exclude:
        return because(Reason.EXCLUDED)
    if node.name in graph.fetched:
        return because(Reason.FETCHED)
    if node.stateful:
        return because(Reason.STATEFUL)
    if not _on_cpu(node.device):
        return because(Reason.DEVICE, node.device)
    if node.types and all(Value(node.name, i) in graph.extents for i in range(len(node.types))):
        return because(Reason.TOO_SMALL, "arithmetic on shapes")
    used = {v for user in graph.consumers[node.name] for v in graph.nodes[user].inputs if v.node == node.name}
    used |= {v for v in graph.returned if v.node == node.name}
    for value in used:
        if graph.type_of(value).dtype is DType.OTHER:
            return because(Reason.DTYPE)
        if graph.type_of(value).shape is None:
            return because(Reason.UNKNOWN_RANK)
        if any(d == Dim(0) for d in graph.type_of(value).dims):
            return because(Reason.TOO_SMALL, "it has no elements")
    try:
        return expand(graph, [node.name], sorted(used))
    except Unsupported as refusal:
        return because(refusal.reason, refusal.detail)


def is_back_edge(node: Node) -> bool:
    """Whether what reads this node does so in the next iteration of a loop."""
    return node.op in _BACK_EDGES


def is_silent(node: Node) -> bool:
    return node.op in _SILENT


def _on_cpu(device: str) -> bool:
    return not device or "CPU" in device.upper().rsplit("/", 1)[-1]


def compatible(graph: Graph, a: set[str], b: set[str]) -> Reason | None:
    """Why two clusters may not share a kernel, whatever lies between them."""
    nodes = [graph.nodes[name] for name in (*a, *b)]
    if len({node.context for node in nodes}) > 1:
        return Reason.FRAME
    if len({node.device for node in nodes if node.device}) > 1:
        return Reason.DEVICE
    return None


def path_outside(
    graph: Graph, sources: set[str], targets: set[str], position: Mapping[str, int], cluster_of: Mapping[str, set[str]]
) -> Reason | None:
    """Why `sources` and `targets` may not be contracted to one: a path between them through other nodes.

    Nodes that are in a cluster already stand for the whole of it, and those of a loop that both are outside of for
    the whole loop: what leaves it depends on all that entered it, be it by way of another iteration. Returns
    CONTROL_EDGE where the path begins or ends with a control edge, else CYCLE; None where there is no path.
    """
    last = max(position[t] for t in targets)
    both = sources | targets
    context = graph.nodes[next(iter(sources))].context
    stack: list[tuple[str, bool]] = []
    seen: set[str] = set()

    def leave(members: set[str]) -> None:
        stack.extend(
            (user, member in graph.nodes[user].controls)
            for member in members
            for user in graph.consumers[member]
            if user not in both and user not in seen
        )

    leave(sources)
    while stack:
        name, by_control = stack.pop()
        if name in seen:
            continue
        members = _loop_around(graph, name, context) or cluster_of.get(name, {name})
        if min(position[m] for m in members) > last or graph.nodes[name].op in _BACK_EDGES:
            continue
        seen |= members
        for member in members:
            for user in graph.consumers[member]:
                if user in targets:
                    control = by_control or member in graph.nodes[user].controls
                    return Reason.CONTROL_EDGE if control else Reason.CYCLE
                if user not in both and user not in seen:
                    stack.append((user, by_control))
    return None


def _loop_around(graph: Graph, name: str, context: frozenset[str]) -> frozenset[str]:
    """All nodes of the outermost loop around a node that is not around `context`; none where there is no such loop."""
    frames = [word for word in graph.nodes[name].context - context if word.startswith("frame ")]
    return graph.members[min(frames, key=len)] if frames else frozenset()
