"""Config: every switch of the compiler, as data. Passed explicitly; nothing reads a global."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """How to stitch.

    max_cluster_size: TensorFlow nodes in one cluster, at most.
    remote_stitching: join clusters that have no path between them.
    min_cluster_size: nodes that do work (constants and reshapes aside) below which a cluster is TOO_SMALL.
    exclude: names of TensorFlow ops, or of nodes, that are never stitched.
    cpu_baseline: "native" for this CPU, or x86-64-v2, x86-64-v3, x86-64-v4 for a model that travels.
    compiler_timeout: seconds for one run of the compiler.
    """

    max_cluster_size: int = 400
    remote_stitching: bool = True
    min_cluster_size: int = 2
    exclude: frozenset[str] = frozenset()
    cpu_baseline: str = "native"
    compiler_timeout: float = 60.0


def strict() -> bool:
    """TF_STITCH_STRICT=1: raise where we would fall back. Read at each use, so that a test can flip it."""
    return os.environ.get("TF_STITCH_STRICT", "0") == "1"


def enabled() -> bool:
    """TF_STITCH=0 turns the whole of tf_stitch off."""
    return os.environ.get("TF_STITCH", "1") != "0"


def verifying() -> bool:
    """TF_STITCH_VERIFY=1: check the invariants of every plan and kernel. For tests; ten milliseconds a cluster."""
    return os.environ.get("TF_STITCH_VERIFY", "0") == "1"
