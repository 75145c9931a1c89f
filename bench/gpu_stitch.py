"""What tf_stitch launches on a GPU for a function, and what that moves, from its plan and schedules; no compiler runs.

The rule is that of `kernel_rule`, as for XLA: a StitchOp is one kernel, and so is each memory-intensive op that stays
TensorFlow's; products do not count, with what TensorFlow fuses into them. Bytes are those of `lower.gpu_cost`: operands
and results of each pass. The minimum is what each kernel reads and writes once; where products stand between
them, tf_stitch's cut between the products is what defines it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.kernel_rule import Kind, kind_of_op

if TYPE_CHECKING:
    from bench.gpu_clusters import GpuCluster
    from tf_stitch.ir.graph import Graph
    from tf_stitch.ir.types import TensorType
    from tf_stitch.pipeline import Stitched, StitchedCluster
    from tf_stitch.plan.gpu_target import GpuTarget


@dataclass(frozen=True)
class StitchCount:
    """us: estimated, of the StitchOps alone. left: what stayed TensorFlow's, by op. occupancy: the least of them."""

    kernels: int
    bytes: int
    min_bytes: int
    us: float
    barriers: int
    occupancy: float | None
    left: dict[str, int] = field(default_factory=dict[str, int])


def graph_of(cluster: GpuCluster) -> Graph:
    import tensorflow as tf

    from tf_stitch.frontend.importer import import_graph_def

    function = tf.function(cluster.function, input_signature=list(cluster.specs), autograph=False)
    concrete = function.get_concrete_function()
    graph_def = concrete.graph.as_graph_def(add_shapes=True)
    return import_graph_def(graph_def, fetched={t.op.name for t in concrete.outputs})


def counted(graph: Graph, target: GpuTarget) -> StitchCount:
    """For one GPU."""
    from tf_stitch import pipeline
    from tf_stitch.config import Config
    from tf_stitch.lower.gpu_cost import gpu_cost
    from tf_stitch.report.explain import NoToolchain
    from tf_stitch.report.sizes import known_sizes

    made = pipeline.stitch(graph, Config(target=f"cuda:{target.arch}"), (target,), NoToolchain())
    costs = []
    least = 0
    for stitched in made.clusters:
        symbols = known_sizes(graph, stitched.kernel, stitched.cluster.inputs)
        ((_, schedules),) = stitched.gpus
        costs.append(gpu_cost(schedules, target, symbols))
        least += _once(stitched, symbols)
    left = list(_left(graph, made))
    by_op: dict[str, int] = {}
    for op, _ in left:
        by_op[op] = by_op.get(op, 0) + 1
    return StitchCount(
        kernels=len(costs) + len(left),
        bytes=sum(cost.bytes for cost in costs) + sum(moved for _, moved in left),
        min_bytes=least + sum(moved for _, moved in left),
        us=sum(cost.ns for cost in costs) / 1000,
        barriers=sum(cost.barriers for cost in costs),
        occupancy=min((cost.occupancy for cost in costs), default=None),
        left=by_op,
    )


def _once(stitched: StitchedCluster, symbols: dict[str, int]) -> int:
    """Bytes of a kernel's inputs and outputs."""
    from tf_stitch.plan.cost import size

    types = [t for t in (*stitched.kernel.inputs, *stitched.kernel.outputs) if t is not None]
    return sum(size(t).evaluate(symbols) for t in types)


def _left(graph: Graph, made: Stitched) -> Iterator[tuple[str, int]]:
    """The memory-intensive nodes that TensorFlow keeps: the op, and bytes of operands and results."""
    from tf_stitch.passes.folding import folded_nodes

    folded = folded_nodes(graph)
    for rejection in made.rejections:
        node = graph.nodes[rejection.node]
        types = [graph.type_of(value) for value in dict.fromkeys(node.inputs)] + list(node.types)
        if node.name not in folded and kind_of_op(node.op, map(_elements, types)) is Kind.MEMORY:
            yield node.op, sum((_elements(t) or 0) * t.dtype.size for t in types)


def _elements(type_: TensorType) -> int | None:
    return type_.size.coefficient if type_.shape is not None and type_.size.is_static else None
