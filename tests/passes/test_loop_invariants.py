"""What no turn of a loop changes enters it once; see tests/end_to_end/test_loop_invariants.py for real loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.passes.drawing import Drawing, f32
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ir.types import DType, TensorType
from tf_stitch.passes.loop_invariants import with_constant_invariants

NUMBER = TensorType(DType.I32, ())
FLAG = TensorType(DType.BOOL, ())
FRAME = "frame loop"
TURN = "less:0=1"
INSIDE = (FRAME, TURN)


class Loop:
    """`while i < n: i, x = i + 1, x * w`: i and x go round, n and w are invariants, n only for the condition."""

    def __init__(self, **more: Any) -> None:
        self.d = Drawing()
        self.more = more
        self.entered = {
            name: self.d.input(name, type_)
            for name, type_ in (("i", NUMBER), ("n", NUMBER), ("x", f32(8)), ("w", f32(8)))
        }
        for name, value in self.entered.items():
            self.d.node(f"{name}/enter", "Enter", value, context=[FRAME], **more.get(f"{name}/enter", {}))
            back = Value(f"{name}/next")
            type_ = more.get(f"{name}/type")
            self.d.node(
                f"{name}/merge", "Merge", Value(f"{name}/enter"), back, context=[FRAME], types=[type_] if type_ else ()
            )
        less = self.d.node("less", "Less", Value("i/merge"), Value("n/merge"), type_=FLAG, context=[FRAME])
        condition = self.d.node("cond", "LoopCond", less, context=[FRAME])
        for name, value in self.entered.items():
            type_ = self.d._nodes[value.node].types[0]
            merged = Value(f"{name}/merge")
            self.d.node(f"{name}/switch", "Switch", merged, condition, types=[type_, type_], context=[FRAME])
        self.d.node("begun", "Identity", Value("i/switch", 1), context=INSIDE)
        self.d.node("begins", "NoOp", types=[NUMBER], controls=["begun"], context=INSIDE)
        for name in self.entered:
            self.d.node(
                f"{name}/body", "Identity", Value(f"{name}/switch", 1), controls=["begins"], context=INSIDE,
                _class=(f"loc:@{name}/switch",), device="cpu" if more.get("placed", True) else "",
            )  # fmt: skip
        self.d.node("i+1", "AddV2", Value("i/body"), Value("i/body"), context=INSIDE)
        self.d.node("x*w", "Mul", Value("x/body"), Value("w/body"), context=INSIDE)
        for name, value in {"i": "i+1", "n": "n/body", "x": "x*w", "w": "w/body"}.items():
            self.d.node(
                f"{name}/next", "NextIteration", Value(value), context=INSIDE,
                controls=more.get(f"{name}/waits", more.get("waits", ["begins"])),
            )  # fmt: skip
            self.d.node(f"{name}/exit", "Exit", Value(f"{name}/switch", 0))
        self.d.node("after", "Tanh", Value("x/exit"))

    def reading(self, name: str, op: str, *inputs: Value, **more: Any) -> Loop:
        self.d.node(name, op, *inputs, context=more.pop("context", INSIDE), **more)
        return self

    def graph(self, **more: Any) -> Graph:
        graph = self.d.graph(returned=[Value("after")], **more)
        if not self.more.get("placed", True):
            return graph
        return replace(graph, nodes={name: replace(n, device=n.device or "cpu") for name, n in graph.nodes.items()})


def going_round(graph: Graph) -> set[str]:
    """What still goes round; every node that is read is there."""
    found = with_constant_invariants(graph)
    for node in found.nodes.values():
        assert {v.node for v in node.inputs} | set(node.controls) <= set(found.nodes), node
    names = {name for name in "inxw" if f"{name}/merge" in found.nodes}
    constant = {n.name for n in found.nodes.values() if n.op == "Enter" and n.attributes.get("is_constant")}
    assert constant == {f"{name}/enter" for name in set("inxw") - names}
    return names


class TestEntersOnce:
    def test_what_is_read_beside_what_goes_round(self) -> None:
        graph = Loop().graph()
        assert going_round(graph) == {"i", "x"}
        found = with_constant_invariants(graph)
        assert found.nodes["x*w"].inputs == (Value("x/body"), Value("w/enter"))
        assert found.nodes["less"].inputs == (Value("i/merge"), Value("n/enter"))
        gone = {f"{name}/{what}" for name in "nw" for what in ("merge", "switch", "body", "next", "exit")}
        assert graph.nodes.keys() - found.nodes.keys() == gone
        assert found.revised == gone | {"x*w", "less", "n/enter", "w/enter"}

    def test_what_was_read_behind_the_loop_is_read_before_it(self) -> None:
        loop = Loop().reading("behind", "Mul", Value("w/exit"), Value("x/exit"), context=())
        found = with_constant_invariants(loop.graph())
        assert found.nodes["behind"].inputs == (Value("w"), Value("x/exit"))

    def test_graphs_without_loops_are_left_as_they_are(self) -> None:
        d = Drawing()
        graph = d.graph(returned=[d.node("y", "Tanh", d.input("x", f32(8)))])
        assert with_constant_invariants(graph) is graph

    def test_a_second_look_finds_nothing(self) -> None:
        once = with_constant_invariants(Loop().graph())
        assert with_constant_invariants(once) is once

    def test_what_a_branch_in_the_body_reads_still_waits_for_the_branch(self) -> None:
        loop = Loop()
        flag = loop.d.node("flag", "Less", Value("i/body"), Value("n/body"), type_=FLAG, context=INSIDE)
        taken = loop.d.node("taken", "Switch", flag, flag, types=[FLAG, FLAG], context=INSIDE)
        branch = (*INSIDE, "flag:0=1")
        loop.reading("pivot", "Identity", Value(taken.node, 1), context=branch)
        loop.reading("there", "Identity", Value("w/switch", 1), controls=["pivot"], context=branch)
        loop.reading("y", "Mul", Value("there"), Value("x/body"), context=branch)
        graph = loop.graph()
        assert going_round(graph) == {"i", "x"}
        found = with_constant_invariants(graph)
        assert found.nodes["there"].inputs == (Value("w/enter"),)
        assert found.nodes["there"].controls == ("pivot",)
        assert found.nodes["y"].inputs == graph.nodes["y"].inputs

    def test_one_of_two_that_only_meet_each_other(self) -> None:
        """The product of n and w is dead behind the last turn as long as one of them goes round."""
        assert len(going_round(Loop().reading("n*w", "Mul", Value("n/body"), Value("w/body")).graph())) == 3


class TestGoesRound:
    def test_what_the_body_would_compute_once_more(self) -> None:
        assert going_round(Loop().reading("print", "Print", Value("w/body"), stateful=True).graph()) == {"i", "x", "w"}
        waiting = Loop().reading("print", "Print", Value("w/body"), stateful=True, controls=["begins"])
        assert going_round(waiting.graph()) == {"i", "x"}

    def test_what_others_wait_for(self) -> None:
        for name in ("w/merge", "w/switch", "w/exit"):
            waiting = Loop().reading("waits", "Tanh", Value("x"), controls=[name], context=())
            assert "w" in going_round(waiting.graph()), name

    def test_what_has_a_name_to_keep(self) -> None:
        assert "w" in going_round(Loop().graph(fetched=["w/exit"]))

    def test_what_something_is_yet_to_be_placed_with(self) -> None:
        assert going_round(Loop(placed=False).graph()) == {"i", "x"}  # by Identities alone, which go, too
        beside = Loop(placed=False).reading("y", "Tanh", Value("x/body"), _class=("loc:@w/switch",))
        assert "w" in going_round(beside.graph())
        placed = Loop().reading("y", "Tanh", Value("x/body"), _class=("loc:@w/switch",))
        assert going_round(placed.graph()) == {"i", "x"}
        assert with_constant_invariants(placed.graph()).nodes["y"].attributes["_class"] == ()

    def test_what_keeps_the_next_turn_waiting(self) -> None:
        def loop(**more: Any) -> Loop:
            return Loop(**more).reading("effect", "Print", Value("x/body"), stateful=True)

        assert "w" in going_round(loop(**{"w/waits": ["effect"]}).graph())
        assert going_round(loop(waits=["effect"]).graph()) == {"i", "x"}

    def test_what_is_known_of_more_closely_outside(self) -> None:
        assert "w" in going_round(Loop(**{"w/type": f32("B")}).graph())

    def test_what_lies_on_another_device(self) -> None:
        assert "w" in going_round(Loop(**{"w/enter": {"device": "gpu"}}).graph())

    @pytest.mark.parametrize("read", [False, True])
    def test_what_waits_to_enter_if_it_is_read_behind(self, read: bool) -> None:
        loop = Loop(**{"w/enter": {"controls": ["x"]}})
        if read:
            loop.reading("behind", "Tanh", Value("w/exit"), context=())
        assert ("w" in going_round(loop.graph())) is read
