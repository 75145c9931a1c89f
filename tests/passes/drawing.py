"""Graphs drawn by hand, without TensorFlow:

d = Drawing()
x = d.input("x", f32("B", 8))
y = d.node("y", "Tanh", x)
clusters(d.graph(returned=[y]))      ->      [["y"]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_stitch.config import Config
from tf_stitch.errors import Reason
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import ALL, Dim, DType, TensorType, shape_of
from tf_stitch.passes.cluster import cluster
from tf_stitch.passes.clustering import Clustering

_DTYPES = {d.numpy: d for d in ALL}


def f32(*dims: int | str | Dim) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


class Drawing:
    """A graph under construction; nodes are added in topological order."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._constants: dict[Value, Any] = {}
        self._extents: dict[Value, tuple[Dim, ...]] = {}

    def input(self, name: str, type_: TensorType, **more: Any) -> Value:
        return self.node(name, "Placeholder", type_=type_, **more)

    def constant(self, name: str, value: Any, **more: Any) -> Value:
        array = np.asarray(value)
        type_ = TensorType(_DTYPES[array.dtype], tuple(map(Dim, array.shape)))
        found = self.node(name, "Const", type_=type_, **more)
        self._constants[found] = array
        return found

    def extents(self, value: Value, *dims: Dim) -> None:
        """Says that an integer tensor holds these dims."""
        self._extents[value] = dims

    def node(
        self,
        name: str,
        op: str,
        *inputs: Value,
        type_: TensorType | None = None,
        types: Sequence[TensorType] = (),
        controls: Sequence[str] = (),
        context: Sequence[str] = (),
        device: str = "",
        stateful: bool = False,
        **attributes: Any,
    ) -> Value:
        """A node; its result has the type of its first operand unless another is given. Returns its first output."""
        if not types:
            types = [type_ or self._nodes[inputs[0].node].types[inputs[0].index]]
        self._nodes[name] = Node(
            name, op, tuple(inputs), tuple(types), tuple(controls), attributes, device, frozenset(context), stateful
        )
        return Value(name)

    def graph(self, returned: Sequence[Value] = (), fetched: Sequence[str] = ()) -> Graph:
        return Graph("", self._nodes, frozenset(fetched), frozenset(returned), self._constants, self._extents)


def clusters(graph: Graph, config: Config | None = None) -> list[list[str]]:
    """The members of each cluster."""
    return [list(c.nodes) for c in checked(graph, config).clusters]


def reasons(graph: Graph, config: Config | None = None) -> dict[str, Reason]:
    """Why each node that is in no cluster is in none."""
    return {r.node: r.reason for r in checked(graph, config).rejections}


def checked(graph: Graph, config: Config | None = None) -> Clustering:
    """The clustering, after a look at what must hold of any."""
    found = cluster(graph, config or Config())
    inside = [n for c in found.clusters for n in c.nodes]
    assert len(inside) == len(set(inside)), "a node is in one cluster"
    rejected = [r.node for r in found.rejections]
    assert not set(inside) & set(rejected)
    assert len(rejected) == len(set(rejected)), "a node has one rejection"
    silent = {n for n, node in graph.nodes.items() if node.op in ("Placeholder", "Const", "NoOp", "ReadVariableOp")}
    assert set(graph.nodes) == {*inside, *rejected, *silent}, "every node is in a cluster or has a reason"
    assert_acyclic(graph, found)
    for c in found.clusters:
        assert len(c.inputs) == len(c.body.inputs)
        assert len(c.outputs) == len(c.body.outputs)
        assert not {v.node for v in c.inputs} & set(c.nodes)
        assert {v.node for v in c.outputs} <= set(c.nodes)
    return found


def assert_acyclic(graph: Graph, clustering: Clustering) -> None:
    """Contracts each cluster to one node, and to nodes outside of it each loop, and orders what is left."""
    place = {n: n for n in graph.nodes} | {n: c.name for c in clustering.clusters for n in c.nodes}
    written_in = {n: set(c.constants) - {v.node for v in c.inputs} for c in clustering.clusters for n in c.nodes}
    waits = {c.name: c.controls for c in clustering.clusters}
    frames = {frame for node in graph.nodes.values() for frame in _frames(node)}
    _assert_ordered(
        graph,
        place | {n: _outermost(node, frozenset()) for n, node in graph.nodes.items() if _frames(node)},
        written_in,
        waits,
    )
    for frame in frames:
        inside = {n: place[n] for n, node in graph.nodes.items() if frame in _frames(node)}
        _assert_ordered(graph, inside, written_in, waits)


def _frames(node: Node) -> frozenset[str]:
    return frozenset(c for c in node.context if c.startswith("frame "))


def _outermost(node: Node, around: frozenset[str]) -> str:
    return min(_frames(node) - around, key=len)


def _assert_ordered(
    graph: Graph, place: dict[str, str], written_in: dict[str, set[str]], controls: dict[str, tuple[str, ...]]
) -> None:
    """written_in: of a member of a cluster, the constants that its kernel holds; controls: what clusters wait for."""
    waits: dict[str, set[str]] = {p: {place[c] for c in controls.get(p, ()) if c in place} for p in place.values()}
    for name, mine in place.items():
        node = graph.nodes[name]
        before = [v.node for v in node.inputs if v.node not in written_in.get(name, ())] + list(node.controls)
        waits[mine] |= {place[b] for b in before if b in place and graph.nodes[b].op != "NextIteration"}
    for name, others in waits.items():
        others.discard(name)
    while waits:
        ready = {name for name, others in waits.items() if not others & set(waits)}
        assert ready, f"a cycle among {sorted(waits)}"
        waits = {name: others for name, others in waits.items() if name not in ready}
