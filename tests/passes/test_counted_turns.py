"""Where a loop has more to do than one kernel, the next turn does not wait for a kernel to count this one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.passes.drawing import Drawing, clusters, f32, reasons
from tf_stitch.errors import Reason
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ir.types import DType, TensorType

NUMBER = TensorType(DType.I32, ())
FLAG = TensorType(DType.BOOL, ())
FRAME = "frame loop"
INSIDE = (FRAME, "less:0=1")


def loop(*body: tuple[str, str, Sequence[str]], counts: str = "begun", deeper: bool = False) -> Graph:
    """`while i < 9: i, x = i + 1, tanh(x) * x`, and more: name, op and operands of each node of `body`.

    counts: what 1 is added to. deeper: whether there is a loop in the loop.
    """
    d = Drawing()
    one = d.constant("one", np.int32(1))
    entered = {"i": d.input("i", NUMBER), "x": d.input("x", f32(8, 8)), "w": d.input("w", f32(512, 512))}
    for name, value in entered.items():
        d.node(f"{name}/enter", "Enter", value, context=[FRAME])
        d.node(f"{name}/merge", "Merge", Value(f"{name}/enter"), Value(f"{name}/next"), context=[FRAME])
    limit = d.constant("limit", np.int32(9))
    less = d.node("less", "Less", Value("i/merge"), limit, type_=FLAG, context=[FRAME])
    condition = d.node("cond", "LoopCond", less, context=[FRAME])
    for name, value in entered.items():
        merged, type_ = Value(f"{name}/merge"), d._nodes[value.node].types[0]
        d.node(f"{name}/switch", "Switch", merged, condition, types=[type_, type_], context=[FRAME])
    d.node("begun", "Identity", Value("i/switch", 1), context=INSIDE)
    d.node("tanh", "Tanh", Value("x/switch", 1), context=INSIDE)
    d.node("mul", "Mul", Value("tanh"), Value("x/switch", 1), context=INSIDE)
    for name, op, operands in body:
        d.node(name, op, *(Value(o) if "/" not in o else Value(o, 1) for o in operands), context=INSIDE)
    if deeper:
        d.node("inner", "LoopCond", less, context=[*INSIDE, "frame loop/inner"])
    d.node("count", "AddV2", Value(counts), one, type_=NUMBER, context=INSIDE)
    for name, value in {"i": Value("count"), "x": Value("mul"), "w": Value("w/switch", 1)}.items():
        d.node(f"{name}/next", "NextIteration", value, context=INSIDE)
        d.node(f"{name}/exit", "Exit", Value(f"{name}/switch", 0))
    return d.graph(returned=[Value("x/exit"), *(Value(name) for name, *_ in body)])


PRODUCT = ("product", "MatMul", ("w/switch", "w/switch"))


def test_the_only_kernel_counts() -> None:
    assert clusters(loop()) == [["begun", "tanh", "mul", "count"]]


def test_beside_a_product_that_tensorflow_computes_none_does() -> None:
    graph = loop(PRODUCT)
    assert clusters(graph) == [["tanh", "mul"]]
    assert reasons(graph)["count"] is Reason.NOT_PROFITABLE


def test_beside_another_kernel_none_does() -> None:
    graph = loop(PRODUCT, ("sigmoid", "Sigmoid", ("product",)), ("square", "Square", ("sigmoid",)))
    assert clusters(graph) == [["tanh", "mul"], ["sigmoid", "square"]]


def test_around_another_loop_none_does() -> None:
    assert clusters(loop(deeper=True)) == [["tanh", "mul"]]


def test_a_number_that_a_kernel_computes_stays_in_it() -> None:
    """It comes no sooner by itself."""
    graph = loop(PRODUCT, ("twice", "AddV2", ("begun", "begun")), counts="twice")
    assert any({"tanh", "mul", "twice", "count"} <= set(names) for names in clusters(graph))
