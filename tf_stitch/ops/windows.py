"""Windows of an image [n, h, w, c], as convolutions and pooling cut them: [n, i, u, j, v, c].

    i, j    which window, one every `strides` pixels        u, v    a pixel of it, `dilations` apart

What is around the image is part of what they are cut from: what computes it stores it in the middle (`ops.padding`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_stitch.errors import Reason
from tf_stitch.ir.types import Dim
from tf_stitch.ops.padding import padded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.ir.body import BodyBuilder
    from tf_stitch.ops.opdef import Operands


_NONE = Dim(0)


def listed(x: Operands, name: str) -> list[int]:
    return [int(n) for n in x.attribute(name, ())] or [1, 1, 1, 1]


def around(b: BodyBuilder, x: Operands, value: int, sizes: Sequence[int]) -> list[tuple[Dim, Dim]]:
    """What windows of `sizes` ask for before and behind each axis of an image."""
    found = [(_NONE, _NONE)] * 4
    explicit = [int(n) for n in x.attribute("explicit_paddings", ())] or [0] * 8
    for axis in (1, 2):
        match str(x.attribute("padding", "VALID")):
            case "SAME":
                extent = b.shape(value)[axis]
                length = _same_length(b, x, extent, axis, sizes)
                before = b.derived((*length, _minus(extent)), 2)
                found[axis] = before, b.derived((*length, _minus(extent), _minus(before)))
            case "EXPLICIT":
                found[axis] = Dim(explicit[2 * axis]), Dim(explicit[2 * axis + 1])
            case _:
                pass
    return found


def windows(b: BodyBuilder, x: Operands, value: int, sizes: Sequence[int], fill: int | None = None) -> int:
    """The windows of an image. sizes: their height and width. fill: what is around it, a scalar; zero if not given.

    Raises:
      Unsupported: for an image that is smaller than a window, or for windows that leave some pixels out, or not,
        depending on an unknown extent.
    """
    strides, dilations = listed(x, "strides"), listed(x, "dilations")
    lengths: dict[int, Dim] = {}
    if x.attribute("padding") == "SAME":
        lengths = {axis: b.derived(_same_length(b, x, b.shape(value)[axis], axis, sizes)) for axis in (1, 2)}
    found = padded(b, value, around(b, x, value, sizes), fill, lengths)
    for axis in (2, 1):  # the later one first: axes in front stay where they are
        extent, step, reach = b.shape(found)[axis], strides[axis], _reach(x, axis, sizes)
        b.require(Dim(reach), extent, "an image and its windows", or_error=True)
        count = b.derived((extent, Dim(step - reach)), step)
        found = b.windows(found, axis, count, sizes[axis - 1], step, dilations[axis])
    return found


def _reach(x: Operands, axis: int, sizes: Sequence[int]) -> int:
    return (sizes[axis - 1] - 1) * listed(x, "dilations")[axis] + 1


def _same_length(b: BodyBuilder, x: Operands, extent: Dim, axis: int, sizes: Sequence[int]) -> tuple[Dim, ...]:
    """What an axis has to be long, as terms, for a window to begin at every `step`-th of its own elements.

    That is from the first one's beginning to the last one's end; the axis itself where that is less.
    """
    step, reach = listed(x, "strides")[axis], _reach(x, axis, sizes)
    count = b.derived((extent, Dim(step - 1)), step)
    if extent.is_static:
        return (Dim(max((count.coefficient - 1) * step + reach, extent.coefficient)),)
    if reach == 1:
        return (extent,)
    if reach < step:
        raise x.unsupported(f"SAME along {extent}, with windows that leave elements out", Reason.UNKNOWN_DIM)
    return Dim(step) * count, Dim(reach - step)


def _minus(dim: Dim) -> Dim:
    return Dim(-dim.coefficient, dim.symbols)
