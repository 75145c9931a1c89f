"""The benchmark of the planner's own time."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench import planner
from bench.__main__ import bench
from bench.sketch import OPAQUE
from tf_stitch.config import Config
from tf_stitch.passes.cluster import cluster


@pytest.mark.parametrize("name", planner.FAMILIES)
@pytest.mark.parametrize("nodes", [100, 1000])
def test_graphs_are_as_large_as_asked_for(name: str, nodes: int) -> None:
    graph = planner.FAMILIES[name](nodes)
    assert nodes <= len(graph.nodes) <= nodes + 70  # the last block is finished
    assert all(v.node in graph.nodes for node in graph.nodes.values() for v in node.inputs)


@pytest.mark.parametrize("name", planner.FAMILIES)
def test_most_of_what_may_be_stitched_is(name: str) -> None:
    graph = planner.FAMILIES[name](300)
    rejected = cluster(graph, Config()).rejections
    ours = [r for r in rejected if r.op not in (OPAQUE, "Placeholder", "Const")]
    assert len(ours) <= len(graph.nodes) / 10


def row(nodes: int, seconds: float, **more) -> dict:
    return {
        "graph": "chain",
        "nodes": nodes,
        "clusters": 1,
        "cluster_s": seconds / 2,
        "plan_s": seconds / 2,
        "total_s": seconds,
        "peak_mib": 1.0,
        "bar_s": None,
        **more,
    }


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_exponent_is_that_of_the_curve(power: float) -> None:
    rows = [row(nodes, 1e-4 * nodes**power) for nodes in (500, 5000, 50000)]
    assert planner.exponent(rows) == pytest.approx(power)


def test_one_size_has_no_exponent() -> None:
    assert planner.exponent([row(500, 1.0)]) is None


def test_what_is_over_the_bar_is_named() -> None:
    summary = planner.summarise([row(500, 2.0, bar_s=1.0), row(5000, 0.5, bar_s=1.0), row(6000, 9.0)])
    assert summary["over_the_bar"] == ["chain 500"]


def test_the_command(tmp_path) -> None:
    out = tmp_path / "rows.json"
    options = ["--nodes", "60,120", "--graphs", "chain,residual", "--json", str(out)]
    outcome = CliRunner().invoke(bench, ["planner", *options])
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(out.read_text())
    assert [(r["graph"], r["wanted_nodes"]) for r in document["rows"]] == [
        ("chain", 60),
        ("chain", 120),
        ("residual", 60),
        ("residual", 120),
    ]
    assert all(r["total_s"] > 0 and r["clusters"] > 0 and r["peak_mib"] >= 0 for r in document["rows"])
    assert set(document["summary"]["exponents"]) == {"chain", "residual"}


@pytest.mark.parametrize("options", [["--nodes", "many"], ["--nodes", "0"], ["--graphs", "spiral"]])
def test_bad_options_are_usage_errors(options: list[str]) -> None:
    assert CliRunner().invoke(bench, ["planner", *options]).exit_code == 2
