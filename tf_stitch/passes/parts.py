"""Parts: a cluster that has no plan as a whole, as a few that have one each.

    a b c d | e f g h         no plan: each half by itself
     (a b c d)   e f | g h    a plan for the left half; none for the right one
     (a b c d)   (e f) (g h)  then parts that read each other are joined wherever the planner agrees
     (a b c d e f)   (g h)

A stretch of a topological order is left by no path that comes back to it, so every half is a cluster as legal as the
whole. The planner is asked for about as many nodes as the cluster has, times the logarithm of it, for each cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tf_stitch.ir.graph import Graph
from tf_stitch.passes.contraction import Contraction


def take_apart(
    graph: Graph, members: Sequence[str], order: Mapping[str, int], can_be_planned: Callable[[Sequence[str]], bool]
) -> list[list[str]]:
    """The parts of a cluster that cannot be planned; each of one node at least, which may have no plan either."""
    contraction = Contraction(graph, order, [[name] for name in members])
    ordered = [name for unit in contraction.in_order() for name in contraction.members[unit]]
    parts = _Parts(graph, contraction, order, can_be_planned)
    parts.halve(ordered)
    return [sorted(contraction.members[unit], key=order.__getitem__) for unit in parts.of(ordered)]


@dataclass(frozen=True)
class _Parts:
    graph: Graph
    contraction: Contraction
    order: Mapping[str, int]
    can_be_planned: Callable[[Sequence[str]], bool]

    def of(self, names: Sequence[str]) -> list[int]:
        """The parts that the names are in so far."""
        return list(dict.fromkeys(self.contraction.unit(name) for name in names))

    def halve(self, names: Sequence[str]) -> None:
        """Makes parts of nodes that cannot be planned together."""
        first, second = names[: len(names) // 2], names[len(names) // 2 :]
        for half in (first, second):
            if len(half) > 1:
                if self.can_be_planned(sorted(half, key=self.order.__getitem__)):
                    self.join_neighbours(half)
                else:
                    self.halve(half)
        for name in [self.contraction.members[unit][0] for unit in self.of(second)]:
            for other in [self.contraction.members[unit][0] for unit in self.of(first)]:
                self.join_if_planned(name, other)

    def join_neighbours(self, names: Sequence[str]) -> None:
        """Joins nodes that can be planned together, as far as they read each other."""
        inside = set(names)
        for name in names:
            for value in self.graph.nodes[name].inputs:
                if value.node in inside:
                    mine, theirs = self.contraction.unit(name), self.contraction.unit(value.node)
                    if mine != theirs:
                        self.contraction.join(mine, theirs)

    def join_if_planned(self, name: str, other: str) -> None:
        """Joins the parts of two nodes where one reads the other and the planner agrees."""
        mine, theirs = self.contraction.unit(name), self.contraction.unit(other)
        if mine == theirs or not self.contraction.adjacent(mine, theirs):
            return
        both = self.contraction.members[mine] + self.contraction.members[theirs]
        if self.can_be_planned(sorted(both, key=self.order.__getitem__)):
            self.contraction.join(mine, theirs)
