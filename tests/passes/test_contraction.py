"""Contraction against networkx: what may be joined is joined, and the list stays a topological order."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.settings import tries
from tests.passes.drawing import Drawing, f32
from tf_stitch.errors import Reason
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.passes import contraction as contraction_module
from tf_stitch.passes.contraction import Contraction, frames, units_inside

Edge = tuple[int, int, bool]  # from, to, whether it carries data


def drawn(count: int, edges: list[Edge]) -> Graph:
    """Nodes n0, n1, ... with these edges."""
    d = Drawing()
    for node in range(count):
        inputs = [Value(f"n{a}") for a, b, carries in edges if b == node and carries]
        controls = [f"n{a}" for a, b, carries in edges if b == node and not carries]
        d.node(f"n{node}", "Opaque", *inputs, controls=controls, type_=f32(8))
    return d.graph()


def contracted(graph: Graph) -> Contraction:
    order = {name: number for number, name in enumerate(graph.nodes)}
    return Contraction(graph, order, units_inside(graph, frozenset()))


def oracle(graph: Graph, contraction: Contraction) -> nx.DiGraph[int]:
    """The graph with each unit as one node."""
    whole: nx.DiGraph[int] = nx.DiGraph()
    whole.add_nodes_from({contraction.unit(name) for name in graph.nodes})
    for name, users in graph.consumers.items():
        for user in users:
            one, other = contraction.unit(name), contraction.unit(user)
            if one != other:
                whole.add_edge(one, other)
    return whole


def path_outside(whole: nx.DiGraph[int], one: int, other: int) -> bool:
    """Whether a path of more than one edge leads from either to the other."""
    without = whole.copy()
    without.remove_edges_from([(one, other), (other, one)])
    return nx.has_path(without, one, other) or nx.has_path(without, other, one)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Acyclic, of few edges; listed in another order than the edges go."""
    count = draw(st.integers(2, 16))
    names = draw(st.permutations(range(count)))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1), st.booleans()), max_size=26))
    place = {n: i for i, n in enumerate(names)}
    ordered = [(a, b, carries) if place[a] < place[b] else (b, a, carries) for a, b, carries in pairs if a != b]
    listed = drawn(count, ordered)
    return Graph("", {f"n{n}": listed.nodes[f"n{n}"] for n in names})


@tries(200)
@given(graphs(), st.data())
def test_units_are_joined_wherever_that_makes_no_cycle(graph: Graph, data: st.DataObject) -> None:
    contraction = contracted(graph)
    names = list(graph.nodes)
    for _ in range(data.draw(st.integers(1, 12))):
        one, other = (contraction.unit(data.draw(st.sampled_from(names))) for _ in range(2))
        if one == other:
            continue
        whole = oracle(graph, contraction)
        refused = path_outside(whole, one, other)
        assert contraction.adjacent(one, other) == (whole.has_edge(one, other) or whole.has_edge(other, one))
        assert (contraction.path(one, other) is not None) == refused
        assert (contraction.join(one, other) is not None) == refused
        check(graph, contraction)


def check(graph: Graph, contraction: Contraction) -> None:
    """The list is a topological order of the units, and the edges are the graph's."""
    whole = oracle(graph, contraction)
    listed = list(contraction.in_order())
    assert sorted(listed) == sorted(whole.nodes)
    place = {unit: number for number, unit in enumerate(listed)}
    for unit in listed:
        assert set(contraction.readers(unit)) == set(whole.successors(unit))
        assert set(contraction.reads(unit)) == set(whole.predecessors(unit))
        assert all(place[unit] < place[reader] for reader in whole.successors(unit))
    assert sorted(n for unit in listed for n in contraction.members[unit]) == sorted(graph.nodes)


@tries(60)
@given(graphs(), st.data())
def test_labels_that_run_out_are_given_anew(graph: Graph, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contraction_module, "_GAP", 2)
        contraction = contracted(graph)
        for _ in range(12):
            one, other = (contraction.unit(data.draw(st.sampled_from(list(graph.nodes)))) for _ in range(2))
            if one != other:
                refused = path_outside(oracle(graph, contraction), one, other)
                assert (contraction.join(one, other) is not None) == refused
                check(graph, contraction)


def test_a_path_that_begins_or_ends_with_a_control_edge_says_so() -> None:
    def reason(*carry: bool) -> Reason | None:
        edges = [(i, i + 1, carries) for i, carries in enumerate(carry)]
        contraction = contracted(drawn(len(carry) + 1, edges))
        return contraction.join(0, len(carry))

    assert reason(True) is None
    assert reason(True, True) is Reason.CYCLE
    assert reason(False, True) is reason(True, False) is Reason.CONTROL_EDGE
    assert reason(False, True, True, True) is reason(True, True, False) is Reason.CONTROL_EDGE
    assert reason(True, True, False, True, True) is Reason.CYCLE


def test_a_search_that_goes_too_far_says_that_there_is_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains side by side, each longer than that."""
    monkeypatch.setattr(contraction_module, "_FAR", 10)
    chains = [(i, i + 2, True) for i in range(60)]
    contraction = contracted(drawn(62, chains))
    assert contraction.join(0, 61) is Reason.CYCLE
    assert contraction.join(0, 3) is None


def test_three_way_cycles_are_seen() -> None:
    """a -> b', b -> c', c -> a': any two of (a, a'), (b, b') and (c, c') may be joined, but not all three."""
    contraction = contracted(drawn(6, [(0, 3, True), (1, 4, True), (2, 5, True)]))  # a b c, b' c' a'
    assert contraction.join(0, 5) is None
    assert contraction.join(1, 3) is None
    assert contraction.join(2, 4) is Reason.CYCLE


def test_what_stands_on_a_cycle_is_not_joined() -> None:
    d = Drawing()
    d.node("a", "Opaque", Value("b"), type_=f32(8))
    d.node("b", "Opaque", Value("a"), type_=f32(8))
    d.node("behind", "Opaque", Value("b"), type_=f32(8))
    d.node("apart", "Opaque", type_=f32(8))
    contraction = contracted(d.graph())
    on_cycle = [contraction.stands_on_cycle(contraction.unit(n)) for n in ("a", "b", "behind", "apart")]
    assert on_cycle == [True, True, True, False]
    assert contraction.join(contraction.unit("apart"), contraction.unit("a")) is Reason.CYCLE


def test_loops_are_one_unit_from_outside_and_open_from_inside() -> None:
    d = Drawing()
    x = d.input("x", f32(8))
    outer, inner = ["frame outer"], ["frame outer", "frame outer/inner"]
    merge = d.node("merge", "Merge", x, Value("next"), context=outer)
    d.node("deep", "Exp", d.node("enter", "Enter", merge, context=inner), context=inner)
    d.node("next", "NextIteration", merge, context=outer)
    graph = d.graph()
    assert units_inside(graph, frozenset()) == [("x",), ["merge", "enter", "deep", "next"]]
    around = frames(graph.nodes["merge"])
    units = units_inside(graph, around, [["merge", "next"]])
    assert units == [["merge", "next"], ["enter", "deep"]]
    order = {name: number for number, name in enumerate(graph.nodes)}
    assert not Contraction(graph, order, units).stands_on_cycle(0)
