"""The time that clustering takes: in proportion to the graph, and copies of a block are not worked out again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.drawing import Drawing, checked, f32
from tf_stitch.config import Config
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.passes import cluster as cluster_module
from tf_stitch.passes import parts, precedents
from tf_stitch.passes.cluster import cluster

SECONDS = 5.0  # for 5000 nodes; it takes less than one, and a machine of CI may be slow


def layers(count: int) -> Graph:
    """A mask that all layers read; in each three matmuls, a softmax and a residual."""
    d = Drawing()
    x = d.input("x", f32("B", 64))
    mask = d.node("mask", "Exp", d.input("m", f32("B", 1)))
    for i in range(count):
        q, k = (d.node(f"{i}/{n}", "Tanh", d.node(f"{i}/{n} product", "BatchMatMulV2", x)) for n in "qk")
        s = d.node(f"{i}/s", "AddV2", d.node(f"{i}/qk", "BatchMatMulV2", q, k), mask)
        o = d.node(f"{i}/o", "BatchMatMulV2", d.node(f"{i}/soft", "Softmax", s))
        x = d.node(f"{i}/x", "AddV2", o, x)
    return d.graph(returned=[x])


def chain(count: int) -> Graph:
    d = Drawing()
    x = d.input("x", f32("B", 64))
    for i in range(count * 12):
        x = d.node(f"n{i}", "Tanh", x)
    return d.graph(returned=[x])


def columns(count: int) -> Graph:
    d = Drawing()
    found: list[Value] = []
    for i in range(count * 4):
        x = d.input(f"x{i}", f32("B", 8 + i % 5))
        found.append(d.node(f"y{i}", "Tanh", d.node(f"t{i}", "Mul", x, d.constant(f"k{i}", np.float32(i % 3)))))
    return d.graph(returned=found)


@pytest.mark.parametrize("build", [layers, chain, columns])
def test_thousands_of_nodes_take_seconds(build: Callable[[int], Graph]) -> None:
    graph = build(560)
    assert len(graph.nodes) > 4900
    started = time.process_time()
    cluster(graph, Config())
    assert time.process_time() - started < SECONDS


def test_copies_of_a_layer_are_expanded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    expand = precedents.expand
    monkeypatch.setattr(precedents, "expand", lambda *a: (asked.append(1), expand(*a))[1])
    counts: list[int] = []
    for count in (10, 40):
        asked.clear()
        assert len(checked(layers(count)).clusters) > count
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_copies_are_told_apart_by_all_that_matters() -> None:
    """An attribute, a constant, a width, and which operand is which."""
    d = Drawing()
    found: list[Value] = []
    for i, (alpha, k, width, turned) in enumerate(
        [(0.1, 2.0, 8, False), (0.2, 2.0, 8, False), (0.1, 3.0, 8, False), (0.1, 2.0, 9, False), (0.1, 2.0, 8, True)]
        * 2
    ):
        x, y = d.input(f"x{i}", f32("B", width)), d.input(f"y{i}", f32("B", width))
        less = d.node(f"{i}/less", "Sub", *((y, x) if turned else (x, y)))
        scaled = d.node(f"{i}/scaled", "Mul", less, d.constant(f"{i}/k", np.float32(k)))
        found.append(d.node(f"{i}/out", "LeakyRelu", d.node(f"{i}/sum", "AddV2", scaled, x), alpha=alpha))
    made = checked(d.graph(returned=found), Config(remote_stitching=False)).clusters
    bodies = [repr([(s.op, s.operands, s.type) for s in c.body.steps]) for c in made]
    assert bodies[:5] == bodies[5:]
    assert len(set(bodies)) == 5
    for c in made:  # each under its own names
        name = c.nodes[0].split("/")[0]
        assert {s.origin.split("/")[0] for s in c.body.steps} == {name}
        assert {v.node for v in c.inputs} == {f"x{name}", f"y{name}"}
        assert c.constants == (f"{name}/k",)
        assert c.outputs == (Value(f"{name}/out"),)


# -- taking apart ----------------------------------------------------------------------------------------------


def turned(count: int) -> Graph:
    """A long chain with a reshape in its middle that turns axes around, for which there is no index map."""
    d = Drawing()
    x = d.input("x", f32("M", "N"))
    a = x
    for i in range(count):
        a = d.node(f"a{i}", "Tanh", a)
    shape = d.node("shape", "Pack", type_=TensorType(DType.I32, shape_of(2)))
    d.extents(shape, Dim.symbol("N"), Dim.symbol("M"))
    b = d.node("turned", "Reshape", a, shape, type_=f32("N", "M"))
    b = d.node("back", "Transpose", b, d.constant("perm", np.array([1, 0], np.int32)), type_=f32("M", "N"))
    for i in range(count):
        b = d.node(f"b{i}", "Exp", b)
    return d.graph(returned=[d.node("y", "AddV2", b, a)])


def test_a_long_cluster_is_cut_in_two_by_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counting(*args: Any) -> list[list[str]]:
        *rest, can_be_planned = args

        def ask(names: Any) -> bool:
            asked.append(len(names))
            return can_be_planned(names)

        return parts.take_apart(*rest, ask)

    monkeypatch.setattr(cluster_module, "take_apart", counting)
    count = 100
    found = checked(turned(count)).clusters
    assert {f"a{i}" for i in range(count)} <= set(found[0].nodes)
    assert {f"b{i}" for i in range(count)} <= set(found[1].nodes)
    assert sum(asked) < 10 * 2 * count  # nodes: not the square of them
