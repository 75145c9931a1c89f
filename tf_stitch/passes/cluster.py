"""Cluster: which nodes of a graph become one StitchOp.

      MatMul ─► BiasAdd ─► Mul ─► Erf ─► ... ─► Mul ─► MatMul        one cluster: all between the two MatMuls
                   └──────────────────────────────┘

  1. Every node that may be stitched starts as a cluster of its own (legality.py); all others have a Rejection.
  2. In topological order, each node joins the clusters of the nodes that it reads, unless contracting them would
     close a cycle through a node outside, or cross a frame, a branch or a device.
  3. A cluster that the planner finds no loop nests for is grown again, asking the planner at every join.
  4. What is not worth a kernel is dropped (profitability.py), with its reason.

Invariant after every join: contracting each cluster to one node leaves the graph acyclic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tf_stitch.config import Config
from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.lower.common import lower
from tf_stitch.lower.names import identifier
from tf_stitch.passes import legality, profitability
from tf_stitch.passes.clustering import Cluster, Clustering, Rejection
from tf_stitch.passes.expand import Expansion, expand
from tf_stitch.passes.generalise import generalised
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.plan import StitchPlan


def cluster(graph: Graph, config: Config) -> Clustering:
    """Stage 3. Every node that is in no cluster has a Rejection, but for constants, arguments and variable reads."""
    rejections: dict[str, Rejection] = {}
    eligible: list[str] = []
    views: set[str] = set()
    folded = profitability.folded_nodes(graph)
    for node in graph.nodes.values():
        examined = legality.examine(graph, node, config)
        if isinstance(examined, Rejection):
            if not legality.is_silent(node):
                rejections[node.name] = examined
        elif node.name in folded:
            rejections[node.name] = Rejection(
                node.name, node.op, Reason.NOT_PROFITABLE, "TensorFlow folds it into the op in front"
            )
        else:
            eligible.append(node.name)
            if profitability.is_view(examined):
                views.add(node.name)
    position = {name: number for number, name in enumerate(graph.nodes)}
    grown = _grow(graph, eligible, position, config, ask_planner=False, rejections=rejections)
    clusters: list[Cluster] = []
    names: dict[str, int] = {}
    for members in grown:
        try:
            clusters.extend(_finish(graph, members, frozenset(views), position, config, rejections))
        except Unsupported:  # step 3
            for part in _grow(graph, members, position, config, ask_planner=True, rejections=rejections):
                try:
                    clusters.extend(_finish(graph, part, frozenset(views), position, config, rejections))
                except Unsupported as refused:
                    _reject(graph, part, rejections, refused.reason, refused.detail)
    clusters = _without_cycles(graph, clusters, rejections)
    clusters.sort(key=lambda c: position[c.nodes[0]])
    named = tuple(_with_name(c, names) for c in clusters)
    inside = {n for c in named for n in c.nodes}
    return Clustering(named, tuple(r for name, r in rejections.items() if name not in inside))


def _grow(
    graph: Graph,
    eligible: Sequence[str],
    position: dict[str, int],
    config: Config,
    *,
    ask_planner: bool,
    rejections: dict[str, Rejection],
) -> list[list[str]]:
    """Step 2: the members of each cluster, in topological order."""
    cluster_of: dict[str, set[str]] = {name: {name} for name in eligible}
    for name in eligible:
        node = graph.nodes[name]
        for value in dict.fromkeys(node.inputs):
            mine, theirs = cluster_of[name], cluster_of.get(value.node)
            if theirs is None or theirs is mine:
                continue
            reason = legality.compatible(graph, mine, theirs)
            if reason is None and len(mine) + len(theirs) > config.max_cluster_size:
                reason = Reason.NOT_PROFITABLE
            if reason is None:
                reason = legality.path_outside(graph, theirs, mine, position, cluster_of)
            if reason is None and ask_planner and not _can_be_planned(graph, mine | theirs, position):
                reason = Reason.SCHEME
            if reason is not None:
                rejections.setdefault(name, Rejection(name, node.op, reason, f"beside {value.node}"))
                continue
            joined = mine | theirs
            for member in joined:
                cluster_of[member] = joined
    unique = {id(members): members for members in cluster_of.values()}
    return [sorted(members, key=position.__getitem__) for members in unique.values()]


def _outputs(graph: Graph, members: Sequence[str]) -> list[Value]:
    """The values of `members` that others read, or that the graph returns."""
    inside = set(members)
    found: dict[Value, None] = {}
    for name in members:
        read = {
            v
            for user in graph.consumers[name]
            if user not in inside
            for v in graph.nodes[user].inputs
            if v.node == name
        }
        read |= {v for v in graph.returned if v.node == name}
        found.update(dict.fromkeys(sorted(read)))
    return list(found)


def _can_be_planned(graph: Graph, members: set[str], position: dict[str, int]) -> bool:
    ordered = sorted(members, key=position.__getitem__)
    try:
        _planned(expand(graph, ordered, _outputs(graph, ordered)))
    except Unsupported:
        return False
    return True


def _finish(
    graph: Graph,
    members: Sequence[str],
    views: frozenset[str],
    position: dict[str, int],
    config: Config,
    rejections: dict[str, Rejection],
) -> list[Cluster]:
    """The cluster made of `members`, or none if it does not pay.

    Raises:
      Unsupported: where it cannot be planned as a whole.
    """
    kept = sorted(profitability.without_idle_movement(graph, set(members), views), key=position.__getitem__)
    _reject(graph, set(members) - set(kept), rejections, Reason.NOT_PROFITABLE, "moved for others only")
    outputs = _outputs(graph, kept)
    refusal = (
        profitability.refusal(graph, kept, views, config) if outputs else (Reason.NOT_PROFITABLE, "nothing reads it")
    )
    if refusal is not None:
        _reject(graph, kept, rejections, *refusal)
        return []
    found = expand(graph, kept, outputs)
    groups = len(_planned(found).groups)
    found = next((g for g in generalised(graph, kept, found) if _plans_as_well(g, groups)), found)
    inside = set(kept)
    controls = dict.fromkeys(
        c for name in (*kept, *found.constants) for c in graph.nodes[name].controls if c not in inside
    )
    return [Cluster("", tuple(kept), found.constants, found.inputs, found.outputs, tuple(controls), found.body)]


def _planned(found: Expansion) -> StitchPlan:
    """The plan of a body; lowered too, since not every plan can be.

    Raises:
      Unsupported: where there is none.
    """
    plan = plan_groups(found.body)
    lower(plan, "")
    return plan


def _plans_as_well(found: Expansion, groups: int) -> bool:
    try:
        return len(_planned(found).groups) == groups
    except Unsupported:
        return False


def _reject(graph: Graph, names: Iterable[str], rejections: dict[str, Rejection], reason: Reason, detail: str) -> None:
    for name in names:
        rejections.setdefault(name, Rejection(name, graph.nodes[name].op, reason, detail))


def _without_cycles(graph: Graph, clusters: list[Cluster], rejections: dict[str, Rejection]) -> list[Cluster]:
    """The invariant, checked: TensorFlow would not raise at a cycle but abort. Clusters on one are dropped."""
    home = {name: number for number, found in enumerate(clusters) for name in found.nodes}

    def place(name: str) -> int | str:
        return home.get(name, name)

    waiting: dict[int | str, int] = {place(name): 0 for name in graph.nodes}
    edges: dict[int | str, list[int | str]] = {key: [] for key in waiting}
    for name, users in graph.consumers.items():
        for user in users:
            mine, theirs = place(name), place(user)
            if mine != theirs and not legality.is_back_edge(graph.nodes[name]):
                edges[mine].append(theirs)
                waiting[theirs] += 1
    ready = [key for key, count in waiting.items() if not count]
    while ready:
        for reader in edges[ready.pop()]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    for number, found in enumerate(clusters):
        if waiting.get(number):
            _reject(graph, found.nodes, rejections, Reason.CYCLE, "the cluster as a whole")
    return [found for number, found in enumerate(clusters) if not waiting.get(number)]


def _with_name(found: Cluster, taken: dict[str, int]) -> Cluster:
    parts = found.nodes[-1].split("/")[-3:]
    name = identifier("_".join(parts))
    taken[name] = taken.get(name, 0) + 1
    if taken[name] > 1:
        name = f"{name}_{taken[name]}"
    return Cluster(name, found.nodes, found.constants, found.inputs, found.outputs, found.controls, found.body)
