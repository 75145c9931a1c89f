"""Reads of a variable behind its assignment: which of them are given what was assigned instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.passes.drawing import Drawing, clusters, f32
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import DType, TensorType
from tf_stitch.passes.variable_reads import without_reads_back

RESOURCE = TensorType(DType.OTHER, ())


class Update:
    """A moment m that g is added to, and what is made of it: `m += (g - m) * decay`, `step = tanh(m)`."""

    def __init__(self, op: str = "AssignAddVariableOp", **handle: Any) -> None:
        self.d = Drawing()
        self.handle = self.d.node("m", handle.pop("handle_op", "Placeholder"), type_=RESOURCE, **handle)
        self.g = self.d.input("g", f32("B", 8))
        self.old = self.read("old")
        self.amount = self.d.node("amount", "Mul", self.d.node("less", "Sub", self.g, self.old), self.g)
        self.op = op

    def read(self, name: str, *controls: str, **more: Any) -> Value:
        return self.d.node(
            name, "ReadVariableOp", self.handle, type_=f32("B", 8), controls=controls, stateful=True, **more
        )

    def assign(self, name: str = "assign", amount: Value | None = None, **more: Any) -> None:
        inputs = (self.handle, amount or self.amount)
        self.d.node(name, self.op, *inputs, types=[RESOURCE], stateful=True, dtype=DType.F32, **more)

    def graph(self, **more: Any) -> Graph:
        self.assign(controls=["old"])
        self.d.node("step", "Tanh", self.read("new", "assign"))
        return self.d.graph(returned=[Value("step")], **more)


def left_alone(graph: Graph) -> bool:
    return without_reads_back(graph) is graph


@pytest.mark.parametrize(("op", "computes"), [("AssignAddVariableOp", "AddV2"), ("AssignSubVariableOp", "Sub")])
def test_a_sum_that_is_read_back_is_computed_instead(op: str, computes: str) -> None:
    found = without_reads_back(Update(op).graph())
    sum_ = Value("assign/value")
    assert found.nodes["assign/value"] == Node(
        "assign/value", computes, (Value("old"), Value("amount")), (f32("B", 8),), attributes={"T": DType.F32}
    )
    assert found.nodes["assign"].op == "AssignVariableOp"
    assert found.nodes["assign"].inputs == (Value("m"), sum_)
    assert found.nodes["assign"].controls == ("old",)
    assert found.nodes["step"].inputs == (sum_,)
    assert "new" not in found.nodes
    assert found.revised == {"assign/value", "assign", "step", "new"}
    assert list(found.nodes).index("amount") < list(found.nodes).index("assign/value") < list(found.nodes).index("step")


def test_what_was_three_clusters_is_one() -> None:
    assert clusters(without_reads_back(Update().graph())) == [["less", "amount", "assign/value", "step"]]


def test_what_is_assigned_is_what_is_read() -> None:
    found = without_reads_back(Update("AssignVariableOp").graph())
    assert found.nodes["step"].inputs == (Value("amount"),)
    assert found.revised == {"step", "new"}


def test_one_variable_is_assigned_what_was_read_back_of_another() -> None:
    update = Update()
    update.assign(controls=["old"])
    new = update.read("new", "assign")
    other = update.d.node("v", "_Arg", type_=RESOURCE)
    copied = update.d.node("copy", "AssignVariableOp", other, new, types=[RESOURCE], stateful=True, dtype=DType.F32)
    assert copied
    again = update.d.node("again", "ReadVariableOp", other, type_=f32("B", 8), controls=["copy"], stateful=True)
    found = without_reads_back(update.d.graph(returned=[update.d.node("step", "Tanh", again)]))
    assert found.nodes["copy"].inputs == (Value("v"), Value("assign/value"))
    assert found.nodes["step"].inputs == (Value("assign/value"),)


def test_a_read_that_is_still_named_stays() -> None:
    returned = Update()
    graph = returned.graph()
    found = without_reads_back(returned.d.graph(returned=[Value("step"), Value("new")]))
    assert found.nodes["new"] == graph.nodes["new"]
    waited = Update()
    waited.graph()
    waited.d.node("last", "NoOp", types=[RESOURCE], controls=["new"])
    assert "new" in without_reads_back(waited.d.graph(returned=[Value("step")])).nodes
    assert "new" in without_reads_back(Update().graph(fetched=["new"])).nodes
    beside = Update()
    beside.graph()
    beside.d.node("log", "Log", Value("step"), _class=("loc:@new",))
    assert "new" in without_reads_back(beside.d.graph(returned=[Value("log")])).nodes


# ---- What is left alone ------------------------------------------------------------------------------------


def another_assignment(u: Update) -> None:
    u.assign("another")


def a_call(u: Update) -> None:
    u.d.node("call", "StatefulPartitionedCall", u.handle, types=[f32()], stateful=True)


def a_read_that_only_comes_later(u: Update) -> None:
    """Its order came from `new`."""
    u.d.node("print", "PrintV2", Value("step"), types=[f32()], stateful=True)
    u.read("late", "print")


RULES: dict[str, Callable[[Update], None]] = {
    "another node assigns": another_assignment,
    "a function has the handle": a_call,
    "a read is behind the assignment by way of the read back": a_read_that_only_comes_later,
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule(rule: str) -> None:
    update = Update()
    update.graph()
    RULES[rule](update)
    assert left_alone(update.d.graph(returned=[Value("step")]))


def test_what_is_added_has_to_come_from_a_read() -> None:
    """Of two threads that add to a counter neither may be lost."""
    update = Update()
    update.assign(amount=update.g)
    update.d.node("step", "Tanh", update.read("new", "assign"))
    assert left_alone(update.d.graph(returned=[Value("step")]))


def test_what_is_added_has_to_have_the_shape_of_the_variable() -> None:
    """It is an error of TensorFlow's to add a row; AddV2 would do it."""
    update = Update()
    row = update.d.node("row", "Mul", update.old, update.g, type_=f32(8))
    update.assign(amount=row)
    update.d.node("step", "Tanh", update.read("new", "assign"))
    assert left_alone(update.d.graph(returned=[Value("step")]))


def test_a_read_without_an_order_may_come_before() -> None:
    update = Update()
    update.assign(controls=["old"])
    update.d.node("step", "Tanh", update.read("new"))
    assert left_alone(update.d.graph(returned=[Value("step")]))


@pytest.mark.parametrize("where", [{"context": ["taken"]}, {"device": "/GPU:0"}])
def test_a_read_elsewhere_is_left_alone(where: dict[str, Any]) -> None:
    update = Update()
    update.assign(controls=["old"])
    update.d.node("step", "Tanh", update.read("new", "assign", **where))
    assert left_alone(update.d.graph(returned=[Value("step")]))


def test_two_handles_of_one_name_are_one_variable() -> None:
    def graph(other: str) -> Graph:
        update = Update(handle_op="VarHandleOp", shared_name="m", container="")
        graph = update.graph()
        update.d.node("other", "VarHandleOp", type_=RESOURCE, shared_name=other, container="")
        assert graph
        return update.d.graph(returned=[Value("step")])

    assert left_alone(graph("m"))
    assert not left_alone(graph("another"))


def test_a_handle_that_is_passed_on_may_be_anything() -> None:
    assert left_alone(Update(handle_op="Identity").graph())
