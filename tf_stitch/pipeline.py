"""READ FIRST: the whole compiler, one stage a line. Every arrow of docs/architecture.md is a call here.

    GraphDef -> Graph -> Clustering -> StitchPlan -> Kernel -> Source -> Artifact -> GraphDef
        import    cluster        plan        lower    render     build     rewrite

Between import and cluster, variables are forwarded and invariants taken out of loops (stage 2). Stages 1 and 8 know
TensorFlow and live in `frontend/`; this module is what stands between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tf_stitch.backends import Rendered, Targets, rendered, revised, unfit
from tf_stitch.config import Config, verifying
from tf_stitch.errors import BuildError, Reason, Unsupported
from tf_stitch.faults import excused
from tf_stitch.ir.body import Body
from tf_stitch.ir.graph import Graph
from tf_stitch.lower.common import lower
from tf_stitch.lower.gpu import GpuSchedules
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.names import identifier
from tf_stitch.ops import OPS
from tf_stitch.passes.cluster import cluster
from tf_stitch.passes.clustering import Cluster, Clustering, Rejection
from tf_stitch.passes.loop_invariants import with_constant_invariants
from tf_stitch.passes.precedents import Casebook
from tf_stitch.passes.variable_reads import without_reads_back
from tf_stitch.pauses import collection_paused
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.plan import StitchPlan
from tf_stitch.plan.verify import verify_plan
from tf_stitch.toolchain.artifact import Artifact, Source, Toolchain

Progress = Callable[[str, int, int], None]  # (stage, done, of)
_REVISIONS = 2  # of a kernel, by what the compiler has said of it
Observer = Callable[[str, object], None]  # (stage, what it made), as soon as it is made: see debug/dump.py


@dataclass(frozen=True)
class StitchedCluster:
    """A cluster with everything that was made of it. gpus: the schedules for each, where it was made for GPUs."""

    cluster: Cluster
    kernel: Kernel
    source: Source
    artifact: Artifact
    gpus: tuple[tuple[GpuTarget, GpuSchedules], ...] = ()

    @property
    def plan(self) -> StitchPlan:
        return self.cluster.plan


@dataclass(frozen=True)
class Stitched:
    """What the rewrite needs, and what explain shows."""

    graph: Graph
    clusters: tuple[StitchedCluster, ...]
    rejections: tuple[Rejection, ...]


def stitch(graph: Graph, config: Config, target: Targets, toolchain: Toolchain) -> Stitched:
    """Stages 2 to 7 for one graph; see `stitch_all`."""
    return stitch_all([graph], config, target, toolchain)[0]


@collection_paused()
def stitch_all(
    graphs: Sequence[Graph],
    config: Config,
    target: Targets,
    toolchain: Toolchain,
    progress: Progress | None = None,
    observer: Observer | None = None,
) -> list[Stitched]:
    """Stages 2 to 7: clusters of all graphs, equal kernels built once, all builds in parallel.

    Never raises for a graph that it cannot stitch: it stitches less, and says why in `rejections`.
    """
    tell = progress or (lambda *_: None)
    see = observer or (lambda *_: None)
    revised: list[Graph] = []
    drafts: list[list[_Draft]] = []
    rejections: list[list[Rejection]] = []
    casebook = Casebook()
    compiled: dict[Body, _Draft] = {}
    for number, graph in enumerate(graphs):
        tell("plan", number, len(graphs))
        graph = _forwarded(graph, config)
        revised.append(graph)
        see("graph", graph)
        clustering = _cluster(graph, config, casebook)
        see("clustering", clustering)
        rejections.append(list(clustering.rejections))
        drafts.append([])
        for found in clustering.clusters:
            try:
                drafts[-1].append(_compile(found, config, target, see, compiled))
            except Unsupported as refused:
                rejections[-1] += _all_rejected(graph, found, refused.reason, refused.detail)
            except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the user the model
                rejections[-1] += _all_rejected(graph, found, Reason.INTERNAL, excused(graph.name, error))
    count = sum(map(len, drafts))
    tell("build", 0, count)
    built = iter(_built([draft for of_graph in drafts for draft in of_graph], toolchain))
    tell("build", count, count)
    results: list[Stitched] = []
    for graph, of_graph, refused in zip(revised, drafts, rejections, strict=True):
        stitched: list[StitchedCluster] = []
        for draft in of_graph:
            made, artifact = next(built)
            see("artifact", artifact)
            if isinstance(artifact, BuildError):
                refused += _all_rejected(graph, draft.cluster, Reason.BUILD_FAILED, str(artifact))
            else:
                stitched.append(StitchedCluster(draft.cluster, made.kernel, made.source, artifact, made.gpus))
        results.append(Stitched(graph, tuple(stitched), tuple(refused)))
        see("stitched", results[-1])
    return results


def _built(drafts: Sequence[_Draft], toolchain: Toolchain) -> list[tuple[Rendered, Artifact | BuildError]]:
    """Stage 7. What the compiler says of a kernel may change it: then it is built once more."""
    made = [draft.rendered for draft in drafts]
    artifacts = toolchain.build([r.source for r in made])
    for _ in range(_REVISIONS):
        found = [(n, r) for n, (m, a) in enumerate(zip(made, artifacts, strict=True)) if (r := revised(m, a))]
        if not found:
            break
        again = toolchain.build([r.source for _, r in found])
        for (n, r), artifact in zip(found, again, strict=True):
            made[n], artifacts[n] = r, artifact
    return [(m, unfit(m, a) or a) for m, a in zip(made, artifacts, strict=True)]


def _forwarded(graph: Graph, config: Config) -> Graph:
    """Stage 2; after an error of ours, the graph as it was."""
    try:
        forwarded = without_reads_back(graph, config.target) if config.variable_forwarding else graph
        return with_constant_invariants(forwarded) if config.invariant_motion else forwarded
    except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the user the model
        excused(graph.name, error)
        return graph


def _cluster(graph: Graph, config: Config, casebook: Casebook) -> Clustering:
    """Stage 3; after an error of ours, no clusters."""
    try:
        return cluster(graph, config, casebook)
    except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the user the model
        detail = excused(graph.name, error)
        rejected = (Rejection(n.name, n.op, Reason.INTERNAL, detail) for n in graph.nodes.values() if n.op in OPS)
        return Clustering((), tuple(rejected))


@dataclass(frozen=True)
class _Draft:
    """A cluster that is not built yet."""

    cluster: Cluster
    rendered: Rendered

    @property
    def source(self) -> Source:
        return self.rendered.source


def _compile(found: Cluster, config: Config, target: Targets, see: Observer, compiled: dict[Body, _Draft]) -> _Draft:
    """Stages 5 and 6, for the cluster brings its plan. compiled: what was made of the same body in another function."""
    see("cluster", found)
    known = compiled.get(found.body)
    if known is not None:
        see("plan", found.plan)
        see("kernel", (known.rendered.kernel, known.rendered.schedules))
        see("source", known.source)
        return replace(known, cluster=found)
    plan = found.plan
    see("plan", plan)
    if verifying():
        verify_plan(plan)
    made = rendered(lower(plan, kernel_name(plan)), target, config)
    see("kernel", (made.kernel, made.schedules))
    see("source", made.source)
    compiled[found.body] = _Draft(found, made)
    return compiled[found.body]


def kernel_name(plan: StitchPlan) -> str:
    """A name for people, made of the nodes that dominate the kernel; the same for equal clusters of a model."""
    origins = [plan.body.steps[group.dominant].origin for group in plan.groups]
    origins.append(plan.body.steps[plan.body.outputs[-1]].origin)
    stems = [identifier(o.rsplit("/", 1)[-1]).rstrip("0123456789_") or "v" for o in origins]
    return "_".join(dict.fromkeys(stems))[:60]


def _all_rejected(graph: Graph, found: Cluster, reason: Reason, detail: str) -> list[Rejection]:
    return [Rejection(name, graph.nodes[name].op, reason, detail) for name in found.nodes]
