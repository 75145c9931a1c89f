"""Remote stitching: which clusters without a path between them become one, and which may not or need not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.passes.drawing import Drawing, checked, clusters, f32
from tests.passes.test_pipeline import TARGET, Toolchain
from tf_stitch.config import Config
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ir.printer import print_body
from tf_stitch.passes.clustering import Cluster
from tf_stitch.pipeline import stitch_all

APART = Config(remote_stitching=False)
CPU0, CPU1 = "/device:CPU:0", "/device:CPU:1"

PRODUCT = "BatchMatMulV2"  # which no kernel computes


def column(d: Drawing, name: str, x: Value, **more: object) -> Value:
    """Two nodes over x."""
    return d.node(f"{name}/y", "Tanh", d.node(f"{name}/t", "Exp", x, **more), **more)  # type: ignore[arg-type]


def columns(widths: Sequence[int], prefix: str = "") -> Graph:
    """Independent columns, each over an input of its own."""
    d = Drawing()
    found = [column(d, f"{prefix}{i}", d.input(f"{prefix}x{i}", f32("B", w))) for i, w in enumerate(widths)]
    return d.graph(returned=found)


def test_independent_columns_are_one_kernel() -> None:
    graph = columns([8, 24, 8, 100])
    assert clusters(graph) == [[f"{i}/{n}" for i in range(4) for n in "ty"]]
    assert len(clusters(graph, APART)) == 4


def test_a_node_alone_may_come_along() -> None:
    """Each is too small by itself."""
    d = Drawing()
    found = [d.node(f"y{i}", "Tanh", d.input(f"x{i}", f32("B", 8))) for i in range(3)]
    graph = d.graph(returned=found)
    assert clusters(graph) == [["y0", "y1", "y2"]]
    assert clusters(graph, APART) == []


def test_what_only_moves_does_not_come_along() -> None:
    d = Drawing()
    y = column(d, "c", d.input("x", f32("B", 8)))
    zeros = d.node("zeros", "ZerosLike", d.input("z", f32("B", 8)))
    assert clusters(d.graph(returned=[y, zeros])) == [["c/t", "c/y"]]


def test_kernels_hold_no_more_than_they_may() -> None:
    found = clusters(columns([8] * 10), Config(max_cluster_size=6))
    assert sorted(map(len, found)) == [2, 6, 6, 6]


# -- what may not ----------------------------------------------------------------------------------------------


def test_a_path_keeps_them_apart() -> None:
    d = Drawing()
    a = column(d, "a", d.input("x", f32("B", 8)))
    b = column(d, "b", d.node("cut", "Cumsum", a))
    assert clusters(d.graph(returned=[a, b])) == [["a/t", "a/y"], ["b/t", "b/y"]]


def test_so_does_a_path_of_control_edges() -> None:
    d = Drawing()
    a = column(d, "a", d.input("x", f32("B", 8)))
    d.node("assert", "Assert", a, stateful=True)
    b = column(d, "b", d.input("z", f32("B", 8)), controls=["assert"])
    assert clusters(d.graph(returned=[a, b])) == [["a/t", "a/y"], ["b/t", "b/y"]]


def test_three_pairs_of_which_two_may_be_joined() -> None:
    """a -> b', b -> c', c -> a': each pair of letters is independent, and all three would be a cycle."""
    d = Drawing()
    first = {n: column(d, n, d.input(f"x {n}", f32("B", 8))) for n in "abc"}
    cuts = {n: d.node(f"cut {n}", "Cumsum", y) for n, y in first.items()}
    second = [column(d, f"{n}2", cuts[before]) for n, before in zip("bca", "abc", strict=True)]
    checked(d.graph(returned=[*first.values(), *second]))  # acyclic, whatever was joined


@pytest.mark.parametrize(
    ("one", "other"),
    [({"device": CPU0}, {"device": CPU1}), ({"context": ["p=1"]}, {"context": ["p=0"]}), ({"context": ["p=1"]}, {})],
)
def test_devices_and_branches_are_not_mixed(one: dict[str, object], other: dict[str, object]) -> None:
    d = Drawing()
    a = column(d, "a", d.input("x", f32("B", 8)), **one)
    b = column(d, "b", d.input("z", f32("B", 8)), **other)
    assert len(clusters(d.graph(returned=[a, b]))) == 2


def test_loops_are_stitched_within() -> None:
    """Two columns in a loop and two outside of it."""
    d = Drawing()
    loop = ["frame loop"]
    outside = [column(d, f"out{i}", d.input(f"x{i}", f32("B", 8))) for i in range(2)]
    inside = [column(d, f"in{i}", d.node(f"enter{i}", "Enter", y, context=loop), context=loop)
              for i, y in enumerate(outside)]  # fmt: skip
    leave = [d.node(f"exit{i}", "Exit", y) for i, y in enumerate(inside)]
    found = clusters(d.graph(returned=leave))
    assert [[n[:2] for n in members] for members in found] == [["ou"] * 4, ["in"] * 4]


# -- what need not ---------------------------------------------------------------------------------------------


def two_towers(*, readers: bool) -> Graph:
    """A column at the foot of one tower and one behind the matmul of the other; perhaps with a matmul behind each."""
    d = Drawing()
    low = column(d, "low", d.input("x", f32("B", 8)))
    high = column(d, "high", d.node("product", PRODUCT, d.input("z", f32("B", 8)), d.input("w", f32(8, 8)),
                                    type_=f32("B", 8)))  # fmt: skip
    if readers:
        low, high = (d.node(f"{n} product", PRODUCT, y, d.input(f"{n} w", f32(8, 8)), type_=f32("B", 8))
                     for n, y in (("low", low), ("high", high)))  # fmt: skip
    return d.graph(returned=[low, high])


def test_no_matmul_waits_for_what_it_did_not_wait_for() -> None:
    assert len(clusters(two_towers(readers=True))) == 2


def test_at_the_end_nothing_is_kept_waiting() -> None:
    assert len(clusters(two_towers(readers=False))) == 1


def test_equally_deep_ones_are_joined() -> None:
    """Query, key and value behind three matmuls, before a fourth."""
    d = Drawing()
    x = d.input("x", f32("B", 64))
    found = [column(d, n, d.node(f"{n} product", PRODUCT, x, d.input(f"{n} w", f32(64, 64)), type_=f32("B", 64)))
             for n in "qkv"]  # fmt: skip
    scores = d.node("scores", PRODUCT, *found[:2], type_=f32("B", "B"))
    y = d.node("y", PRODUCT, scores, found[2], type_=f32("B", 64))
    assert clusters(d.graph(returned=[y])) == [["q/t", "q/y", "k/t", "k/y", "v/t", "v/y"]]


def guarded(d: Drawing, name: str) -> Value:
    """Adds two values of unknown sizes: taken to be equal, but either may be 1."""
    x, z = d.input(f"{name} x", f32(f"{name} N")), d.input(f"{name} z", f32(f"{name} M"))
    return d.node(f"{name}/y", "Tanh", d.node(f"{name}/t", "AddV2", x, z, type_=f32(f"{name} N")))


def test_what_assumes_nothing_does_not_depend_on_what_others_assume() -> None:
    """The guards of one kernel fail together."""
    d = Drawing()
    found = [guarded(d, "a"), guarded(d, "b"), column(d, "c", d.input("x", f32("K", 8))),
             column(d, "d", d.input("z", f32("L", 8)))]  # fmt: skip
    assert clusters(d.graph(returned=found)) == [["a/t", "a/y"], ["b/t", "b/y"], ["c/t", "c/y", "d/t", "d/y"]]


def test_what_assumes_the_same_is_joined() -> None:
    d = Drawing()
    x, z = d.input("x", f32("N")), d.input("z", f32("M"))
    found = [
        d.node(f"{n}/y", "Tanh", d.node(f"{n}/t", op, x, z, type_=f32("N"))) for n, op in (("a", "AddV2"), ("b", "Mul"))
    ]
    graph = d.graph(returned=found)
    assert clusters(graph) == [["a/t", "a/y", "b/t", "b/y"]]
    assert len(clusters(graph, APART)) == 2


# -- one kernel for equal ones ---------------------------------------------------------------------------------


def the_cluster(graph: Graph) -> Cluster:
    (found,) = checked(graph).clusters
    return found


def test_the_order_of_columns_does_not_matter() -> None:
    texts = {
        print_body(the_cluster(columns(widths, p)).body) for widths, p in (([8, 24, 100], ""), ([100, 8, 24], "p/"))
    }
    assert len(texts) == 1


def test_outputs_go_with_their_values() -> None:
    """They are in another order than the nodes, and each is still its node's."""
    found = the_cluster(columns([24, 8, 100]))
    for value, step in zip(found.outputs, found.body.outputs, strict=True):
        width = {"0/y": 24, "1/y": 8, "2/y": 100}[value.node]
        assert found.body.steps[step].type.dims[-1].coefficient == width


def test_layers_share_a_kernel_of_joined_clusters() -> None:
    """Each layer has two clusters side by side, listed the other way around in the second."""
    d = Drawing()
    x = d.input("x", f32("B", 64))
    for layer, names in enumerate(("ab", "ba")):
        ys = [d.node(f"{layer}{n} product", PRODUCT, x, d.input(f"{layer}{n} w", f32(64, 64)), type_=f32("B", 64))
              for n in names]  # fmt: skip
        parts = {
            n: d.node(f"{layer}{n}/y", {"a": "Tanh", "b": "Sigmoid"}[n], d.node(f"{layer}{n}/t", "Exp", y))
            for n, y in zip(names, ys, strict=True)
        }
        x = d.node(f"{layer} product", PRODUCT, parts["a"], parts["b"], type_=f32("B", 64))
    chain = Toolchain()
    (result,) = stitch_all([d.graph(returned=[x])], Config(), TARGET, chain)  # type: ignore[arg-type]
    assert [len(made.cluster.nodes) for made in result.clusters] == [4, 4]
    assert len({source.text for source in chain.asked}) == 1


def test_what_is_joined_still_reads_once_what_both_read() -> None:
    """Over one input: one loop nest, and one input of the kernel."""
    d = Drawing()
    x = d.input("x", f32("B", 8))
    found = [d.node(f"{op} y", op, d.node(f"{op} t", "Mul", x, d.constant(f"{op} k", np.float32(k))))
             for k, op in enumerate(("Tanh", "Exp", "Sigmoid"), 2)]  # fmt: skip
    (result,) = stitch_all([d.graph(returned=found)], Config(), TARGET, Toolchain())  # type: ignore[arg-type]
    (made,) = result.clusters
    assert made.cluster.inputs == (x,)
    assert len(made.plan.groups) == 1


@pytest.mark.parametrize(("side", "kernels"), [(64, 1), (1024, 4)])
def test_what_would_leave_the_cache_is_not_joined(side: int, kernels: int) -> None:
    """The steps of four variables, which four assignments read next: 4 MB each, or 16 KB."""
    d = Drawing()
    steps = [column(d, f"step{n}", d.input(f"g{n}", f32(side, side))) for n in range(4)]
    assert len(clusters(d.graph(returned=steps))) == kernels


def test_however_large_what_both_read_is_read_once() -> None:
    d = Drawing()
    x = d.input("x", f32(1024, 1024))
    assert len(clusters(d.graph(returned=[column(d, name, x) for name in "abc"]))) == 1


def test_an_update_of_many_variables_is_one_kernel() -> None:
    """Scaled by the norm of all gradients: a sum for each, then a nest for each, since they have nothing in common."""
    d = Drawing()
    sizes = [(64, 64), (64,), (64, 256), (256,)] * 4
    gradients = [d.input(f"g{i}", f32(*s)) for i, s in enumerate(sizes)]
    sums = [
        d.node(f"s{i}", "Sum", d.node(f"q{i}", "Square", g),
               d.constant(f"axes{i}", np.arange(len(s), dtype=np.int32)), type_=f32(), keep_dims=False)
        for i, (g, s) in enumerate(zip(gradients, sizes, strict=True))
    ]  # fmt: skip
    scale = d.node("scale", "Rsqrt", d.node("total", "AddN", *sums, N=len(sums)))
    found: list[Value] = []
    for i, (g, s) in enumerate(zip(gradients, sizes, strict=True)):
        m = d.node(f"m{i}", "AddV2", d.node(f"scaled{i}", "Mul", g, scale), d.input(f"m{i} before", f32(*s)))
        found += [m, d.node(f"v{i}", "Sub", d.input(f"v{i} before", f32(*s)), d.node(f"step{i}", "Tanh", m))]
    (result,) = stitch_all([d.graph(returned=found)], Config(), TARGET, Toolchain())  # type: ignore[arg-type]
    (made,) = result.clusters
    assert len(made.cluster.nodes) == 2 * 16 + 2 + 4 * 16
    assert len(made.plan.groups) < 2 * 16 + 4
    assert len(made.plan.body.outputs) == 2 * 16
