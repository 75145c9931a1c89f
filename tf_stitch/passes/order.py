"""An order of a graph's nodes that does not depend on their names, nor on how unrelated ones are listed.

    down: a digest of what a node computes        op, attributes, types, the digests of its operands
    up:   a digest of who reads it, and how       its own, and those of its readers with the operand that it is

The order is that of a walk from each sink, in order of digests, back to all that it reads. So it is topological, and
what one result needs stands together: where a cluster has to end because of its size, it ends between results.
Nodes of equal digests keep the order that they were listed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import TensorType
from tf_stitch.passes.contraction import BACK_EDGES


def canonical_positions(graph: Graph) -> dict[str, int]:
    """The place of each node in the order; back edges of loops aside, it is a topological one."""
    down = _down(graph)
    up = _up(graph, down)
    sinks = sorted((name for name, users in graph.consumers.items() if not users), key=up.__getitem__)
    place: dict[str, int] = {}
    started: set[str] = set()
    for root in (*sinks, *graph.nodes):  # the latter for what leads nowhere but around a loop
        stack = [(root, False)]
        while stack:
            name, ready = stack.pop()
            if ready:
                place[name] = len(place)
            elif name not in started:
                started.add(name)
                stack.append((name, True))
                node = graph.nodes[name]
                controls = sorted(node.controls, key=lambda c: up.get(c, b""), reverse=True)
                before = [*controls, *(v.node for v in reversed(node.inputs))]
                stack.extend(
                    (b, False)
                    for b in before
                    if b not in started and b in graph.nodes and graph.nodes[b].op not in BACK_EDGES
                )
    return place


def _down(graph: Graph) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for node in graph.nodes.values():
        digest = hashlib.blake2b(_text(graph, node).encode(), digest_size=12)
        for value in node.inputs:
            digest.update(found.get(value.node, b"later") + value.index.to_bytes(2, "little"))
        for control in sorted(found.get(c, b"later") for c in node.controls):
            digest.update(b"^" + control)
        found[node.name] = digest.digest()
    return found


def _up(graph: Graph, down: Mapping[str, bytes]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    returned = {value.node for value in graph.returned} | graph.fetched
    for name in reversed(list(graph.nodes)):
        read: list[bytes] = []
        for user in graph.consumers[name]:
            node = graph.nodes[user]
            places = ",".join(f"{i} {v.index}" for i, v in enumerate(node.inputs) if v.node == name)
            read.append(found.get(user, b"later") + places.encode())
        digest = hashlib.blake2b(down[name] + (b"returned" if name in returned else b""), digest_size=12)
        for reader in sorted(read):
            digest.update(reader)
        found[name] = digest.digest()
    return found


def _text(graph: Graph, node: Node) -> str:
    """A node without names: not its own, nor of symbols."""
    constant = graph.constants.get(Value(node.name))
    parts = [node.op, node.device, str(len(node.context)), *map(type_text, node.types), *attribute_texts(node)]
    return "|".join(parts) + (text_of(constant) if constant is not None else "")


def type_text(type_: TensorType) -> str:
    """A type, with its symbols counted rather than named."""
    if type_.shape is None:
        return type_.dtype.value
    return f"{type_.dtype.value} {[(d.coefficient, len(d.symbols)) for d in type_.shape]}"


def attribute_texts(node: Node) -> list[str]:
    """The attributes that say what a node computes: one that begins with an underscore is for TensorFlow's runtime."""
    return [f"{name}={text_of(value)}" for name, value in sorted(node.attributes.items()) if not name.startswith("_")]


def text_of(value: Any) -> str:
    """Equal for equal values, to the bit."""
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, np.dtype[Any]]", value)
        return f"{array.dtype}{array.shape}{array.tobytes().hex()}"
    if isinstance(value, tuple):
        return f"({','.join(text_of(v) for v in value)})"  # pyright: ignore[reportUnknownVariableType]
    return repr(value)
