"""Neighbours: the nodes just outside a cluster, and why they are not inside.

A node that is in no cluster has its Rejection. Two clusters side by side were each legal, so what kept them
apart is worked out again, by the questions that `passes.cluster` asks in the order in which it asks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch.errors import Reason
from tf_stitch.passes.contraction import Contraction, frames, units_inside
from tf_stitch.passes.legality import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tf_stitch.config import Config
    from tf_stitch.ir.graph import Graph
    from tf_stitch.passes.clustering import Cluster
    from tf_stitch.pipeline import Stitched


@dataclass(frozen=True)
class Neighbour:
    """side: "before" the cluster or "after" it. cluster: of the node, where it is in another one."""

    node: str
    op: str
    side: str
    code: str
    meaning: str
    detail: str
    cluster: str


def neighbours_of(cluster: Cluster, stitched: Stitched, config: Config) -> tuple[Neighbour, ...]:
    """One for each neighbouring node that could be stitched or has a reason why not; another cluster once."""
    graph = stitched.graph
    rejections = {r.node: r for r in stitched.rejections}
    home = {name: made.cluster for made in stitched.clusters for name in made.cluster.nodes}
    contraction = _contraction(graph, cluster, stitched)
    found: dict[tuple[str, str], Neighbour] = {}
    for name, side in _beside(graph, cluster):
        node = graph.nodes[name]
        if name in home:
            other = home[name]
            reason, detail = _between(graph, cluster, other, contraction, config)
            key = (side, other.name)
            found.setdefault(key, Neighbour(name, node.op, side, reason.name, reason.value, detail, other.name))
        elif name in rejections:
            rejection = rejections[name]
            reason = rejection.reason
            found[side, name] = Neighbour(name, node.op, side, reason.name, reason.value, rejection.detail, "")
    return tuple(found.values())


def _beside(graph: Graph, cluster: Cluster) -> Iterator[tuple[str, str]]:
    inside = set(cluster.nodes)
    for value in cluster.inputs:
        if value.node in graph.nodes and value.node not in inside:
            yield value.node, "before"
    outputs = set(cluster.outputs)
    for name in dict.fromkeys(v.node for v in cluster.outputs):
        for user in graph.consumers[name]:
            if user not in inside and outputs.intersection(graph.nodes[user].inputs):
                yield user, "after"


def _between(
    graph: Graph, cluster: Cluster, other: Cluster, contraction: Contraction, config: Config
) -> tuple[Reason, str]:
    place, their_place = (Place.of(graph.nodes[n] for n in c.nodes) for c in (cluster, other))
    common = place.with_(their_place)
    if isinstance(common, Reason):
        return common, ""
    if len(cluster.nodes) + len(other.nodes) > config.max_cluster_size:
        return Reason.NOT_PROFITABLE, f"together more than {config.max_cluster_size} nodes"
    reason = contraction.path(contraction.unit(cluster.nodes[0]), contraction.unit(other.nodes[0]))
    return (Reason.SCHEME, "no loop nests were found for both together") if reason is None else (reason, "")


def _contraction(graph: Graph, cluster: Cluster, stitched: Stitched) -> Contraction:
    """What the graph is for this cluster, with all clusters as they are."""
    around = frames(graph.nodes[cluster.nodes[0]])
    sets = [c.cluster.nodes for c in stitched.clusters if frames(graph.nodes[c.cluster.nodes[0]]) == around]
    order = {name: number for number, name in enumerate(graph.nodes)}
    return Contraction(graph, order, units_inside(graph, around, sets))
