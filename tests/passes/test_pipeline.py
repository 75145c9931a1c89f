"""The pipeline over graphs drawn by hand: what is built, what is refused and why, and what a bug of ours costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.passes.drawing import Drawing, f32
from tf_stitch import backends, pipeline
from tf_stitch.config import Config
from tf_stitch.errors import BuildError, Reason
from tf_stitch.ir.graph import Graph
from tf_stitch.passes import cluster
from tf_stitch.pipeline import Stitched, stitch_all
from tf_stitch.plan.target import Target
from tf_stitch.toolchain.artifact import Artifact, Source

TARGET = Target.baseline("x86-64-v3")


class Toolchain:
    """Builds nothing; fails on sources that hold a certain word."""

    def __init__(self, fails_on: str = "") -> None:
        self.fails_on = fails_on
        self.asked: list[Source] = []

    def build(self, sources: list[Source]) -> list[Artifact | BuildError]:
        self.asked = list(sources)
        return [
            BuildError("the compiler says no")
            if self.fails_on and self.fails_on in s.text
            else Artifact(str(hash(s.text)), Path("kernel.so"), "", 0.1)
            for s in sources
        ]


def two_layers(functions: tuple[str, str] = ("Tanh", "Tanh")) -> Graph:
    """Two clusters with something opaque between them; the same, unless the functions differ."""
    d = Drawing()
    value = d.input("x", f32("B", 8))
    for layer, function in zip(("first", "second"), functions, strict=True):
        value = d.node(f"{layer}/y", "Exp", d.node(f"{layer}/t", function, value))
        value = d.node(f"{layer}/cut", "Cumsum", value)
    return d.graph(returned=[value])


def stitched(graph: Graph, toolchain: Any) -> Stitched:
    (result,) = stitch_all([graph], Config(), TARGET, toolchain)
    return result


def test_equal_clusters_ask_for_one_text() -> None:
    chain = Toolchain()
    result = stitched(two_layers(), chain)
    assert [made.cluster.nodes for made in result.clusters] == [("first/t", "first/y"), ("second/t", "second/y")]
    assert len({s.text for s in chain.asked}) == 1
    assert len({made.artifact.key for made in result.clusters}) == 1


def test_different_clusters_ask_for_two() -> None:
    chain = Toolchain()
    stitched(two_layers(("Tanh", "Sigmoid")), chain)
    assert len({s.text for s in chain.asked}) == 2


def test_all_graphs_are_built_together() -> None:
    chain = Toolchain()
    graphs = [two_layers(), two_layers(("Sigmoid", "Tanh"))]
    told: list[tuple[str, int, int]] = []
    results = stitch_all(graphs, Config(), TARGET, chain, progress=lambda *step: told.append(step))  # type: ignore[arg-type]
    assert [len(r.clusters) for r in results] == [2, 2]
    assert len(chain.asked) == 4
    assert [r.graph for r in results] == graphs
    assert {stage for stage, _, _ in told} >= {"plan", "build"}


def test_a_kernel_that_does_not_build_is_rejected_and_the_rest_is_kept() -> None:
    result = stitched(two_layers(("Tanh", "Sigmoid")), Toolchain(fails_on="sigmoid("))
    assert [made.cluster.nodes for made in result.clusters] == [("first/t", "first/y")]
    failed = {r.node: r for r in result.rejections if r.reason is Reason.BUILD_FAILED}
    assert set(failed) == {"second/t", "second/y"}
    assert "the compiler says no" in failed["second/y"].detail


@pytest.mark.parametrize(("module", "stage"), [(cluster, "plan_groups"), (pipeline, "lower"), (backends, "render")])
def test_a_bug_of_ours_costs_a_cluster(module: Any, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TF_STITCH_STRICT, that is; with it, it is raised."""
    whole = getattr(module, stage)

    def buggy(argument: Any, *more: Any, **options: Any) -> Any:
        if "sigmoid" in str(argument):
            raise KeyError("a bug")
        return whole(argument, *more, **options)

    monkeypatch.setattr(module, stage, buggy)
    graph = two_layers(("Tanh", "Sigmoid"))
    with pytest.raises(KeyError, match="a bug"):
        stitched(graph, Toolchain())
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    result = stitched(graph, Toolchain())
    assert [made.cluster.nodes for made in result.clusters] == [("first/t", "first/y")]
    assert {r.node for r in result.rejections if r.reason is Reason.INTERNAL} == {"second/t", "second/y"}


def test_a_bug_where_variables_are_forwarded_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*_: Any, **__: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setattr(pipeline, "without_reads_back", buggy)
    graph = two_layers(("Tanh", "Sigmoid"))
    with pytest.raises(KeyError, match="a bug"):
        stitched(graph, Toolchain())
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    result = stitched(graph, Toolchain())
    assert [made.cluster.nodes for made in result.clusters] == [("first/t", "first/y"), ("second/t", "second/y")]


def test_names_of_kernels_tell_what_is_in_them() -> None:
    result = stitched(two_layers(), Toolchain())
    assert [made.source.name for made in result.clusters] == ["y", "y"]
