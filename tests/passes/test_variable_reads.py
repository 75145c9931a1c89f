"""Reads of a variable behind its assignment are given what was assigned; additions to it are computed by kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.passes.drawing import Drawing, clusters, f32
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.passes.variable_reads import without_reads_back

RESOURCE = TensorType(DType.OTHER, ())
GPU = "cuda:sm_80"


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


def left_alone(graph: Graph, target: str = "cpu") -> bool:
    return without_reads_back(graph, target) is graph


@pytest.mark.parametrize(("op", "computes"), [("AssignAddVariableOp", "AddV2"), ("AssignSubVariableOp", "Sub")])
def test_a_sum_that_is_read_back_is_computed_instead(op: str, computes: str) -> None:
    found = without_reads_back(Update(op).graph())
    sum_ = Value("assign/value")
    assert found.nodes["assign/value"] == Node(
        "assign/value", computes, (Value("old"), Value("amount")), (f32("B", 8),), attributes={"T": DType.F32}
    )
    assert found.nodes["assign"].op == "StitchAssign"
    assert found.nodes["assign"].inputs == (Value("m"), Value("old"), sum_)
    assert found.nodes["assign"].attributes == {"dtype": DType.F32}
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


RULES: dict[str, Callable[[Update], None]] = {
    "another node assigns": another_assignment,
    "a function has the handle": a_call,
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule(rule: str) -> None:
    update = Update()
    update.graph()
    RULES[rule](update)
    assert left_alone(update.d.graph(returned=[Value("step")]))


def test_what_a_variable_steps_by_is_taken_off_in_the_same_kernel() -> None:
    """w -= tanh(gradient of w): nobody reads w again."""
    update = Update("AssignSubVariableOp")
    step = update.d.node("step", "Tanh", update.d.node("gradient", "MatMul", update.old, update.g))
    update.assign(amount=step)
    found = without_reads_back(update.d.graph())
    assert found.nodes["assign/value"].inputs == (Value("old"), step)
    assert found.nodes["assign"].inputs == (Value("m"), Value("old"), Value("assign/value"))
    assert clusters(found) == [["step", "assign/value"]]


@pytest.mark.parametrize("op", ["BatchMatMulV2", "Reshape"])
def test_what_no_kernel_computes_is_added_by_tensorflow(op: str) -> None:
    """There would be a sum of its own, and memory for it."""
    update = Update()
    update.assign(amount=update.d.node("gradient", op, update.g))
    assert left_alone(update.d.graph())


def test_what_was_read_before_does_not_wait_for_the_assignment() -> None:
    """`late` is the only read, and is behind the assignment by way of `print`."""
    d = Drawing()
    handle, g = d.node("m", "Placeholder", type_=RESOURCE), d.input("g", f32("B", 8))
    amount = d.node("amount", "Tanh", g)
    d.node("assign", "AssignAddVariableOp", handle, amount, types=[RESOURCE], stateful=True, dtype=DType.F32)
    d.node("print", "PrintV2", g, controls=["assign"], stateful=True)
    late = d.node("late", "ReadVariableOp", handle, type_=f32("B", 8), controls=["print"], stateful=True)
    assert left_alone(d.graph(returned=[late]))


def test_a_variable_whose_rows_are_gathered_is_added_to_by_tensorflow() -> None:
    """Its reads are copies, and TensorFlow adds in place."""
    update = Update()
    update.assign()
    indices = update.d.input("indices", TensorType(DType.I32, shape_of(3)))
    update.d.node("rows", "ResourceGather", update.handle, indices, type_=f32(3, 8), stateful=True)
    assert left_alone(update.d.graph(returned=[Value("rows")]))


def test_gpus_have_no_stitch_assign() -> None:
    """Moments are assigned, as long as what is added comes from a read of their own; a step is taken off by itself."""
    found = without_reads_back(Update().graph(), GPU)
    assert found.nodes["assign"].op == "AssignVariableOp"
    assert found.nodes["assign"].inputs == (Value("m"), Value("assign/value"))
    other = Update()
    other.assign(amount=other.g)
    other.d.node("step", "Tanh", other.read("new", "assign"))
    assert left_alone(other.d.graph(returned=[Value("step")]), GPU)
    last = Update("AssignSubVariableOp")
    last.assign()
    assert left_alone(last.d.graph(), GPU)
    placed = Update("AssignSubVariableOp")
    placed.assign(device="/job:localhost/replica:0/task:0/device:GPU:0")
    assert left_alone(placed.d.graph())


def test_what_is_added_has_to_have_the_shape_of_the_variable() -> None:
    """It is an error of TensorFlow's to add a row; AddV2 would do it."""
    update = Update()
    row = update.d.node("row", "Mul", update.old, update.g, type_=f32(8))
    update.assign(amount=row)
    update.d.node("step", "Tanh", update.read("new", "assign"))
    assert left_alone(update.d.graph(returned=[Value("step")]))


# ---- Reads that stay ---------------------------------------------------------------------------------------


def test_a_read_without_an_order_may_come_before() -> None:
    update = Update()
    update.assign(controls=["old"])
    update.d.node("step", "Tanh", update.read("new"))
    assert reads_back(update)


def test_a_read_that_another_read_back_gives_its_order_stays_behind_it() -> None:
    """`late` is behind the assignment by way of `new`."""
    update = Update()
    update.graph()
    update.d.node("print", "PrintV2", Value("step"), types=[f32()], stateful=True)
    update.read("late", "print")
    assert reads_back(update)


@pytest.mark.parametrize("where", [{"context": ["taken"]}, {"device": "/CPU:1"}])
def test_a_read_elsewhere_stays(where: dict[str, Any]) -> None:
    update = Update()
    update.assign(controls=["old"])
    update.d.node("step", "Tanh", update.read("new", "assign", **where))
    assert reads_back(update)


def reads_back(update: Update) -> bool:
    """Whether `step` still reads the variable, which a kernel adds to."""
    found = without_reads_back(update.d.graph(returned=[Value("step")]))
    return found.nodes["step"].inputs == (Value("new"),) and found.nodes["assign"].inputs[1] == Value("old")


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
