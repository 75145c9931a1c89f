"""What becomes of a graph depends neither on the names of its nodes nor on how unrelated ones are listed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.settings import tries
from tests.passes.drawing import Drawing, checked, f32
from tf_stitch.config import Config
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.printer import print_body
from tf_stitch.passes.clustering import Clustering
from tf_stitch.passes.order import canonical_positions

UNARY = ("Exp", "Tanh", "Abs", "Neg")
BINARY = ("AddV2", "Mul", "Sub", "Maximum")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random graphs over one shape, a fifth of whose nodes are not stitched."""
    d = Drawing()
    values = [d.input(f"x{i}", f32("B", 8)) for i in range(draw(st.integers(1, 3)))]
    values.append(d.constant("two", np.float32(2)))
    for number in range(draw(st.integers(2, 22))):
        recent = values[-7:]
        kind = draw(st.sampled_from(("unary", "binary", "binary", "opaque", "waits")))
        one, other = draw(st.sampled_from(recent)), draw(st.sampled_from(recent))
        op = draw(st.sampled_from(BINARY if kind == "binary" else UNARY))
        inputs = (one, other) if kind == "binary" else (one,)
        values.append(
            d.node(f"n{number}", "Cumsum" if kind == "opaque" else op, *inputs, type_=f32("B", 8),
                   controls=[other.node] if kind == "waits" and other.node != "two" else [])
        )  # fmt: skip
    read = {v for node in d.graph().nodes.values() for v in node.inputs}
    return d.graph(returned=[v for v in values if v not in read and v.node != "two"])


def renamed(graph: Graph, order: list[str], names: dict[str, str]) -> Graph:
    """The same graph with its nodes listed in another order, under other names."""

    def value(v: Value) -> Value:
        return Value(names[v.node], v.index)

    def node(n: Node) -> Node:
        controls = tuple(names[c] for c in n.controls)
        return replace(n, name=names[n.name], inputs=tuple(map(value, n.inputs)), controls=controls)

    return Graph(
        graph.name,
        {names[name]: node(graph.nodes[name]) for name in order},
        returned=frozenset(map(value, graph.returned)),
        constants={value(v): c for v, c in graph.constants.items()},
    )


def another_order(graph: Graph, draw: st.DataObject) -> list[str]:
    """A random topological order."""
    waiting = {n.name: {v.node for v in n.inputs} | set(n.controls) for n in graph.nodes.values()}
    found: list[str] = []
    while waiting:
        name = draw.draw(st.sampled_from([n for n, before in waiting.items() if not before & set(waiting)]))
        found.append(name)
        del waiting[name]
    return found


def kernels(found: Clustering) -> Counter[tuple[int, str]]:
    return Counter((len(c.nodes), print_body(c.body)) for c in found.clusters)


@tries(120)
@given(graphs(), st.data())
def test_names_and_listing_do_not_matter(graph: Graph, data: st.DataObject) -> None:
    order = another_order(graph, data)
    numbers = data.draw(st.permutations(range(len(order))))
    names = {name: f"other/{number}" for name, number in zip(order, numbers, strict=True)}
    other = renamed(graph, order, names)
    for config in (Config(min_cluster_size=1), Config(max_cluster_size=3), Config(remote_stitching=False)):
        assert kernels(checked(graph, config)) == kernels(checked(other, config))


@tries(60)
@given(graphs())
def test_the_order_is_topological(graph: Graph) -> None:
    place = canonical_positions(graph)
    assert sorted(place.values()) == list(range(len(graph.nodes)))
    for node in graph.nodes.values():
        assert all(place[v.node] < place[node.name] for v in node.inputs)
        assert all(place[c] < place[node.name] for c in node.controls)


def test_what_one_result_needs_stands_together() -> None:
    """However it is listed: a cut by size falls between columns, not through all of them."""
    d = Drawing()
    values = [d.input(f"x{i}", f32("B", 8)) for i in range(4)]
    for depth in range(3):
        values = [d.node(f"n{i}{depth}", UNARY[i], v) for i, v in enumerate(values)]
    place = canonical_positions(d.graph(returned=values))
    for i in range(4):
        first = place[f"n{i}0"]
        assert [place[f"n{i}{depth}"] for depth in range(3)] == [first, first + 1, first + 2]
