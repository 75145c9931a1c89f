"""Remote stitching: clusters that have nothing to do with each other become one (AStitch, section 4).

    ids ─► Gather ─► (relu, scale) ──┐                  ┌──────────────────┐
    ids ─► Gather ─► (relu, scale) ──┼─► Concat    ─►   │ one kernel,      │ ─► Concat
    ids ─► Gather ─► (log, clip)   ──┘                  │ a nest for each  │
                                                        └──────────────────┘

Gained is the call of an op, about a microsecond each, and what both read is read once. Lost is that one now waits for
what the other waits for, and that what was just computed, and is read next, may have left the cache by then. So
clusters are joined that

  - have no path between them, and make no cycle as one (contraction.py); run in one place; are not too large together;
  - stand equally deep: as many compute-intensive ops one after another come before each. Or that no such op comes
    behind. Then no matmul waits longer than the other one's cluster would have made it wait;
  - move little enough together to stay in the cache, or share much of what they read (profitability.stays_together);
  - assume the same of dims that are not known. The guards of one kernel fail together, and a cluster must not run its
    fallback because of what another one assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tf_stitch.config import Config
from tf_stitch.ir.graph import Graph
from tf_stitch.ir.types import Dim
from tf_stitch.passes import profitability
from tf_stitch.passes.contraction import Contraction
from tf_stitch.passes.expand import Expansion
from tf_stitch.passes.legality import Place
from tf_stitch.passes.profitability import Traffic

_OPEN = 4  # clusters of one kind that are still grown: those behind are full, or there is a path to most that come
_LAST = -1  # the depth of all behind which nothing compute-intensive comes

Assumed = frozenset[tuple[str, ...]]


@dataclass(frozen=True)
class _Kind:
    """What two clusters must have in common."""

    place: Place
    depth: int
    assumed: Assumed


def join_remote(
    graph: Graph, contraction: Contraction, parts: Sequence[tuple[Sequence[str], Expansion]], config: Config
) -> list[list[int]]:
    """Which of `parts`, by number, become one; `contraction` has them joined then.

    parts: the nodes and the expansion of each cluster; a unit of `contraction`.
    """
    depth = _depths(graph, contraction)
    number_of = {contraction.unit(names[0]): number for number, (names, _) in enumerate(parts)}
    traffic = [Traffic.of(graph, names, found) for names, found in parts]
    moved: dict[int, Traffic] = {}  # of what was joined, by the first part's number
    grown: dict[_Kind, list[list[int]]] = {}
    for unit in [u for u in contraction.in_order() if u in number_of]:
        number = number_of[unit]
        names, found = parts[number]
        kind = _Kind(Place.of(graph.nodes[n] for n in names), depth[unit], assumptions(graph, found))
        open_ = grown.setdefault(kind, [])
        for together in open_[-_OPEN:]:
            other = contraction.unit(parts[together[0]][0][0])
            fits = len(contraction.members[other]) + len(names) <= config.max_cluster_size
            fits = fits and profitability.stays_together(moved[together[0]], traffic[number])
            if fits and not contraction.adjacent(other, unit) and contraction.join(other, unit) is None:
                moved[together[0]] = moved[together[0]].with_(traffic[number])
                together.append(number)
                break
        else:
            moved[number] = traffic[number]
            open_.append([number])
    return [together for of_kind in grown.values() for together in of_kind]


def _depths(graph: Graph, contraction: Contraction) -> dict[int, int]:
    """For each unit, how many compute-intensive ones must run one after another before it can.

    Joining units of equal depth changes no depth; nor does it matter what changes behind the last of them.
    """
    units = list(contraction.in_order())
    intensive = {
        unit
        for unit in units
        if any(profitability.is_compute_intensive(graph.nodes[n]) for n in contraction.members[unit])
    }
    before: dict[int, int] = {}
    leads_to_one: set[int] = set()
    for unit in units:
        before[unit] = max((before[u] + (u in intensive) for u in contraction.reads(unit)), default=0)
    for unit in reversed(units):
        if any(u in intensive or u in leads_to_one for u in contraction.readers(unit)):
            leads_to_one.add(unit)
    return {unit: before[unit] if unit in leads_to_one else _LAST for unit in units}


def assumptions(graph: Graph, found: Expansion) -> Assumed:
    """What a cluster takes for granted of dims that the graph does not know, in the graph's symbols.

    Each is a dim that was taken to be another, or a pair (small, large). Empty where no guard can fail.
    """
    known: dict[Dim, set[Dim]] = {}  # a dim of the body: the dims of the graph that it is taken for
    names: dict[str, str] = {}
    for value, read in zip(found.inputs, found.body.inputs, strict=True):
        for mine, theirs in zip(() if read is None else read.dims, graph.type_of(value).dims, strict=False):
            known.setdefault(mine, set()).add(theirs)
            if len(mine.symbols) == len(theirs.symbols) == 1 and mine.coefficient == theirs.coefficient:
                names.setdefault(mine.symbols[0], theirs.symbols[0])

    def spelled(dim: Dim) -> str:
        return str(Dim(dim.coefficient, tuple(sorted(names.get(s, f"{s} of {found.outputs[0]}") for s in dim.symbols))))

    taken = {
        (spelled(mine), *sorted(map(str, theirs)))
        for mine, theirs in known.items()
        if len(theirs) > 1 or any(spelled(mine) != str(t) for t in theirs)
    }
    return frozenset(taken | {("at most", spelled(small), spelled(large)) for small, large in found.body.requires})
