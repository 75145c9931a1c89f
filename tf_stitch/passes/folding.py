"""What TensorFlow folds into the convolution or product in front, where it costs nothing.

    y = Relu(BiasAdd(Conv2D(x, w), b))      ->      y = _FusedConv2D(x, w, b, fused_ops=[BiasAdd, Relu])

TensorFlow's own graph optimizer does so after ours (grappler/optimizers/remapper.cc). Taken from there, a bias would
cost as much as before, and the convolution would lose what else is folded along with it (padding, for one). With oneDNN
it folds into more ops, and more into each. The tables are what TensorFlow 2.21 was seen to do:
tests/frontend/test_folding.py looks again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tf_stitch.ir.graph import Graph, Value

_BIAS_ADD = frozenset(("BiasAdd",))
_ANY_BIAS = frozenset(("BiasAdd", "Add", "AddV2"))
_BATCH_NORM = frozenset(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"))
_RELUS = frozenset(("Relu", "Relu6", "Elu"))


@dataclass(frozen=True)
class Folded:
    """What may follow: one of `first`, and then one of `activations`. Each is read by the next alone."""

    first: frozenset[str]
    activations: frozenset[str]


_ALWAYS: Mapping[str, Folded] = {
    "Conv2D": Folded(_BIAS_ADD | _BATCH_NORM, _RELUS | {"LeakyRelu"}),
    "MatMul": Folded(_BIAS_ADD, _RELUS | {"LeakyRelu"}),
}
_BY_ONEDNN: Mapping[str, Folded] = {
    "Conv2D": Folded(_ANY_BIAS | _BATCH_NORM, _RELUS | {"LeakyRelu"}),
    "Conv3D": Folded(_ANY_BIAS, _RELUS | {"LeakyRelu"}),
    "DepthwiseConv2dNative": Folded(_ANY_BIAS, _RELUS),
    "MatMul": Folded(_ANY_BIAS, _RELUS | {"LeakyRelu", "Tanh", "Sigmoid"}),
}


def foldable(onednn: bool) -> Mapping[str, Folded]:
    """By op, what TensorFlow folds into it."""
    return _BY_ONEDNN if onednn else _ALWAYS


def folded_nodes(graph: Graph, stitched: Collection[str] = ()) -> frozenset[str]:
    """The nodes that TensorFlow folds into the one in front, unless that is one of `stitched`."""
    table = foldable(graph.onednn)
    found: set[str] = set()
    for node in graph.nodes.values():
        folded = table.get(node.op)
        if folded is None or node.name in stitched or Value(node.name, 0) in graph.returned:
            continue
        first = _only_user(graph, node.name)
        if first is None or graph.nodes[first].op not in folded.first or not _is_bias(graph, first):
            continue
        found.add(first)
        second = _only_user(graph, first)
        if second is not None and graph.nodes[second].op in folded.activations:
            found.add(second)
    return frozenset(found)


def _only_user(graph: Graph, name: str) -> str | None:
    users = graph.consumers[name]
    return users[0] if len(users) == 1 else None


def _is_bias(graph: Graph, name: str) -> bool:
    node = graph.nodes[name]
    if node.op in ("Add", "AddV2"):
        return graph.type_of(node.inputs[1]).rank == 1
    return not (node.op in _BATCH_NORM and node.attributes.get("is_training", False))
