"""The steps of `bench ablation`, as switches of the Config."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ablation:
    """A step of the ablation: the switches of `tf_stitch.Config` that are off in it."""

    name: str
    meaning: str
    off: tuple[str, ...]


_ACROSS = ("regional_scheme", "global_scheme", "remote_stitching")
ABLATIONS = (
    Ablation("fusion", "fusion that ends behind a reduction", ("adaptive_mapping", "dominant_merging", *_ACROSS)),
    Ablation("mapping", "+ loops that follow the shape", ("dominant_merging", *_ACROSS)),
    Ablation("stitching", "+ stitching, a nest for each dominant", ("dominant_merging",)),
    Ablation("full", "+ dominants that share a nest", ()),
)
