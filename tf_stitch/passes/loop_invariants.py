"""What no turn of a loop changes enters it once, and does not go round with each turn.

    w ─► Enter ─► Merge ─► Switch ─┬─:1─► Identity ─► MatMul          w ─► Enter (constant) ─► MatMul
                    ▲              │          │                         └─────────────────────► …
                    └─ NextIteration ◄────────┘
                                   └─:0─► Exit ─► …

TensorFlow lowers While so that all that its body reads goes round: weights, lengths, the tensors that are read a row at
a time. For each of them four nodes run in every turn, where the loop of a recurrent network has a kernel of some 50 us
in it: a third of the time between two turns. The executor makes the value of an Enter with `is_constant` known to each
turn by itself (tensorflow/core/common_runtime/propagator_state.cc).

    rule                                                      what would change otherwise
    what comes round is what went in, Identities aside        it is not invariant
    who reads it in the body also reads, or waits for,        it would run once more, after the last turn: a Switch
      something that is dead behind the last turn               is dead there, and a constant is not
    nothing waits for a node that goes, must stay by it or    an order, a placement, a name
      fetches it, and no return gives it
    its Identities wait for the beginning of the turn alone   an order
    its NextIteration waits for nothing that not all of the   the next turn would begin before what this one does
      loop's do
    all have one type and one device                          what is known of shapes; copies between devices
    where its Exit is read, the Enter waits for nothing       the reader would no longer wait for it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tf_stitch.ir.graph import COLOCATED, Node, Value
from tf_stitch.passes.contraction import frames

if TYPE_CHECKING:
    from tf_stitch.ir.graph import Graph

_CONSTANT = "is_constant"


def with_constant_invariants(graph: Graph) -> Graph:
    """The graph with constant Enters for invariants of loops. Nodes that have changed for it are in its `revised`.

    An inner loop that changes nothing of a value makes it an invariant of the outer one, so there are several rounds.
    """
    while any(node.op == "NextIteration" for node in graph.nodes.values()):
        found = _Invariants(graph)
        if not found.entering:
            break
        graph = found.applied()
    return graph


@dataclass(frozen=True)
class _Loop:
    """One value that goes round, by the nodes that it passes.

    passed: Identities in the body that do no more than to give it another name. inside: its names there.
    """

    enter: Node
    merge: Node
    switch: Node
    next: Node
    exits: tuple[Node, ...]
    passed: tuple[Node, ...]
    inside: frozenset[Value]

    @property
    def gone(self) -> tuple[Node, ...]:
        return (self.merge, self.switch, self.next, *self.exits, *self.passed)


class _Invariants:
    """The invariants of a graph's loops that may enter once.

    entering: their Enters. instead: what is read in place of what is gone.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.entering: set[str] = set()
        self.instead: dict[Value, Value] = {}
        self._gone: set[str] = set()
        self._needed_by = _needed_by(graph)
        self._end_of_turn = _ends_of_turns(graph)
        for node in graph.nodes.values():
            if node.op == "Merge" and (loop := self._loop(node)) is not None and self._may_enter_once(loop):
                self._enter_once(loop)

    def applied(self) -> Graph:
        graph = self.graph
        nodes: dict[str, Node] = {}
        for name, node in graph.nodes.items():
            if name in self._gone:
                continue
            inputs, attributes = tuple(map(self._resolved, node.inputs)), node.attributes
            if name in self.entering:
                attributes = {**attributes, _CONSTANT: True}
            if not self._gone.isdisjoint(node.colocated):
                kept = (name for name in node.colocated if name not in self._gone)
                attributes = {**attributes, "_class": tuple(f"{COLOCATED}{name}" for name in kept)}
            same = inputs == node.inputs and attributes is node.attributes
            nodes[name] = node if same else replace(node, inputs=inputs, attributes=attributes)
        changed = {name for name, node in nodes.items() if graph.nodes[name] is not node}
        return replace(graph, nodes=nodes, revised=graph.revised | changed | self._gone)

    def _resolved(self, value: Value) -> Value:
        while value in self.instead:
            value = self.instead[value]
        return value

    def _loop(self, merge: Node) -> _Loop | None:
        """The loop that a Merge stands at the beginning of, if what comes round is what went in."""
        nodes = self.graph.nodes
        if len(merge.inputs) != 2:
            return None
        enter, next_ = (nodes[v.node] for v in merge.inputs)
        if enter.op != "Enter" or enter.attributes.get(_CONSTANT) or next_.op != "NextIteration":
            return None
        value = self.graph.behind_identities(next_.inputs[0])
        switch = nodes[value.node]
        if switch.op != "Switch" or value.index != 1 or switch.inputs[0] != Value(merge.name):
            return None
        passed = tuple(self._passing(value, switch.inputs[1]))
        inside = frozenset((value, *(Value(n.name) for n in passed)))
        return _Loop(enter, merge, switch, next_, tuple(self._readers(Value(switch.name, 0))), passed, inside)

    def _passing(self, value: Value, condition: Value) -> Iterator[Node]:
        """The Identities behind it that do no more than to give it another name."""
        for reader in self._readers(value):
            passes = reader.op == "Identity" and reader.name not in self._needed_by
            if passes and all(self._tells_of_turn(control, condition) for control in reader.controls):
                yield reader
                yield from self._passing(Value(reader.name), condition)

    def _tells_of_turn(self, control: str, condition: Value) -> bool:
        """Whether waiting for a node is waiting for a turn to begin: what is only done in the turn does so anyway."""
        node = self.graph.nodes[control]
        if node.op == "NoOp":
            return bool(node.controls) and all(self._tells_of_turn(c, condition) for c in node.controls)
        return node.op == "Identity" and not node.controls and self._goes_round(node.inputs[0], condition)

    def _goes_round(self, value: Value, condition: Value) -> bool:
        """Whether a value is one in the body that this loop has decided to go on with."""
        producer = self.graph.nodes[value.node]
        return producer.op == "Switch" and value.index == 1 and producer.inputs[1] == condition

    def _readers(self, value: Value) -> Iterator[Node]:
        for name in self.graph.consumers[value.node]:
            if value in self.graph.nodes[name].inputs:
                yield self.graph.nodes[name]

    def _may_enter_once(self, loop: _Loop) -> bool:
        enter, readers_of = loop.enter, self.graph.consumers
        gone = {n.name for n in loop.gone}
        if any(n.op != "Exit" for n in loop.exits) or any(not self._needed_by.get(n, set()) <= gone for n in gone):
            return False
        if any(n.controls for n in (loop.merge, loop.switch, *loop.exits)):
            return False
        if readers_of[loop.next.name] != (loop.merge.name,) or not self._ends_as_others(loop.next):
            return False
        if any(True for _ in self._readers(Value(loop.merge.name, 1))):
            return False
        type_ = self.graph.type_of(enter.inputs[0])
        if any(n.types[0] != type_ for n in (enter, *loop.gone)):
            return False
        if enter.controls and any(readers_of[n.name] for n in loop.exits):
            return False
        (turn,) = words if len(words := loop.next.context - loop.switch.context) == 1 else (None,)
        readers = {n.name: n for value in loop.inside for n in self._readers(value)}
        readers = {name: n for name, n in readers.items() if name not in gone}
        everywhere = (*loop.gone, *readers.values(), *self._readers(Value(loop.merge.name)))
        if turn is None or any(n.device != enter.device for n in everywhere):
            return False
        return all(self._ends(reader, turn, loop) for reader in readers.values())

    def _ends_as_others(self, next_: Node) -> bool:
        return self._end_of_turn[frames(next_)].issuperset(next_.controls)

    def _ends(self, reader: Node, turn: str, loop: _Loop) -> bool:
        """Whether a node of the body is dead behind the last turn for another reason than this value."""
        nodes = self.graph.nodes
        for value in reader.inputs:
            if value in loop.inside or value in self.instead:
                continue
            if self._goes_round(value, loop.switch.inputs[1]) or turn in nodes[value.node].context:
                return True
        return any(turn in nodes[name].context for name in reader.controls)

    def _enter_once(self, loop: _Loop) -> None:
        self.entering.add(loop.enter.name)
        self._gone |= {n.name for n in loop.gone}
        entered = Value(loop.enter.name)
        self.instead |= dict.fromkeys((Value(loop.merge.name), *loop.inside), entered)
        self.instead |= {Value(n.name): loop.enter.inputs[0] for n in loop.exits}


def _needed_by(graph: Graph) -> Mapping[str, set[str]]:
    """For each node, those that wait for it or are yet to be placed with it; "" where it has to stay in any case."""
    found: dict[str, set[str]] = {name: {""} for name in (*graph.fetched, *(v.node for v in graph.returned))}
    for node in graph.nodes.values():
        for name in (*node.controls, *(() if node.device else node.colocated)):
            found.setdefault(name, set()).add(node.name)
    return found


def _ends_of_turns(graph: Graph) -> Mapping[frozenset[str], set[str]]:
    """For each loop, what all of its NextIterations wait for."""
    found: dict[frozenset[str], set[str]] = {}
    for node in graph.nodes.values():
        if node.op == "NextIteration":
            found.setdefault(frames(node), set(node.controls)).intersection_update(node.controls)
    return found
