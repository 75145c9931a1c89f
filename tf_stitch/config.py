"""Config: every switch of the compiler, as data. Passed explicitly; nothing reads a global."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from tf_stitch.errors import UsageError


@dataclass(frozen=True)
class Config:
    """How to stitch.

    Eight switches each take one idea away, to see what it is worth; by default all are on.

    adaptive_mapping: loop nests follow their shape: long rows are split over threads, short ones packed.
    dominant_merging: reductions and outputs that run over the same elements share a loop nest.
    regional_scheme: what is reduced over a row is kept for those that need it along the row; off, a cluster ends there.
    global_scheme: values are kept in scratch between the loop nests of a kernel; off, a cluster ends there.
    remote_stitching: clusters that have no path between them become one kernel.
    variable_forwarding: what is read of a variable after it was assigned is what was assigned, and what is added to one
      is added by the kernel that computes it: `passes/variable_reads`.
    invariant_motion: what no turn of a loop changes enters it once: `passes/loop_invariants`.
    product_stitching: products of small matrices are computed by the kernel that they stand in, on CPUs.

    max_cluster_size: TensorFlow nodes in one cluster, at most.
    min_cluster_size: nodes that do work (constants and reshapes aside) below which a cluster is TOO_SMALL.
    exclude: names of TensorFlow ops, or of nodes, that are never stitched.
    target: "cpu", or GPUs: "cuda:sm_80,sm_90", or "cuda" for those of this machine. Nodes that are placed on the other
      kind of device are left alone.
    cpu_baseline: "native" for this CPU, or x86-64-v2, x86-64-v3, x86-64-v4 for a model that travels.
    compiler_timeout: seconds for one run of the compiler.
    never_slower: race each kernel against the nodes that it replaces, on this machine, and leave those that lose.
    """

    adaptive_mapping: bool = True
    dominant_merging: bool = True
    regional_scheme: bool = True
    global_scheme: bool = True
    remote_stitching: bool = True
    variable_forwarding: bool = True
    invariant_motion: bool = True
    product_stitching: bool = True
    max_cluster_size: int = 1200
    min_cluster_size: int = 2
    exclude: frozenset[str] = frozenset()
    target: str = "cpu"
    cpu_baseline: str = "native"
    compiler_timeout: float = 60.0
    never_slower: bool = False

    def without(self, names: Iterable[str]) -> Config:
        """This config with the switches of these names off.

        Raises:
          UsageError: for a name that is no switch.
        """
        names = list(names)
        for name in names:
            if name not in ABLATIONS:
                raise UsageError(f"'{name}' is not a switch that can be taken away; those are {', '.join(ABLATIONS)}")
        return replace(self, **dict.fromkeys(names, False))  # pyright: ignore[reportArgumentType]

    def changed(self) -> dict[str, object]:
        """What differs from the default: by name, sets as sorted lists."""
        default, found = Config(), dict[str, object]()
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(default, field.name):
                found[field.name] = sorted(value) if isinstance(value, frozenset) else value
        return found


TUNE_SECONDS = 30.0  # for all races of one conversion, or of one process

ABLATIONS = tuple(field.name for field in fields(Config) if field.default is True)


def is_for_gpus(target: str) -> bool:
    """Whether a `Config.target` is one of GPUs."""
    return target.partition(":")[0] == "cuda"


def default_config() -> Config:
    """The config where none is given: TF_STITCH_ABLATE is a list of switches to turn off, comma-separated.

    Raises:
      UsageError: for a name that is no switch.
    """
    names = os.environ.get("TF_STITCH_ABLATE", "")
    return Config().without(name.strip() for name in names.split(",") if name.strip())


def strict() -> bool:
    """TF_STITCH_STRICT=1: raise where we would fall back. Read at each use, so that a test can flip it."""
    return os.environ.get("TF_STITCH_STRICT", "0") == "1"


def enabled() -> bool:
    """TF_STITCH=0 turns the whole of tf_stitch off."""
    return os.environ.get("TF_STITCH", "1") != "0"


def verifying() -> bool:
    """TF_STITCH_VERIFY=1: check the invariants of every plan and kernel. For tests; ten milliseconds a cluster."""
    return os.environ.get("TF_STITCH_VERIFY", "0") == "1"
