"""What is read out of a TensorList was put into it: what goes in tells what comes out.

    loop     Enter ─► Merge ─► Switch ─► PushBack(·, x) ─► NextIteration ─► Merge
                                  └► Exit ─┐
    its gradient's          Enter ◄────────┘ ─► Merge ─► Switch ─► PopBack ─► y, which has the shape of x

A loop keeps what its gradient needs in lists, and TensorFlow's inference forgets at the border of a loop what a list
holds. So all that can be in a list is looked for here, from a reader back to where the list was made. Where a way ends
at anything else, such as an argument, nothing is said.

Only dims that are numbers are known: a symbol may stand for another number in each turn of a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch.ir.graph import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tf_stitch.frontend.typing_pass import Declared
    from tf_stitch.ir.graph import Node
    from tf_stitch.ir.types import Dim, TensorType

READERS = {"TensorListPopBack": 1, "TensorListGetItem": 0, "TensorListStack": 0}
"""Op → which of its outputs is an element; TensorListStack's is all of them."""
_PASSING = frozenset({"Enter", "Exit", "Identity", "NextIteration", "Switch"})


@dataclass(frozen=True)
class Contents:
    """All that may be in a list: `elements`, and the rows of `stacks`. filled: nothing else is, such as zeros."""

    elements: frozenset[Value]
    stacks: frozenset[Value]
    filled: bool


@dataclass(frozen=True)
class Element:
    """What is known of a value that is read out of a list. extents: the numbers that it holds."""

    shape: Declared
    extents: tuple[Dim, ...] | None


def contents_of_lists(nodes: Mapping[str, Node]) -> dict[Value, Contents]:
    """For each value that is read out of a list what may be in that list, where all of it is known."""
    found: dict[Value, Contents] = {}
    for name, node in nodes.items():
        if node.op in READERS and node.inputs:
            contents = _contents(node.inputs[0], nodes)
            if contents is not None:
                found[Value(name, READERS[node.op])] = contents
    return found


def _contents(handle: Value, nodes: Mapping[str, Node]) -> Contents | None:
    elements: set[Value] = set()
    stacks: set[Value] = set()
    filled = True
    seen: set[Value] = set()
    pending = [handle]
    while pending:
        value = pending.pop()
        node = nodes.get(value.node)
        if value in seen:
            continue
        seen.add(value)
        match node.op if node is not None else "", node.inputs if node is not None else ():
            case "EmptyTensorList", _:
                pass
            case "TensorListReserve", _:
                filled = False
            case "TensorListFromTensor", (tensor, *_):
                stacks.add(tensor)
            case "TensorListPushBack", (before, item):
                elements.add(item)
                pending.append(before)
            case "TensorListSetItem", (before, _, item):
                elements.add(item)
                pending.append(before)
            case "TensorListPopBack", (before, *_) if value.index == 0:
                pending.append(before)
            case "Merge", inputs:
                pending += inputs
            case op, (before, *_) if op in _PASSING:
                pending.append(before)
            case _:
                return None
    return Contents(frozenset(elements), frozenset(stacks), filled)


def element(
    contents: Contents,
    type_of: Callable[[Value], TensorType],
    extents_of: Callable[[Value], tuple[Dim, ...] | None],
) -> Element | None:
    """What all that may be in the list has in common."""
    types = [type_of(value) for value in contents.elements]
    shapes = [t.shape for t in types]
    shapes += [None if t.shape is None else t.shape[1:] for t in map(type_of, contents.stacks)]
    known = [s for s in shapes if s is not None]
    if not known or len(known) < len(shapes) or len({len(s) for s in known}) != 1:
        return None
    axes = [set(axis) for axis in zip(*known, strict=True)]
    shape = tuple(axis.pop().coefficient if len(axis) == 1 and _static(axis) else None for axis in axes)
    held = {extents_of(value) for value in contents.elements}
    extents = held.pop() if len(held) == 1 and contents.filled and not contents.stacks else None
    return Element(shape, extents if extents is not None and _static(extents) else None)


def _static(dims: Collection[Dim]) -> bool:
    return all(d.is_static for d in dims)


def declared_with(declared: Declared, element: Declared) -> Declared:
    """A declared shape, with the numbers that are known of an element in place of what isn't declared."""
    if declared is None or element is None or len(declared) != len(element):
        return element if declared is None else declared
    return tuple(e if d is None or (d < 0 and e is not None) else d for d, e in zip(declared, element, strict=True))
