"""Cluster, Rejection and Clustering: what stage 3 decides, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tf_stitch.errors import Reason
    from tf_stitch.ir.body import Body
    from tf_stitch.ir.graph import Value
    from tf_stitch.plan.plan import StitchPlan


@dataclass(frozen=True)
class Cluster:
    """TensorFlow nodes that become one StitchOp.

    name: a C identifier, made of the names of its nodes; unique within the graph.
    nodes: the nodes that it replaces, in topological order.
    constants: Const nodes that its nodes read statically or as scalars; the fallback gets copies of them.
    inputs: values from outside, in the order of the StitchOp's inputs; `body.inputs` runs parallel to it.
    outputs: values that others read, in the order of the StitchOp's outputs and of `body.outputs`.
    controls: nodes outside that one of its nodes waits on.
    plan: of its body.
    """

    name: str
    nodes: tuple[str, ...]
    constants: tuple[str, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    controls: tuple[str, ...]
    plan: StitchPlan

    @property
    def body(self) -> Body:
        return self.plan.body


@dataclass(frozen=True)
class Rejection:
    """Why a node was not stitched."""

    node: str
    op: str
    reason: Reason
    detail: str = ""


@dataclass(frozen=True)
class Clustering:
    """Every node of the graph that could be stitched is in one cluster or has one rejection."""

    clusters: tuple[Cluster, ...]
    rejections: tuple[Rejection, ...]
