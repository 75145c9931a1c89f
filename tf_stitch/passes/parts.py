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

from tf_stitch.ir.graph import Graph
from tf_stitch.passes.contraction import Contraction


def take_apart(
    graph: Graph, members: Sequence[str], order: Mapping[str, int], can_be_planned: Callable[[Sequence[str]], bool]
) -> list[list[str]]:
    """The parts of a cluster that cannot be planned; each of one node at least, which may have no plan either."""
    contraction = Contraction(graph, order, [[name] for name in members])

    def units(names: Sequence[str]) -> list[int]:
        return list(dict.fromkeys(contraction.unit(name) for name in names))

    def planned_together(names: Sequence[str]) -> bool:
        return can_be_planned(sorted(names, key=order.__getitem__))

    def join_all(names: Sequence[str]) -> None:
        inside = set(names)
        for name in names:
            for value in graph.nodes[name].inputs:
                if value.node in inside and contraction.unit(name) != contraction.unit(value.node):
                    contraction.join(contraction.unit(name), contraction.unit(value.node))

    def solve(names: Sequence[str]) -> None:
        first, second = names[: len(names) // 2], names[len(names) // 2 :]
        for half in (first, second):
            if len(half) > 1:
                if planned_together(half):
                    join_all(half)
                else:
                    solve(half)
        for name in (contraction.members[unit][0] for unit in units(second)):
            for other in (contraction.members[unit][0] for unit in units(first)):
                mine, theirs = contraction.unit(name), contraction.unit(other)
                if mine != theirs and contraction.adjacent(mine, theirs):
                    if planned_together(contraction.members[mine] + contraction.members[theirs]):
                        contraction.join(mine, theirs)

    ordered = [name for unit in contraction.in_order() for name in contraction.members[unit]]
    solve(ordered)
    return [sorted(contraction.members[unit], key=order.__getitem__) for unit in units(ordered)]
