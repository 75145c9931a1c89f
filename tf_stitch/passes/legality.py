"""Legality: which nodes may be stitched at all, and which may be stitched together. Says nothing of whether to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tf_stitch.config import Config, is_for_gpus
from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import Dim, DType
from tf_stitch.ops import OPS
from tf_stitch.passes.clustering import Rejection
from tf_stitch.passes.expand import Expansion, knowledge
from tf_stitch.passes.precedents import Precedents

# Nodes that hold or pass on what others compute. There is nothing to explain about their not being stitched.
_SILENT = frozenset("Const Placeholder PlaceholderWithDefault _Arg _Retval NoOp VarHandleOp ReadVariableOp".split())


def examine(
    graph: Graph, node: Node, read: Sequence[Value], config: Config, precedents: Precedents
) -> Expansion | Rejection:
    """The node by itself as a body (under whatever names); or why it may not be stitched, whatever its neighbours.

    read: those of its outputs that others read, or that the graph returns.
    """

    def because(reason: Reason, detail: str = "") -> Rejection:
        return Rejection(node.name, node.op, reason, detail)

    is_about_shapes = bool(node.types) and all(Value(node.name, i) in graph.extents for i in range(len(node.types)))
    if node.op not in OPS and not is_about_shapes:
        return because(Reason.UNSUPPORTED_OP)
    if node.op in config.exclude or node.name in config.exclude:
        return because(Reason.EXCLUDED)
    if node.name in graph.fetched:
        return because(Reason.FETCHED)
    if node.stateful:
        return because(Reason.STATEFUL)
    if not may_run_there(node.device, config.target):
        return because(Reason.DEVICE, node.device)
    if is_about_shapes:
        return because(Reason.TOO_SMALL, "arithmetic on shapes")
    if is_for_gpus(config.target) and (why := _why_on_the_host(graph, node)) is not None:
        return because(*why)
    for value in read:
        if graph.type_of(value).dtype is DType.OTHER:
            return because(Reason.DTYPE)
        if graph.type_of(value).shape is None:
            return because(Reason.UNKNOWN_RANK)
        if any(d == Dim(0) for d in graph.type_of(value).dims):
            return because(Reason.TOO_SMALL, "it has no elements")
    try:
        return precedents.expanded([node.name], read)
    except Unsupported as refusal:
        return because(refusal.reason, refusal.detail)


def _why_on_the_host(graph: Graph, node: Node) -> tuple[Reason, str] | None:
    """Why the node is no kernel's for GPUs: TensorFlow's have axes, shapes and places in the host's memory.

    So it is the host that looks at a place that is not known, and raises where it is out of range; and what a kernel
    makes of such a number would have to be waited for.
    """
    if OPS[node.op].unknown_places(knowledge(graph, node)):
        return Reason.UNSUPPORTED_OP, "a place that is not known: for GPUs TensorFlow's host looks at it"
    for name in graph.consumers[node.name]:
        user = graph.nodes[name]
        static = OPS[user.op].static_operands(len(user.inputs)) if user.op in OPS and user.inputs else ()
        if any(user.inputs[i].node == node.name for i in static):
            return Reason.DEVICE, f"{name} has it in the host's memory"
    return None


def is_silent(node: Node) -> bool:
    return node.op in _SILENT


def may_run_there(device: str, target: str) -> bool:
    """Whether a node that is placed on `device`, or nowhere yet, may be in a kernel for `target`."""
    kind = "GPU" if is_for_gpus(target) else "CPU"
    return not device or kind in device.upper().rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Place:
    """Where nodes run. device: "" where TensorFlow may still choose."""

    context: frozenset[str]
    device: str

    @staticmethod
    def of(nodes: Iterable[Node]) -> Place:
        """The place of the nodes of one cluster."""
        nodes = list(nodes)
        return Place(nodes[0].context, next((n.device for n in nodes if n.device), ""))

    def with_(self, other: Place) -> Place | Reason:
        """The place of two clusters in one kernel; or why they may not share one, whatever lies between them."""
        if self.context != other.context:
            return Reason.FRAME
        if self.device and other.device and self.device != other.device:
            return Reason.DEVICE
        return Place(self.context, self.device or other.device)
