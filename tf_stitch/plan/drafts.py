"""A group of a plan while it grows."""

from __future__ import annotations

from dataclasses import dataclass, field

from tf_stitch.ir.types import Dim
from tf_stitch.plan.indexing import Axis, IndexMap


@dataclass
class Draft:
    """A group while it grows. `reductions` and `stored` are its anchors, `proposals` the maps they were given.

    spaces: those of its anchors. sizes: of anchors of other spaces that it may take in.
    """

    outer: list[Axis]
    inner: list[Axis]
    dominant: int
    reductions: list[int] = field(default_factory=list[int])
    stored: list[int] = field(default_factory=list[int])
    proposals: dict[int, IndexMap] = field(default_factory=dict[int, IndexMap])
    maps: dict[int, list[IndexMap]] = field(default_factory=dict[int, list[IndexMap]])
    loaded: set[int] = field(default_factory=set[int])
    spaces: set[int] = field(default_factory=set[int])
    sizes: frozenset[Dim] = frozenset()

    @property
    def extents(self) -> dict[int, Dim]:
        return {axis.identity: axis.extent for axis in self.outer + self.inner}

    def copy(self) -> Draft:
        return Draft(
            list(self.outer), list(self.inner), self.dominant, list(self.reductions), list(self.stored),
            dict(self.proposals), dict(self.maps), set(self.loaded), set(self.spaces), self.sizes,
        )  # fmt: skip
