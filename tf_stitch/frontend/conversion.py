"""Conversion: what became of a SavedModel, for people and for `--json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tf_stitch.plan import cost
from tf_stitch.report.sizes import known_sizes

if TYPE_CHECKING:
    from pathlib import Path

    from tf_stitch.frontend.tuning import RacedCluster
    from tf_stitch.ir.graph import Graph
    from tf_stitch.pipeline import Stitched, StitchedCluster
    from tf_stitch.toolchain.cubin import Resources


@dataclass(frozen=True)
class ConvertedCluster:
    """One StitchOp of the converted model.

    id: the name of its node; function: the function that it is in, "" for the main graph of a V1 model.
    nodes: name and op of each node that it replaces.
    schemes: how often each is used between its steps.
    dynamic: whether a dim of its inputs or outputs is unknown.
    bytes_before, bytes_after: moved apart and stitched, an unknown dim counting as 1; see plan/cost.
    resources: of a kernel for GPUs: what its entries need, by architecture and entry; see toolchain/cubin.
    """

    id: str
    function: str
    kernel: str
    nodes: tuple[tuple[str, str], ...]
    schemes: dict[str, int]
    dynamic: bool
    bytes_before: int
    bytes_after: int
    resources: dict[str, dict[str, Resources]] = field(default_factory=dict[str, dict[str, "Resources"]])

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"nodes": [{"name": name, "op": op} for name, op in self.nodes]}


@dataclass(frozen=True)
class Conversion:
    """What `convert_saved_model` did.

    destination: the converted model; None where nothing could be stitched, and so nothing was written.
    nodes_before, nodes_after: of all graphs and functions, fallbacks aside.
    kernels_compiled: how many the compiler ran for; the others came from the cache, or equal another.
    rejections: nodes that stayed, by reason code.
    skipped: functions that were left alone, and why.
    raced: where kernels were raced against the nodes that they replace, each cluster's race, losers included.
    """

    source: Path
    destination: Path | None
    nodes_before: int
    nodes_after: int
    kernels: int = 0
    kernels_compiled: int = 0
    compile_seconds: float = 0.0
    rejections: dict[str, int] = field(default_factory=dict[str, int])
    clusters: tuple[ConvertedCluster, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()
    already_stitched: bool = False
    raced: tuple[RacedCluster, ...] = ()

    @property
    def stitch_ops(self) -> int:
        return len(self.clusters)

    def to_json(self) -> dict[str, Any]:
        """Plain data: what `tf-stitch convert --json` prints."""
        return {
            "source": str(self.source),
            "destination": None if self.destination is None else str(self.destination),
            "already_stitched": self.already_stitched,
            "nodes_before": self.nodes_before,
            "nodes_after": self.nodes_after,
            "stitch_ops": self.stitch_ops,
            "kernels": self.kernels,
            "kernels_compiled": self.kernels_compiled,
            "compile_seconds": round(self.compile_seconds, 6),
            "rejections": dict(sorted(self.rejections.items())),
            "clusters": [c.to_json() for c in self.clusters],
            "tuned": [r.to_json() for r in self.raced],
            "skipped": self.skipped,
            "warnings": list(self.warnings),
        }


def converted_clusters(stitched: Stitched, names: tuple[str, ...]) -> list[ConvertedCluster]:
    """The StitchOps of one graph or function, whose nodes have these names."""
    graph = stitched.graph
    return [_converted(graph, made, name) for made, name in zip(stitched.clusters, names, strict=True)]


def _converted(graph: Graph, made: StitchedCluster, name: str) -> ConvertedCluster:
    cluster = made.cluster
    schemes: dict[str, int] = {}
    for scheme in made.plan.schemes.values():
        schemes[scheme.name] = schemes.get(scheme.name, 0) + 1
    boundary = [*cluster.inputs, *cluster.outputs]
    nodes = [graph.nodes[n] for n in cluster.nodes]
    known = known_sizes(graph, made.kernel, cluster.inputs)
    return ConvertedCluster(
        id=name,
        function=graph.name,
        kernel=made.artifact.key,
        nodes=tuple((n.name, n.op) for n in nodes),
        schemes=schemes,
        dynamic=any(not d.is_static for v in boundary for d in graph.type_of(v).shape or ()),
        bytes_before=cost.apart(cluster.body).at(known),
        bytes_after=cost.stitched(made.plan).at(known),
        resources={arch: dict(entries) for arch, entries in made.artifact.resources.items()},
    )
