"""Cluster: which nodes of a graph become one StitchOp.

      MatMul ─► BiasAdd ─► Mul ─► Erf ─► ... ─► Mul ─► MatMul        one cluster: all between the two MatMuls
                   └──────────────────────────────┘

  1. Every node that may be stitched starts as a cluster of its own (legality.py); all others have a Rejection.
  2. In topological order, each node joins the clusters of the nodes that it reads, unless contracting them would
     close a cycle through a node outside (contraction.py), or cross a frame, a branch or a device.
  3. A cluster that the planner finds no loop nests for is taken apart, and put together as far as it does (parts.py).
  4. Clusters without a path between them are joined where that pays (remote.py).
  5. What is not worth a kernel is dropped (profitability.py), with its reason.

Nodes are visited in an order that does not depend on their names (order.py), and what was worked out for one block of
a model is not worked out again for its copies (precedents.py): the time is about in proportion to the graph.

Invariant after every join: contracting each cluster to one node leaves the graph acyclic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tf_stitch.config import Config
from tf_stitch.errors import Reason, Unsupported
from tf_stitch.faults import excused
from tf_stitch.ir.body import Body
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.lower.common import lower
from tf_stitch.lower.names import identifier
from tf_stitch.lower.products import multiplies_well
from tf_stitch.ops import OPS, Kind
from tf_stitch.passes import legality, profitability
from tf_stitch.passes.clustering import Cluster, Clustering, Rejection
from tf_stitch.passes.contraction import Contraction, frames, units_inside
from tf_stitch.passes.expand import Expansion
from tf_stitch.passes.folding import folded_nodes
from tf_stitch.passes.order import canonical_positions
from tf_stitch.passes.parts import take_apart
from tf_stitch.passes.precedents import Casebook, Precedents
from tf_stitch.passes.remote import join_remote
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.plan import Scheme, StitchPlan

_MOVED_FOR_OTHERS = "moved for others only"
_NO_ROWS_AND_COLUMNS = "a product of what does not lie in rows and columns"
_Part = tuple[list[str], Expansion]  # the nodes of a cluster, and its body under whatever names


def cluster(graph: Graph, config: Config, casebook: Casebook | None = None) -> Clustering:
    """Stage 3. Every node that is in no cluster has a Rejection, but for constants, arguments and variable reads.

    casebook: what was found in other graphs under the same config.
    """
    return _Clusterer(graph, config, casebook or Casebook()).clustering()


class _Clusterer:
    """The steps, and what they have in common.

    order: the place of each node in the canonical order. listed: its place in the graph, for people to read.
    read: of each node, the outputs that others read or that the graph returns.
    rejections: the first reason found for a node is the one that stays.
    """

    def __init__(self, graph: Graph, config: Config, casebook: Casebook) -> None:
        self.graph = graph
        self.config = config
        self.order = canonical_positions(graph)
        self.listed = {name: number for number, name in enumerate(graph.nodes)}
        self.precedents = Precedents(graph, lambda body: _planned(body, config, graph.name), casebook)
        self.read = values_read(graph)
        self.rejections: dict[str, Rejection] = {}
        self.views: frozenset[str] = frozenset()
        self.again: frozenset[str] = frozenset()
        self.legal: frozenset[str] = frozenset()

    def clustering(self) -> Clustering:
        clusters = [c for around, eligible in self._eligible().items() for c in self._under(around, eligible)]
        clusters.sort(key=lambda c: self.listed[c.nodes[0]])
        taken: dict[str, int] = {}
        named = tuple(replace(c, name=_name(c, taken)) for c in clusters)
        inside = {n for c in named for n in c.nodes}
        return Clustering(named, tuple(r for name, r in self.rejections.items() if name not in inside))

    def _under(self, around: frozenset[str], eligible: Sequence[str]) -> list[Cluster]:
        """The clusters of nodes that the same loops are around. What counts their turns is in none of several."""
        if not around:
            return self._clusters(around, eligible)
        counting = {n for n in eligible if profitability.counts_turns(self.graph, n, self.legal)}
        found = self._clusters(around, [n for n in eligible if n not in counting])
        if counting and len(found) == 1 and not profitability.computes_beside(self.graph, around):
            return self._clusters(around, eligible)
        self._reject(counting, Reason.NOT_PROFITABLE, "the next turn of the loop begins with it")
        return found

    def _clusters(self, around: frozenset[str], eligible: Sequence[str]) -> list[Cluster]:
        parts = [part for members in self._grown(eligible, around) for part in self._parts(members)]
        return [c for members in self._joined(parts, around) for c in self._finished(members)]

    def _reject(self, names: Iterable[str], reason: Reason, detail: str) -> None:
        for name in names:
            self.rejections.setdefault(name, Rejection(name, self.graph.nodes[name].op, reason, detail))

    def _outputs(self, members: Sequence[str]) -> list[Value]:
        """The values of `members` that others read, or that the graph returns."""
        inside = set(members)
        users = dict.fromkeys(u for name in members for u in self.graph.consumers[name] if u not in inside)
        wanted = {v for user in users for v in self.graph.nodes[user].inputs if v.node in inside}
        return [v for name in members for v in self.read[name] if v in wanted or v in self.graph.returned]

    # -- step 1 --------------------------------------------------------------------------------------------

    def _eligible(self) -> dict[frozenset[str], list[str]]:
        """The nodes that may be stitched, in canonical order, by the loops that they are inside of."""
        graph, views, again = self.graph, set[str](), set[str]()
        found: dict[frozenset[str], list[str]] = {}
        legal: dict[str, Expansion] = {}
        for name in sorted(graph.nodes, key=self.order.__getitem__):
            node = graph.nodes[name]
            examined = legality.examine(graph, node, self.read[name], self.config, self.precedents)
            if isinstance(examined, Expansion):
                legal[name] = examined
            elif not legality.is_silent(node):
                self.rejections[name] = examined
        products = {n for n in legal if OPS[graph.nodes[n].op].kind is Kind.PRODUCT}
        small = {n for n in products if profitability.is_small_product(graph, graph.nodes[n], legal[n], self.config)}
        large = products - small
        small = {n for n in small if self._can_be_planned([n])}
        folded = folded_nodes(graph, small)
        for name, alone in legal.items():
            if name in large:
                self._reject([name], Reason.NOT_PROFITABLE, "TensorFlow multiplies all but small matrices on CPUs")
            elif name in products - small:
                self._reject([name], Reason.SCHEME, _NO_ROWS_AND_COLUMNS)
            elif name in folded:
                self._reject([name], Reason.NOT_PROFITABLE, "TensorFlow folds it into the op in front")
            else:
                found.setdefault(frames(graph.nodes[name]), []).append(name)
                if profitability.is_view(alone):
                    views.add(name)
                if profitability.goes_over_again(alone.body):
                    again.add(name)
        self.views, self.again, self.legal = frozenset(views), frozenset(again), frozenset(legal)
        for around, names in found.items():
            found[around] = profitability.without_passed_on_views(graph, names, self.views)
            self._reject(set(names) - set(found[around]), Reason.NOT_PROFITABLE, _MOVED_FOR_OTHERS)
        return found

    # -- step 2 --------------------------------------------------------------------------------------------

    def _grown(self, eligible: Sequence[str], around: frozenset[str]) -> list[list[str]]:
        """The members of each cluster of nodes that read each other."""
        graph = self.graph
        contraction = Contraction(graph, self.order, units_inside(graph, around))
        places = {contraction.unit(name): legality.Place.of([graph.nodes[name]]) for name in eligible}
        for name in eligible:
            for producer in dict.fromkeys(v.node for v in graph.nodes[name].inputs):
                mine, theirs = contraction.unit(name), contraction.unit(producer) if producer in contraction else -1
                if theirs not in places or mine == theirs:
                    continue
                place = places[mine].with_(places[theirs])
                if isinstance(place, Reason):
                    reason = place
                elif len(contraction.members[mine]) + len(contraction.members[theirs]) > self.config.max_cluster_size:
                    reason = Reason.NOT_PROFITABLE
                else:
                    reason = contraction.join(mine, theirs)
                    if reason is None:
                        places[contraction.unit(name)] = place
                if reason is not None:
                    self._reject([name], reason, f"beside {producer}")
        return [contraction.members[unit] for unit in dict.fromkeys(contraction.unit(name) for name in eligible)]

    # -- step 3 --------------------------------------------------------------------------------------------

    def _parts(self, members: Sequence[str]) -> list[_Part]:
        """The members less what need not be inside, as clusters that can be planned."""
        kept = sorted(profitability.without_idle_movement(self.graph, set(members), self.views), key=self._listed)
        self._reject(set(members) - set(kept), Reason.NOT_PROFITABLE, _MOVED_FOR_OTHERS)
        if not kept:
            return []
        outputs = self._outputs(kept)
        if not outputs:
            self._reject(kept, Reason.NOT_PROFITABLE, "nothing reads it")
            return []
        try:
            return [(kept, self.precedents.planned(kept, outputs))]
        except Unsupported as refusal:
            if len(kept) == 1:
                self._reject(kept, refusal.reason, refusal.detail)
                return []
            self._reject(kept, refusal.reason, refusal.detail)
        apart = take_apart(self.graph, kept, self.order, self._can_be_planned)
        return [part for members in apart for part in self._parts(members)]

    def _listed(self, name: str) -> int:
        return self.listed[name]

    def _can_be_planned(self, members: Sequence[str]) -> bool:
        try:
            self.precedents.planned(members, self._outputs(members))
        except Unsupported:
            return False
        return True

    # -- step 4 --------------------------------------------------------------------------------------------

    def _joined(self, parts: Sequence[_Part], around: frozenset[str]) -> list[list[str]]:
        """Clusters that have no path between them as one; and a look at the invariant.

        TensorFlow would not raise at a cycle but abort, so clusters on one are dropped, whatever made it.
        """
        contraction = Contraction(
            self.graph, self.order, units_inside(self.graph, around, [members for members, _ in parts])
        )
        sound = [part for number, part in enumerate(parts) if not contraction.stands_on_cycle(number)]
        on_cycle = [part for number, part in enumerate(parts) if contraction.stands_on_cycle(number)]
        self._reject((name for members, _ in on_cycle for name in members), Reason.CYCLE, "the cluster as a whole")
        if not self.config.remote_stitching:
            return [list(members) for members, _ in sound]
        working = [part for part in sound if profitability.works(self.graph, part[0], self.views)]
        idle = [list(part[0]) for part in sound if not profitability.works(self.graph, part[0], self.views)]
        found: list[list[str]] = []
        for together in join_remote(self.graph, contraction, working, self.config):
            whole = sorted((n for number in together for n in working[number][0]), key=self._listed)
            if len(together) == 1 or self._can_be_planned(whole):
                found.append(whole)
            else:
                found += [list(working[number][0]) for number in together]
        return found + idle

    # -- step 5 --------------------------------------------------------------------------------------------

    def _finished(self, members: Sequence[str]) -> list[Cluster]:
        """The cluster made of `members`, or none if it does not pay."""
        refusal = profitability.refusal(self.graph, members, self.views, self.again, self.config)
        if refusal is not None:
            self._reject(members, *refusal)
            return []
        found, plan = self.precedents.general(members, self._outputs(members))
        inside = set(members)
        waited = (c for name in (*members, *found.constants) for c in self.graph.nodes[name].controls)
        controls = tuple(dict.fromkeys(c for c in waited if c not in inside))
        return [Cluster("", tuple(members), found.constants, found.inputs, found.outputs, controls, plan)]


def values_read(graph: Graph) -> dict[str, list[Value]]:
    """For each node, those of its outputs that others read or that the graph returns, in order."""
    found: dict[str, set[Value]] = {name: set() for name in graph.nodes}
    for node in graph.nodes.values():
        for value in node.inputs:
            if value.node in found:
                found[value.node].add(value)
    for value in graph.returned:
        found[value.node].add(value)
    return {name: sorted(values) for name, values in found.items()}


def _planned(body: Body, config: Config, graph: str) -> StitchPlan:
    """The plan of a body; lowered too, since not every plan can be.

    Raises:
      Unsupported: where there is no plan.
    """
    try:
        plan = plan_groups(body, dominant_merging=config.dominant_merging)
        kernel = lower(plan, "")
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(Reason.INTERNAL, excused(graph, error)) from error
    if not all(map(multiplies_well, kernel.nests)):
        raise Unsupported(Reason.SCHEME, _NO_ROWS_AND_COLUMNS)
    if not config.regional_scheme and profitability.goes_over_again(body):
        raise Unsupported(Reason.SCHEME, "a value would be kept for a row, and regional_scheme is off")
    if not config.global_scheme and Scheme.GLOBAL in plan.schemes.values():
        raise Unsupported(Reason.SCHEME, "a value would be kept between loop nests, and global_scheme is off")
    return plan


def _name(found: Cluster, taken: dict[str, int]) -> str:
    parts = found.nodes[-1].split("/")[-3:]
    name = identifier("_".join(parts))
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}_{taken[name]}"
