"""Sizes of a model's inputs, in the functions that it calls."""

from __future__ import annotations

from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.tuning.propagation import propagated


def node(
    name: str, op: str, inputs: tuple[str, ...] = (), shape: tuple[int | str | Dim, ...] | None = (), **attributes
):
    type_ = TensorType(DType.F32, None if shape is None else shape_of(*shape))
    return Node(name, op, tuple(map(Value, inputs)), (type_,), attributes=attributes)


def graph(name: str, *nodes: Node) -> Graph:
    return Graph(name, {n.name: n for n in nodes})


SERVE = graph(
    "serve",
    node("x", "_Arg", shape=("b", "s", 64)),
    node("flat", "Reshape", ("x",), shape=("n", 64)),
    node("inner", "StatefulPartitionedCall", ("x", "flat"), shape=None, f="layer"),
    node("branch", "If", ("x", "x"), shape=None, then_branch="then", else_branch="layer"),
    node("loop", "While", ("x", "flat"), shape=None, cond="nowhere", body="body"),
)
MAIN = graph(
    "",
    node("serving_default_x", "Placeholder", shape=("a", "c", 64)),
    node("call", "StatefulPartitionedCall", ("serving_default_x",), shape=None, f="serve"),
)
LAYER = graph("layer", node("y", "_Arg", shape=("d", "e", "f")), node("z", "_Arg", shape=("g", 64)))
THEN = graph("then", node("y", "_Arg", shape=("h", "h", 64)))
BODY = graph("body", node("y", "_Arg", shape=("i", "j", 64)), node("z", "_Arg", shape=None))
GRAPHS = {g.name: g for g in (MAIN, SERVE, LAYER, THEN, BODY)}


def test_from_the_signature_to_the_last_function():
    found = propagated(GRAPHS, {Value("serving_default_x"): (4, 10, 64)})
    assert found == {
        "": {"a": 4, "c": 10},
        "serve": {"b": 4, "s": 10},
        "layer": {"d": 4, "e": 10, "f": 64},
        "then": {"h": 4},  # 10 is not 4: who was first is right
        "body": {"i": 4, "j": 10},
    }


def test_static_dims_are_told_also_where_nothing_is_given():
    assert propagated(GRAPHS, {})["serve"] == {}
    fixed = graph(
        "",
        node("x", "Placeholder", shape=(2, 3, 64)),
        node("call", "StatefulPartitionedCall", ("x",), shape=None, f="serve"),
    )
    assert propagated(GRAPHS | {"": fixed}, {})["serve"] == {"b": 2, "s": 3}


def test_products():
    twice = graph("serve", node("x", "_Arg", shape=("b", Dim(2, ("s",)), 64)))
    found = propagated({"": MAIN, "serve": twice}, {Value("serving_default_x"): (4, 10, 64)})
    assert found["serve"] == {"b": 4, "s": 5}


def test_a_function_that_calls_itself_ends():
    endless = graph(
        "serve",
        node("x", "_Arg", shape=("b", "s", 64)),
        node("again", "StatefulPartitionedCall", ("x",), shape=None, f="serve"),
    )
    found = propagated({"": MAIN, "serve": endless}, {Value("serving_default_x"): (4, 10, 64)})
    assert found["serve"] == {"b": 4, "s": 10}
