"""Profitability: whether a legal cluster should be stitched. Changes nothing about what is legal."""

from __future__ import annotations

from collections.abc import Sequence

from tf_stitch.config import Config
from tf_stitch.errors import Reason
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ops import OPS, Kind

# TensorFlow gives these a new shape, or a new name, without touching an element.
_VIEWS = frozenset("Identity StopGradient PreventGradient Snapshot Reshape Squeeze ExpandDims".split())
# What TensorFlow's own graph optimizer (remapper.cc) folds into the kernel of the op in front.
_FOLDED_INTO = {
    "Conv2D": frozenset("BiasAdd FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 Relu Relu6 Elu LeakyRelu".split()),
    "MatMul": frozenset("BiasAdd Relu Relu6 Elu LeakyRelu Tanh Sigmoid".split()),
}


def is_view(op: str) -> bool:
    return op in _VIEWS


def without_idle_views(graph: Graph, members: set[str]) -> set[str]:
    """`members` less the views that others read beside what they are a view of: inside, each would be a copy."""
    members = set(members)
    while True:
        idle = {name for name in members if _is_idle_view(graph, members, name)}
        if not idle:
            return members
        members -= idle


def _is_idle_view(graph: Graph, members: set[str], name: str) -> bool:
    node = graph.nodes[name]
    if node.op not in _VIEWS:
        return False
    users = graph.consumers[name]
    leaves = any(u not in members for u in users) or any(v.node == name for v in graph.returned)
    if not leaves:
        return False
    source = node.inputs[0]
    if source.node not in members:
        return True
    others_read_it = any(u not in members for u in graph.consumers[source.node]) or source in graph.returned
    return others_read_it and all(u not in members for u in users)


def refusal(graph: Graph, members: Sequence[str], config: Config) -> tuple[Reason, str] | None:
    """Why a cluster is not worth a kernel, or None."""
    working = [n for n in members if _works(graph, n)]
    if len(working) < config.min_cluster_size:
        return Reason.TOO_SMALL, f"{len(working)} node(s) that do work"
    if _is_epilogue(graph, members):
        return Reason.NOT_PROFITABLE, "TensorFlow folds it into the kernel in front"
    return None


def _works(graph: Graph, name: str) -> bool:
    op = graph.nodes[name].op
    return op not in _VIEWS and OPS[op].kind is not Kind.MOVEMENT and op not in ("Cast", "ZerosLike", "OnesLike", "Fill")


def _is_epilogue(graph: Graph, members: Sequence[str]) -> bool:
    """Whether the cluster is just a bias, or a batch norm, and an activation behind a convolution or a matmul."""
    working = [n for n in members if _works(graph, n)]
    first = graph.nodes[working[0]]
    producer = graph.nodes.get(first.inputs[0].node)
    if producer is None or producer.op not in _FOLDED_INTO or len(graph.consumers[producer.name]) != 1:
        return False
    folded = _FOLDED_INTO[producer.op]
    ops = [graph.nodes[n].op for n in working]
    if ops[0] == "AddV2" and _is_bias(graph, first.inputs[1]):
        ops[0] = "BiasAdd"
    return len(ops) <= 2 and all(op in folded for op in ops) and ops[0] in ("BiasAdd", "FusedBatchNormV3")


def _is_bias(graph: Graph, value: Value) -> bool:
    return graph.type_of(value).rank == 1
