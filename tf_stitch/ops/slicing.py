"""StridedSlice's attributes, read: which axis each entry of its spec means, and what it selects there.

    x[1:, ..., tf.newaxis, 0]      ->      Span(0), Whole(1), New, Index(2)       for x of rank 3

`entries_of` follows BuildDenseSpec of core/util/strided_slice_op.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tf_stitch.errors import Reason, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class New:
    """A new axis of extent 1."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All of the operand's next axis."""


@dataclass(frozen=True, slots=True)
class Index:
    """One element of the operand's next axis, which vanishes; spec entry `position` says which."""

    position: int


@dataclass(frozen=True, slots=True)
class Span:
    """A range of the operand's next axis; an end that is masked is open."""

    position: int
    begin_masked: bool
    end_masked: bool


Entry = New | Whole | Index | Span


def entries_of(rank: int, count: int, attributes: Mapping[str, Any]) -> list[Entry]:
    """What each of the `count` spec entries means, in order; together they use up all `rank` axes.

    Raises:
      Unsupported: for a spec that TensorFlow refuses.
    """

    def bit(name: str, position: int) -> bool:
        return bool(int(attributes.get(name, 0)) >> position & 1)

    ellipses = [p for p in range(count) if bit("ellipsis_mask", p)]
    if len(ellipses) > 1:
        raise Unsupported(Reason.UNSUPPORTED_OP, "StridedSlice: more than one ellipsis")
    indexing = sum(not bit("ellipsis_mask", p) and not bit("new_axis_mask", p) for p in range(count))
    if indexing > rank:
        raise Unsupported(Reason.UNSUPPORTED_OP, f"StridedSlice: {indexing} indices into a tensor of rank {rank}")
    entries: list[Entry] = []
    for position in range(count):
        if bit("ellipsis_mask", position):
            entries += [Whole()] * (rank - indexing)
        elif bit("new_axis_mask", position):
            entries.append(New())
        elif bit("shrink_axis_mask", position):
            entries.append(Index(position))
        else:
            entries.append(Span(position, bit("begin_mask", position), bit("end_mask", position)))
    return entries if ellipses else entries + [Whole()] * (rank - indexing)


def span_of(begin: int | None, end: int | None, step: int, extent: int) -> tuple[int, int]:
    """The first element and the number of elements of a span along an axis of known extent; None is open."""
    indices = range(extent)[slice(begin, end, step)]
    return (indices.start if indices else 0), len(indices)
