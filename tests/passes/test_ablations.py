"""Each switch takes away what it says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.drawing import Drawing, checked, f32
from tests.passes.test_pipeline import TARGET, Toolchain
from tf_stitch.config import ABLATIONS, Config
from tf_stitch.errors import Reason
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ir.types import DType
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.cpu import Driver, schedule
from tf_stitch.pipeline import StitchedCluster, stitch_all
from tf_stitch.plan.plan import Scheme
from tf_stitch.plan.verify import verify_plan


def reduced(d: Drawing, name: str, op: str, x: Value, axis: int, *dims: int | str) -> Value:
    axes = d.constant(f"{name} axis", np.array([axis], np.int32))
    return d.node(name, op, x, axes, type_=f32(*dims), keep_dims=True)


def softmax(rows: int | str = "R", width: int | str = "N") -> Graph:
    """Two reductions of a row, and what is made of them."""
    d = Drawing()
    x = d.input("x", f32(rows, width))
    e = d.node("e", "Exp", d.node("less", "Sub", x, reduced(d, "most", "Max", x, 1, rows, 1), type_=f32(rows, width)))
    y = d.node("y", "RealDiv", e, reduced(d, "sum", "Sum", e, 1, rows, 1), type_=f32(rows, width))
    return d.graph(returned=[y])


def scaled() -> Graph:
    """Rows times a parameter that is dear to compute: once, in a nest of its own, and not again for each row."""
    d = Drawing()
    scale = d.node("r", "Rsqrt", d.node("e", "Exp", d.input("p", f32(100))))
    y = d.node("y", "Mul", d.node("t", "Tanh", d.input("x", f32("R", 100))), scale, type_=f32("R", 100))
    return d.graph(returned=[y])


def short_rows() -> Graph:
    """Rows that are no multiple of a vector: packed."""
    d = Drawing()
    x, scale = d.input("x", f32("R", 30)), d.input("scale", f32(30))
    return d.graph(returned=[d.node("y", "Tanh", d.node("t", "Mul", x, scale))])


def columns() -> Graph:
    d = Drawing()
    found = [d.node(f"y{i}", "Tanh", d.node(f"t{i}", "Exp", d.input(f"x{i}", f32("B", 8 + i)))) for i in range(3)]
    return d.graph(returned=found)


GRAPHS: dict[str, Callable[[], Graph]] = {
    "softmax": softmax, "scaled": scaled, "short_rows": short_rows, "columns": columns,
}  # fmt: skip


def stitched(graph: Graph, config: Config) -> tuple[StitchedCluster, ...]:
    chain: Any = Toolchain()
    (result,) = stitch_all([graph], config, TARGET, chain)
    for made in result.clusters:
        verify_plan(made.plan)
    return result.clusters


def decisions(graph: Graph, config: Config) -> dict[str, Any]:
    """What each idea decides."""
    made = stitched(graph, config)
    kernels = [m.kernel for m in made]
    return {
        "clusters": [m.cluster.nodes for m in made],
        "groups": [len(m.plan.groups) for m in made],
        "global": [sum(s is Scheme.GLOBAL for s in m.plan.schemes.values()) for m in made],
        "packed": [sum(bool(n.repeats) for n in k.nests) for k in kernels],
        "text": [m.source.text for m in made],
    }


# What each switch changes of the graphs above; all else stays as it is, to the word.
CHANGED = {
    "adaptive_mapping": {"softmax": {"text"}, "scaled": {"packed", "text"}, "short_rows": {"packed", "text"}},
    "dominant_merging": {"softmax": {"groups", "global", "text"}},
    "regional_scheme": {"softmax": {"clusters", "text"}},
    "global_scheme": {"scaled": {"clusters", "groups", "global", "packed", "text"}},
    "remote_stitching": {"columns": {"clusters", "groups", "global", "packed", "text"}},
    "variable_forwarding": {},  # no variables there: see test_variable_reads
    "invariant_motion": {},  # no loops: see test_loop_invariants
    "product_stitching": {},  # no products: see test_products
}


@pytest.mark.parametrize("switch", ABLATIONS)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_switch_changes_what_it_says_and_nothing_else(switch: str, name: str) -> None:
    before, after = (decisions(GRAPHS[name](), config) for config in (Config(), Config().without([switch])))
    changed = {what for what in before if before[what] != after[what]}
    assert changed == CHANGED[switch].get(name, set())


def test_without_adaptive_mapping_rows_are_neither_split_nor_packed() -> None:
    def drivers(graph: Graph, config: Config) -> list[Driver]:
        (made,) = stitched(graph, config)
        kernel = lower(made.plan, "k")
        return [s.driver for s in schedule(kernel, TARGET, adaptive=config.adaptive_mapping)[1]]

    off = Config(adaptive_mapping=False)
    assert drivers(softmax(), Config()) == [Driver.ROWS_OR_SPLIT]
    assert drivers(softmax(), off) == [Driver.ROWS]
    assert drivers(scaled(), Config()) == [Driver.BLOCKS, Driver.BLOCKS]
    assert drivers(short_rows(), off) == [Driver.BLOCKS]


def test_without_dominant_merging_each_anchor_is_a_group() -> None:
    (made,) = stitched(softmax(), Config(dominant_merging=False))
    assert len(made.plan.groups) == 3  # max, sum, output
    assert [g.sub_dominants for g in made.plan.groups] == [(), (), ()]


def test_without_the_global_scheme_a_cluster_ends_where_a_value_crosses() -> None:
    (made,) = stitched(scaled(), Config())
    assert Scheme.GLOBAL in made.plan.schemes.values()
    apart = checked(scaled(), Config(global_scheme=False))
    assert [c.nodes for c in apart.clusters] == [("e", "r"), ("t", "y")]


def test_without_the_regional_scheme_a_cluster_ends_where_a_reduced_value_is_needed_along_the_row() -> None:
    (made,) = stitched(softmax(), Config())
    assert Scheme.REGIONAL in made.plan.schemes.values()
    apart = checked(softmax(), Config(regional_scheme=False, min_cluster_size=1))
    assert [c.nodes for c in apart.clusters] == [("most",), ("less", "e", "sum"), ("y",)]


def test_without_the_regional_scheme_a_mean_is_divided_where_it_is_summed() -> None:
    d = Drawing()
    mean = reduced(d, "mean", "Mean", d.node("e", "Exp", d.input("x", f32("R", "N"))), 1, "R", 1)
    (only,) = checked(d.graph(returned=[mean]), Config(regional_scheme=False)).clusters
    assert only.nodes == ("e", "mean")


def test_without_the_regional_scheme_a_node_that_keeps_rows_by_itself_is_left_alone() -> None:
    d = Drawing()
    y = d.node("y", "Softmax", d.node("t", "Tanh", d.input("x", f32("R", "N"))))
    found = checked(d.graph(returned=[y]), Config(regional_scheme=False, min_cluster_size=1))
    assert [c.nodes for c in found.clusters] == [("t",)]
    assert [(r.node, r.reason) for r in found.rejections] == [("y", Reason.SCHEME)]


def test_a_node_that_crosses_by_itself_is_left_alone() -> None:
    """A Softmax whose anchors may not share a group, without the scheme that would let them be apart."""
    d = Drawing()
    y = d.node("y", "Softmax", d.node("t", "Tanh", d.input("x", f32("R", "N"))))
    config = Config(dominant_merging=False, global_scheme=False, min_cluster_size=1)
    found = checked(d.graph(returned=[y]), config)
    assert [c.nodes for c in found.clusters] == [("t",)]
    assert [(r.node, r.reason) for r in found.rejections] == [("y", Reason.SCHEME)]


@pytest.mark.parametrize("switch", ABLATIONS)
@pytest.mark.parametrize("name", GRAPHS)
def test_answers_stay_the_same(switch: str, name: str) -> None:
    """To a few ulps, through the interpreter: a cluster at a time, in the order of the graph."""
    graph = GRAPHS[name]()
    random = np.random.default_rng(0)
    arrays = {
        Value(n.name): random.standard_normal([d.evaluate({"R": 5, "N": 70, "B": 3}) for d in n.types[0].dims]).astype(
            DType.F32.numpy
        )
        for n in graph.nodes.values()
        if n.op == "Placeholder"
    }
    results: list[dict[Value, Any]] = []
    for config in (Config(min_cluster_size=1), Config(min_cluster_size=1).without([switch])):
        values = dict(arrays)
        waiting = list(stitched(graph, config))
        while waiting:
            made = next(m for m in waiting if all(v in values for v in m.cluster.inputs))
            waiting.remove(made)
            ran = interp.run(made.kernel, [values[v] for v in made.cluster.inputs])
            values |= dict(zip(made.cluster.outputs, ran, strict=True))
        results.append(values)
    for value in graph.returned:
        np.testing.assert_allclose(results[0][value], results[1][value], rtol=2e-6, atol=1e-7)
