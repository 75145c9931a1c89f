"""Contexts, against the truth: nodes of equal context run equally often."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from tf_stitch.frontend import grappler
from tf_stitch.frontend.contexts import CONTROL_FLOW, Wiring, contexts_of
from tf_stitch.frontend.function import stitching
from tf_stitch.frontend.importer import import_graph_def
from tf_stitch.ir.graph import Value
from tf_stitch.runtime import stitch_op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tf_stitch.ir.graph import Graph


@pytest.fixture
def control_flow_v1() -> Iterator[None]:
    tf.compat.v1.disable_control_flow_v2()
    yield
    tf.compat.v1.enable_control_flow_v2()


def ifs(x: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    inner = lambda: tf.cond(p, lambda: x * 3.0, lambda: x * 4.0)  # noqa: E731
    y = tf.cond(p, lambda: tf.exp(x) * 2.0, lambda: tf.tanh(x) + inner())
    return tf.cond(tf.reduce_sum(y) > 0.0, lambda: y + 1.0, lambda: y - 1.0) * 5.0


def loop(x: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.sin(y) * 2.0 + x), [0, x])
    return y * 2.0 + 1.0


def loops_in_loops(x: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        _, z = tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, tf.cos(z) + y), [0, y])
        return i + 1, z + tf.cond(p, lambda: tf.exp(-y), lambda: tf.tanh(y) * x)

    return tf.while_loop(lambda i, y: i < 4, body, [0, x])[1] + 1.0


def loop_in_if(x: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    y = tf.cond(p, lambda: loop(tf.exp(x), p), lambda: x - 1.0)
    return tf.abs(y) + x


PROGRAMS = [ifs, loop, loops_in_loops, loop_in_if]


def runs_of(graph: tf.Graph, fetch: str, feeds: dict[str, Any]) -> Counter[str]:
    """How often each node ran."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    metadata = tf.compat.v1.RunMetadata()
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        session.run(fetch, feeds, options=options, run_metadata=metadata)
    counts: Counter[str] = Counter()
    for device in metadata.step_stats.dev_stats:
        counts.update(stats.node_name.partition(":")[0] for stats in device.node_stats)
    return counts


def check(graph: Graph, counts: Counter[str]) -> int:
    """Asserts that nodes of equal context ran equally often. Returns how many contexts there are."""
    silent = CONTROL_FLOW | {"Const", "NoOp", "Placeholder", "_Arg", "_Retval"}
    by_context: dict[frozenset[str], dict[str, int]] = defaultdict(dict)
    for name, node in graph.nodes.items():
        if node.op not in silent and (graph.consumers[name] or counts[name]):
            by_context[node.context][name] = counts[name]
    for context, found in by_context.items():
        assert len(set(found.values())) == 1, f"{sorted(context)}: {found}"
    return len({n.context for n in graph.nodes.values()})


@pytest.mark.usefixtures("control_flow_v1")
@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_v1_graphs(program: Callable[..., tf.Tensor], taken: bool) -> None:
    with tf.Graph().as_default() as v1:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")
        p = tf.compat.v1.placeholder(tf.bool, [], name="p")
        y = program(x, p)
    graph = import_graph_def(v1.as_graph_def())
    assert check(graph, runs_of(v1, y.name, {"x:0": np.ones([3, 2]), "p:0": taken})) > 2
    assert graph.nodes[y.op.name].context == frozenset()


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_lowered_graphs(program: Callable[..., tf.Tensor], taken: bool) -> None:
    """While and If as Grappler sees them: the lowered graph is imported, and run as it is."""
    seen: list[Any] = []
    function = tf.function(program)
    x, p = tf.ones([3, 2]), tf.constant(taken)
    optimizer = grappler.install()
    stitch_op.set_optimizer_callback(seen.append)
    try:
        with stitching():
            expected = function(x, p)
    finally:
        stitch_op.set_optimizer_callback(optimizer)
    graph_def = tf.compat.v1.GraphDef.FromString(seen[0].graph)
    graph = import_graph_def(graph_def)
    assert any(n.op == "Switch" for n in graph.nodes.values())
    for node in graph_def.node:
        node.attr.pop("_class", None)  # Grappler leaves names of nodes that are gone
        if node.op in ("_Arg", "_Retval"):
            node.op = "Placeholder" if node.op == "_Arg" else "Identity"
            node.attr["dtype" if node.op == "Placeholder" else "T"].type = node.attr["T"].type
            del node.attr["index"]
            if node.op == "Placeholder":
                del node.attr["T"]
    with tf.Graph().as_default() as v1:
        tf.graph_util.import_graph_def(graph_def, name="")
    arguments = [n for n in graph.nodes.values() if n.op == "_Arg"]
    (result,) = (n.name for n in graph.nodes.values() if n.op == "_Retval")
    counts = runs_of(v1, f"{result}:0", {f"{n.name}:0": {"x": x.numpy(), "p": taken}[n.name] for n in arguments})
    assert check(graph, counts) > 2
    np.testing.assert_allclose(expected, program(x, p), rtol=1e-6)


def test_a_case_has_a_context_for_each_branch() -> None:
    wiring = {
        "i": Wiring("_Arg", [], []),
        "x": Wiring("_Arg", [], []),
        "s": Wiring("_SwitchN", [Value("x"), Value("i")], [], outputs=3),
        **{f"b{k}": Wiring("Exp", [Value("s", k)], []) for k in range(3)},
        "m": Wiring("Merge", [Value(f"b{k}") for k in range(3)], []),
        "part": Wiring("Merge", [Value("b0"), Value("b1")], []),
        "after": Wiring("Neg", [Value("m")], []),
    }
    contexts = contexts_of(list(wiring), wiring)
    assert len({contexts[f"b{k}"] for k in range(3)}) == 3
    assert "after" not in contexts
    assert contexts["part"]  # not alive in every branch


def test_a_merge_runs_where_what_it_waits_for_is_dead() -> None:
    """With the conditions of both branches, what follows would be of one context in either branch of the next If."""

    def wired(op: str, *inputs: Value, controls: tuple[str, ...] = ()) -> Wiring:
        return Wiring(op, inputs, controls)

    branches = {
        f"{name}{n}": wired("Switch", Value("x"), Value("p"))
        if name == "switch"
        else wired("NoOp", Value(f"switch{n}", n))
        for n in (0, 1)
        for name in ("switch", "effect")
    }
    wiring = {
        "x": wired("Placeholder"),
        "p": wired("Placeholder"),
        **branches,
        "merge": wired("Merge", Value("switch0", 0), Value("switch1", 1), controls=("effect0", "effect1")),
        "behind": wired("Switch", Value("x"), Value("p"), controls=("merge",)),
        "yes": wired("Tanh", Value("behind", 1)),
        "no": wired("Tanh", Value("behind", 0)),
    }
    found = contexts_of(list(wiring), wiring)
    assert "merge" not in found
    assert (found["no"], found["yes"]) == (frozenset({"p:0=0"}), frozenset({"p:0=1"}))


def test_a_graph_without_control_flow_has_no_contexts() -> None:
    with tf.Graph().as_default() as v1:
        tf.exp(tf.compat.v1.placeholder(tf.float32, [2]))
    assert {n.context for n in import_graph_def(v1.as_graph_def()).nodes.values()} == {frozenset()}
