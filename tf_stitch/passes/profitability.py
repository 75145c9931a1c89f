"""Profitability: whether a legal cluster should be stitched. Changes nothing about what is legal."""

from __future__ import annotations

from collections.abc import Sequence

from tf_stitch.config import Config
from tf_stitch.errors import Reason
from tf_stitch.ir.body import Input, Reduce, Reshape
from tf_stitch.ir.graph import Graph
from tf_stitch.ops import OPS, Kind
from tf_stitch.passes.expand import Expansion

# What TensorFlow's own graph optimizer (remapper.cc) folds into the kernel of the op in front.
_FOLDED_INTO = {
    "Conv2D": frozenset("BiasAdd FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 Relu Relu6 Elu LeakyRelu".split()),
    "MatMul": frozenset("BiasAdd Relu Relu6 Elu LeakyRelu Tanh Sigmoid".split()),
}
_ACTIVATIONS = frozenset("Relu Relu6 Elu LeakyRelu Tanh Sigmoid".split())
# Not worth a kernel, however many of them.
_IDLE = frozenset("Cast ZerosLike OnesLike Fill".split())


def is_view(alone: Expansion) -> bool:
    """Whether a node, expanded by itself, just gives its operand a new shape or name.

    TensorFlow does that without touching an element: Reshape, Identity, a transpose that moves only dims of 1, ...
    """
    steps = alone.body.steps
    return all(isinstance(s.op, Input | Reshape) for s in steps) and len(alone.body.outputs) == 1


def reduces_leading_axes(alone: Expansion) -> bool:
    """Whether a node reduces axes that are not the last ones: a walk down the columns, which is not vectorised yet."""
    steps = alone.body.steps
    for step in steps:
        if isinstance(step.op, Reduce):
            dims = steps[step.operands[0]].type.dims
            kept = [a for a in range(len(dims)) if a not in step.op.axes and not dims[a].is_one]
            if kept and max(kept) > min(step.op.axes):
                return True
    return False


def without_idle_views(graph: Graph, members: set[str], views: frozenset[str]) -> set[str]:
    """`members` less the views that others read beside what they are a view of: inside, each would be a copy."""
    members = set(members)
    while True:
        idle = {name for name in members & views if _is_idle_view(graph, members, name)}
        if not idle:
            return members
        members -= idle


def _is_idle_view(graph: Graph, members: set[str], name: str) -> bool:
    users = graph.consumers[name]
    leaves = any(u not in members for u in users) or any(v.node == name for v in graph.returned)
    if not leaves:
        return False
    source = graph.nodes[name].inputs[0]
    if source.node not in members:
        return True
    others_read_it = any(u not in members for u in graph.consumers[source.node]) or source in graph.returned
    return others_read_it and all(u not in members for u in users)


def refusal(graph: Graph, members: Sequence[str], views: frozenset[str], config: Config) -> tuple[Reason, str] | None:
    """Why a cluster is not worth a kernel, or None."""
    working = [n for n in members if n not in views and _works(graph, n)]
    if len(working) < config.min_cluster_size:
        return Reason.TOO_SMALL, f"{len(working)} node(s) that do work"
    folded = _folded(graph, working)
    if folded and len(working) - folded < config.min_cluster_size:
        return Reason.NOT_PROFITABLE, f"TensorFlow folds {folded} of its {len(working)} node(s) into the op in front"
    return None


def _works(graph: Graph, name: str) -> bool:
    op = graph.nodes[name].op
    return OPS[op].kind is not Kind.MOVEMENT and op not in _IDLE


def _folded(graph: Graph, working: Sequence[str]) -> int:
    """How many nodes, from the first on, TensorFlow would fold into a convolution or a matmul in front of them."""
    first = graph.nodes[working[0]]
    producer = graph.nodes.get(first.inputs[0].node)
    if producer is None or producer.op not in _FOLDED_INTO or len(graph.consumers[producer.name]) != 1:
        return 0
    folded = _FOLDED_INTO[producer.op]
    op = "BiasAdd" if first.op in ("Add", "AddV2") and graph.type_of(first.inputs[1]).rank == 1 else first.op
    if op != "BiasAdd" and not (op.startswith("FusedBatchNorm") and op in folded):
        return 0
    users = graph.consumers[first.name]
    if len(users) == 1 and users[0] in working and graph.nodes[users[0]].op in _ACTIVATIONS & folded:
        return 2
    return 1
