"""Contraction: an acyclic graph in which two units become one wherever that closes no cycle.

    a ─► cut ─► c        may a and c be one?  No: a path a ─► cut ─► c would begin and end in it.
    └───────────┘

A unit is a node, a cluster, or a whole loop. Units stand in a list in topological order, each with a label that grows
along it. Of two units, a path can only lead from the earlier (low) to the later (high), through units labelled between
the two. It is searched for from both ends in turn, an edge at a time, until the two searches meet, or one is done:

    ── low ──── x ──── p ──── y ──── high ──►  labels        x, y: found from low    p: found from high

Then there is no path. If the search from low is the one that is done, it has all that follows low up to high: these
units move to right behind high, whose place the union takes. If it is the search from high, what it found moves to
right before low. So a join costs about the edges of the smaller side, and most find one side empty.

Invariants: labels grow along every edge and along the list; the edges of a unit name units that still exist.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tf_stitch.errors import Reason
from tf_stitch.ir.graph import Graph, Node
from tf_stitch.ops import OPS

# What they pass on belongs to the next iteration of a loop: no path of this one.
BACK_EDGES = frozenset(("NextIteration", "RefNextIteration"))
_GAP = 1 << 40  # between the labels of neighbours in the list
_FAR = 20_000  # edges looked at, after which there might as well be a path


def frames(node: Node) -> frozenset[str]:
    """The while loops around a node, outer ones included."""
    return frozenset(word for word in node.context if word.startswith("frame "))


@dataclass(frozen=True)
class _Between:
    """Two units without a path between them. units: those that must make way for the union; place: who gives its."""

    low: int
    high: int
    units: Mapping[int, int]
    place: int


class Contraction:
    """Some nodes of a graph, in units that have no node in common. A unit is a number, its place in `units`.

    order: the place of each node in a topological order; ties of the list are broken by it.
    members: of each unit; none of one that was joined to another.
    """

    def __init__(self, graph: Graph, order: Mapping[str, int], units: Sequence[Sequence[str]]) -> None:
        count = len(units)
        self.members: list[list[str]] = [list(names) for names in units]
        self._unit = {name: unit for unit, names in enumerate(units) for name in names}
        self._into = list(range(count))  # a unit that was joined: what it became part of
        self._after: list[dict[int, bool]] = [{} for _ in range(count)]  # unit -> whether any edge carries data
        self._before: list[dict[int, bool]] = [{} for _ in range(count)]
        self._apart: list[set[str]] = [
            set() for _ in range(count)
        ]  # nodes that must not be in a unit: what it looks up
        self._build_edges(graph)
        self._label: list[int | None] = [None] * count
        self._next: list[int] = [-1] * (count + 1)  # a ring; the last entry is where it is closed
        self._previous: list[int] = [-1] * (count + 1)
        listed = self._sorted(order)
        self._number(listed)

    # -- what it is ----------------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self._unit

    def unit(self, name: str) -> int:
        """The unit that a node is in."""
        found = self._unit[name]
        while self._into[found] != found:
            self._into[found] = self._into[self._into[found]]
            found = self._into[found]
        return found

    def stands_on_cycle(self, unit: int) -> bool:
        """Whether the unit is on a cycle, or behind one: no order has a place for it."""
        return self._label[unit] is None

    def adjacent(self, one: int, other: int) -> bool:
        """Whether one of the two reads the other, or waits for it."""
        return other in self._after[one] or other in self._before[one]

    def in_order(self) -> Iterator[int]:
        """The units, in topological order; those on a cycle are left out."""
        end = len(self.members)
        unit = self._next[end]
        while unit != end:
            yield unit
            unit = self._next[unit]

    def readers(self, unit: int) -> Iterator[int]:
        """The units that read this one, or wait for it."""
        return iter(self._after[unit])

    def reads(self, unit: int) -> Iterator[int]:
        """The units that this one reads, or waits for."""
        return iter(self._before[unit])

    # -- joining -------------------------------------------------------------------------------------------

    def join(self, one: int, other: int) -> Reason | None:
        """Makes two units one, which takes the members of both. None where that was done, else why not.

        CONTROL_EDGE where a path between them begins or ends with a control edge, CYCLE for any other path; CYCLE
        also where the search went too far, and where one must be complete before the other begins.
        """
        found = self._searched(one, other)
        if isinstance(found, Reason):
            return found
        self._move(found.units, found.place, behind_it=found.place == found.high)
        self._unite(found.low, found.high, found.place)
        return None

    def path(self, one: int, other: int) -> Reason | None:
        """Why two units cannot be joined, without joining them."""
        found = self._searched(one, other)
        return found if isinstance(found, Reason) else None

    def _searched(self, one: int, other: int) -> _Between | Reason:
        one_label, other_label = self._label[one], self._label[other]
        if one_label is None or other_label is None or self._keep_apart(one, other):
            return Reason.CYCLE
        low, high = (one, other) if one_label < other_label else (other, one)
        ahead: dict[int, int] = {low: low}  # unit -> the one that it was found from
        behind: dict[int, int] = {high: high}
        from_low = self._search(low, high, self._after, ahead, behind)
        from_high = self._search(high, low, self._before, behind, ahead)
        for _ in range(_FAR):
            for search, found, start, place in ((from_low, ahead, low, high), (from_high, behind, high, low)):
                met = next(search, None)
                if met is None:
                    del found[start]
                    return _Between(low, high, found, place)
                if met:
                    return self._kind_of_path(low, high, ahead, behind)
        return Reason.CYCLE

    def _keep_apart(self, one: int, other: int) -> bool:
        """Whether one of two units has a node that the other one looks elements up in."""
        pairs = ((one, other), (other, one))
        return any(self.unit(name) == there for mine, there in pairs for name in self._apart[mine])

    def _search(
        self, start: int, end: int, edges: list[dict[int, bool]], mine: dict[int, int], theirs: dict[int, int]
    ) -> Iterator[bool]:
        """Breadth first; for each edge, whether it leads to what the search from the other end has found."""
        labels = self._label
        first, last = labels[start], labels[end]
        assert first is not None
        assert last is not None
        least, most = min(first, last), max(first, last)
        queue = deque((start,))
        while queue:
            unit = queue.popleft()
            for other in edges[unit]:
                if unit == start and other == end:  # an edge between them is no path outside
                    continue
                if other in theirs:
                    self._meeting = (unit, other) if edges is self._after else (other, unit)
                    yield True
                label = labels[other]
                if label is not None and least < label < most and other not in mine:
                    mine[other] = unit
                    queue.append(other)
                yield False

    def _kind_of_path(self, low: int, high: int, ahead: dict[int, int], behind: dict[int, int]) -> Reason:
        """CONTROL_EDGE or CYCLE, by the two ends of the path through the edge where the searches met."""
        first, last = self._meeting
        before, after = last, first
        while first != low:
            before, first = first, ahead[first]
        while last != high:
            after, last = last, behind[last]
        return Reason.CYCLE if self._after[low][before] and self._after[after][high] else Reason.CONTROL_EDGE

    def _unite(self, low: int, high: int, place: int) -> None:
        """Makes them one at the place of one of them, in time of the smaller one's edges and members."""
        keep, drop = low, high
        if len(self._after[low]) + len(self._before[low]) < len(self._after[high]) + len(self._before[high]):
            keep, drop = high, low
        gone = low if place == high else high
        self._unlink(gone)
        if place != keep:  # the unit that is kept takes the other's place in the list
            self._label[keep] = self._label[drop]
            self._link(keep, self._previous[drop], self._next[drop])
        self._label[drop] = None
        for edges, back in ((self._after, self._before), (self._before, self._after)):
            for other, carries in edges[drop].items():
                del back[other][drop]
                if other != keep:
                    edges[keep][other] = edges[keep].get(other, False) or carries
                    back[other][keep] = back[other].get(keep, False) or carries
            edges[drop] = {}
        self._apart[keep] |= self._apart[drop]
        self._apart[drop] = set()
        if len(self.members[keep]) < len(self.members[drop]):
            self.members[keep], self.members[drop] = self.members[drop], self.members[keep]
        self.members[keep].extend(self.members[drop])
        self.members[drop] = []
        self._into[drop] = keep

    # -- the list ------------------------------------------------------------------------------------------

    def _link(self, unit: int, before: int, after: int) -> None:
        self._next[before] = self._previous[after] = unit
        self._previous[unit], self._next[unit] = before, after

    def _unlink(self, unit: int) -> None:
        self._link_ends(self._previous[unit], self._next[unit])

    def _link_ends(self, before: int, after: int) -> None:
        self._next[before], self._previous[after] = after, before

    def _move(self, units: Mapping[int, int], place: int, *, behind_it: bool) -> None:
        """Moves units, in their order, to right behind a place in the list, or right before it."""
        if not units:
            return

        def label(unit: int) -> int:
            return self._label[unit] or 0

        moved = sorted(units, key=label)
        for unit in moved:
            self._unlink(unit)
        before = place if behind_it else self._previous[place]
        after = self._next[before]
        end = len(self.members)
        least = 0 if before == end else label(before)
        most = least + _GAP * (len(moved) + 1) if after == end else label(after)
        for number, unit in enumerate(moved, 1):
            self._label[unit] = least + (most - least) * number // (len(moved) + 1)
            self._link(unit, before, after)
            before = unit
        if most - least <= len(moved) + 1:  # no numbers are left between the two
            self._number(list(self.in_order()))

    def _number(self, listed: Sequence[int]) -> None:
        """Makes this the list."""
        end = len(self.members)
        before = end
        self._link_ends(end, end)
        for number, unit in enumerate(listed, 1):
            self._label[unit] = number * _GAP
            self._link(unit, before, end)
            before = unit

    # -- building ------------------------------------------------------------------------------------------

    def _build_edges(self, graph: Graph) -> None:
        for name, reader in self._unit.items():
            node = graph.nodes[name]
            self._apart[reader] |= {p for p in _looked_up_by(graph, node) if p in self._unit}
            read, waits = _written_in(graph, node)
            for carries, producers in ((True, read), (False, (*node.controls, *waits))):
                for producer in producers:
                    unit = self._unit.get(producer, reader)
                    if unit != reader and graph.nodes[producer].op not in BACK_EDGES:
                        self._after[unit][reader] = self._after[unit].get(reader, False) or carries
                        self._before[reader][unit] = self._after[unit][reader]

    def _sorted(self, order: Mapping[str, int]) -> list[int]:
        """The units that stand on no cycle and behind none, in topological order."""
        place = [min(order[name] for name in names) for names in self.members]
        waiting = [len(before) for before in self._before]
        ready = [(place[unit], unit) for unit, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        listed: list[int] = []
        while ready:
            _, unit = heapq.heappop(ready)
            listed.append(unit)
            for reader in self._after[unit]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, (place[reader], reader))
        return listed


def _looked_up_by(graph: Graph, node: Node) -> set[str]:
    """What has to be complete before a kernel with this node begins."""
    if node.op not in OPS:
        return set()
    known = (graph.constants, graph.extents)
    outside = OPS[node.op].outside_operands(lambda i: any(node.inputs[i] in values for values in known))
    return {node.inputs[i].node for i in outside}


def _written_in(graph: Graph, node: Node) -> tuple[list[str], list[str]]:
    """What a node reads, but for the constants that a kernel has written in; and what those wait for.

    A constant that was folded late waits for what it was folded from: no way around for two nodes of one kernel.
    """
    static = OPS[node.op].static_operands(len(node.inputs)) if node.op in OPS and node.inputs else frozenset[int]()
    read: list[str] = []
    waits: list[str] = []
    for position, value in enumerate(node.inputs):
        constant = graph.constants.get(value)
        if node.op in OPS and constant is not None and (constant.size == 1 or position in static):
            waits += graph.nodes[value.node].controls
        else:
            read.append(value.node)
    return read, waits


def units_inside(graph: Graph, around: frozenset[str], sets: Sequence[Sequence[str]] = ()) -> list[Sequence[str]]:
    """The nodes inside of some loops as units: `sets` of them, each loop further in, and single nodes.

    A loop is one unit, since what leaves it depends on all that entered it, be it by way of another iteration.

    around: the frames of the loops that all of the nodes are inside of.
    """
    units: list[Sequence[str]] = list(sets)
    taken = {name for names in sets for name in names}
    loops: dict[str, list[str]] = {}
    inside = graph.members[max(around, key=len)] if around else graph.nodes
    for node in graph.nodes.values():
        if node.name in taken or node.name not in inside:
            continue
        mine = frames(node)
        if mine == around:
            units.append((node.name,))
        else:
            loops.setdefault(min(mine - around, key=len), []).append(node.name)
    return units + list(loops.values())
