"""Nodes as they have become on the way, where they are not those that came in (`Graph.revised`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_stitch.frontend.attributes import enum_of
from tf_stitch.frontend.protos import NodeDef
from tf_stitch.ir.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tf_stitch.frontend.protos import Proto
    from tf_stitch.frontend.spelling import Spelling
    from tf_stitch.ir.graph import Graph, Node


def with_added(protos: Iterable[Proto], graph: Graph) -> list[Proto]:
    """The nodes, and those that have come to them since, which have no inputs yet."""
    found = list(protos)
    added = (graph.revised & graph.nodes.keys()) - {proto.name for proto in found}
    return found + [_new(graph.nodes[name]) for name in sorted(added)]


def revised(protos: Iterable[Proto], graph: Graph, spelling: Spelling) -> list[Proto]:
    """All nodes as they are in `graph`; the others are those that came in. spelling: of `with_added`."""
    changed = [_revised(p, graph.nodes.get(p.name), spelling) if p.name in graph.revised else p for p in protos]
    return [proto for proto in changed if proto is not None]


def _revised(proto: Proto, node: Node | None, spelling: Spelling) -> Proto | None:
    if node is None:
        return None
    copy = NodeDef()
    copy.CopyFrom(proto if proto.op == node.op else _new(node))
    if node.attributes.get("is_constant"):
        copy.attr["is_constant"].b = True
    if "_class" in copy.attr:
        copy.attr["_class"].list.s[:] = [str(place).encode() for place in node.attributes["_class"]]
        if not node.attributes["_class"]:
            del copy.attr["_class"]
    copy.input[:] = [*map(spelling.write, node.inputs), *(f"^{name}" for name in node.controls)]
    return copy


def _new(node: Node) -> Proto:
    proto = NodeDef(name=node.name, op=node.op, device=node.device)
    for name, value in node.attributes.items():
        _set(proto.attr[name], value)
    return proto


def _set(attr: Proto, value: Any) -> None:
    match value:
        case DType():
            attr.type = enum_of(value)
        case bool():
            attr.b = value
        case _:
            raise TypeError(f"an attribute of the kind of {value!r} is in no node that is added")
