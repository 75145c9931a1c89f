"""Precedents: what was found for some nodes holds for all nodes that look the same.

A model has one block many times, and to expand and plan a block is most of the work of stage 3. So each is worked out
once for each *look*: the nodes with their ops, attributes and types, what they read of each other, and the types and
constants that they read from outside. Names are no part of it; the answer is handed out under the names that are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tf_stitch.errors import Unsupported
from tf_stitch.ir.body import Body, Step
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.passes.expand import Expansion, expand
from tf_stitch.passes.generalise import generalised
from tf_stitch.passes.order import attribute_texts, text_of
from tf_stitch.plan.plan import StitchPlan

Planner = Callable[[Body], StitchPlan]
"""The plan of a body; raises Unsupported where there is none."""


@dataclass
class _Precedent:
    """One look, under the names that it had first, in the graph where it was met. None: not asked yet."""

    graph: Graph
    names: Sequence[str]
    outputs: Sequence[Value]
    outside: Sequence[Value]
    expanded: Expansion | Unsupported | None = None
    plan: StitchPlan | Unsupported | None = None
    general: tuple[Expansion, StitchPlan] | None = None


@dataclass
class Casebook:
    """What was found so far, in all graphs that are stitched with one config: a model's functions repeat each other."""

    known: dict[Any, _Precedent] = field(default_factory=dict[Any, _Precedent])
    numbers: dict[Any, int] = field(default_factory=dict[Any, int])  # of looks of single nodes and values


@dataclass
class Precedents:
    """The answers for one graph."""

    graph: Graph
    planner: Planner
    casebook: Casebook = field(default_factory=Casebook)
    _looks: dict[str, int] = field(default_factory=dict[str, int])  # of each node by itself

    def expanded(self, names: Sequence[str], outputs: Sequence[Value]) -> Expansion:
        """The nodes expanded; perhaps under the names of others of this graph.

        Raises:
          Unsupported: where that is not possible.
        """
        known, outside = self._precedent(names, outputs)
        return self._of_this_graph(self._expanded(known), known, names, outside)

    def planned(self, names: Sequence[str], outputs: Sequence[Value]) -> Expansion:
        """As `expanded`, of nodes that have a plan as one cluster.

        Raises:
          Unsupported: where they have none.
        """
        known, outside = self._precedent(names, outputs)
        found = self._expanded(known)
        self._plan(known, found)
        return self._of_this_graph(found, known, names, outside)

    def general(self, names: Sequence[str], outputs: Sequence[Value]) -> tuple[Expansion, StitchPlan]:
        """The nodes expanded for as many shapes as are planned as well as their own, and the plan.

        Raises:
          Unsupported: where they have no plan.
        """
        known, outside = self._precedent(names, outputs)
        if known.general is None:
            found = self._expanded(known)
            plan = self._plan(known, found)
            attempts = ((g, self._plan_as_good(g, plan)) for g in generalised(known.graph, known.names, found))
            known.general = next(((g, p) for g, p in attempts if p is not None), (found, plan))
        expansion = _renamed(known.general[0], known, names, outside)
        return expansion, replace(known.general[1], body=expansion.body)

    def _of_this_graph(
        self, found: Expansion, known: _Precedent, names: Sequence[str], outside: Sequence[Value]
    ) -> Expansion:
        return found if known.graph is self.graph else _renamed(found, known, names, outside)

    def _expanded(self, known: _Precedent) -> Expansion:
        if known.expanded is None:
            try:
                known.expanded = expand(known.graph, known.names, known.outputs)
            except Unsupported as refusal:
                known.expanded = refusal
        if isinstance(known.expanded, Unsupported):
            raise _again(known.expanded)
        return known.expanded

    def _plan(self, known: _Precedent, found: Expansion) -> StitchPlan:
        if known.plan is None:
            try:
                known.plan = self.planner(found.body)
            except Unsupported as refusal:
                known.plan = refusal
        if isinstance(known.plan, Unsupported):
            raise _again(known.plan)
        return known.plan

    def _plan_as_good(self, found: Expansion, wanted: StitchPlan) -> StitchPlan | None:
        """The plan of more shapes, unless it has more groups."""
        try:
            plan = self.planner(found.body)
        except Unsupported:
            return None
        return plan if len(plan.groups) == len(wanted.groups) else None

    # -- looks ---------------------------------------------------------------------------------------------

    def _precedent(self, names: Sequence[str], outputs: Sequence[Value]) -> tuple[_Precedent, list[Value]]:
        look, outside = self._look(names, outputs)
        return self.casebook.known.setdefault(look, _Precedent(self.graph, names, outputs, outside)), outside

    def _look(self, names: Sequence[str], outputs: Sequence[Value]) -> tuple[Any, list[Value]]:
        """All that `expand` goes by, but for names; and the values from outside, as they are numbered in it."""
        place = {name: number for number, name in enumerate(names)}
        outside: dict[Value, int] = {}
        rows: list[Any] = []
        for name in names:
            rows.append(self._look_of_node(self.graph.nodes[name]))
            for value in self.graph.nodes[name].inputs:
                inside = place.get(value.node)
                rows.append((inside, value.index) if inside is not None else outside.setdefault(value, len(outside)))
        read = [self._look_of_value(value) for value in outside]
        written = tuple((place[v.node], v.index) for v in outputs)
        return (tuple(rows), tuple(read), written), list(outside)

    def _look_of_node(self, node: Node) -> int:
        known = self._looks.get(node.name)
        if known is None:
            extents = tuple(self.graph.extents.get(v) for v in node.inputs)
            look = (node.op, node.types, extents, tuple(attribute_texts(node)))
            known = self._looks[node.name] = self._number(look)
        return known

    def _look_of_value(self, value: Value) -> int:
        constant = self.graph.constants.get(value)
        look = (self.graph.type_of(value), None if constant is None else text_of(constant))
        return self._number(look)

    def _number(self, look: Any) -> int:
        return self.casebook.numbers.setdefault(look, len(self.casebook.numbers))


def _again(refusal: Unsupported) -> Unsupported:
    """A new exception: one that is raised again and again would gather the frames of all its raises."""
    return Unsupported(refusal.reason, refusal.detail)


def _renamed(found: Expansion, known: _Precedent, names: Sequence[str], outside: Sequence[Value]) -> Expansion:
    """What was found for one set of nodes as another set's that looks the same."""
    if names is known.names:
        return found
    new_name = dict(zip(known.names, names, strict=True))
    new_value = dict(zip(known.outside, outside, strict=True))
    new_constant = {old.node: new.node for old, new in new_value.items()}
    steps = tuple(Step(s.op, s.operands, s.type, new_name.get(s.origin, s.origin)) for s in found.body.steps)
    return Expansion(
        replace(found.body, steps=steps),
        tuple(new_value[v] for v in found.inputs),
        tuple(Value(new_name[v.node], v.index) for v in found.outputs),
        tuple(new_constant[c] for c in found.constants),
    )
