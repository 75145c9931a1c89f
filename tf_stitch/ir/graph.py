"""Graph: a TensorFlow graph or function body with typed values, before anything is decided about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tf_stitch.ir.types import Dim, TensorType

COLOCATED = "loc:@"  # before a node's name, in the attribute _class


@dataclass(frozen=True, slots=True, order=True)
class Value:
    """Output `index` (flat, counted over all output args) of the node called `node`."""

    node: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.node}:{self.index}"


@dataclass(frozen=True, slots=True)
class Node:
    """One TensorFlow node.

    attributes: plain Python values (int, float, bool, str, DType, np.ndarray, tuples of these).
    context: the frame and the untaken-branch condition it runs under; two nodes of different
      context never run the same number of times.
    stateful: whether its op reads or writes state, or is unknown.
    """

    name: str
    op: str
    inputs: tuple[Value, ...]
    types: tuple[TensorType, ...]
    controls: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    device: str = ""
    context: frozenset[str] = frozenset()
    stateful: bool = False

    @property
    def colocated(self) -> tuple[str, ...]:
        """The nodes that it has to be placed with."""
        return tuple(str(place).removeprefix(COLOCATED) for place in self.attributes.get("_class", ()))


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order (back edges of while loops aside), keyed by name.

    name: of the function, or "" for a main graph.
    fetched: names of nodes that must survive any rewrite under their own name.
    returned: values that leave the graph through a return, which need not keep their name.
    constants: the value of every small constant.
    extents: for small integer tensors that are computed from shapes: the dims they hold.
    onednn: whether TensorFlow runs it with oneDNN.
    revised: names of the nodes that were changed, added or left out since the graph came in.
    """

    name: str
    nodes: Mapping[str, Node]
    fetched: frozenset[str] = frozenset()
    returned: frozenset[Value] = frozenset()
    constants: Mapping[Value, np.ndarray[Any, Any]] = field(default_factory=dict[Value, Any])
    extents: Mapping[Value, tuple[Dim, ...]] = field(default_factory=dict[Value, Any])
    onednn: bool = False
    revised: frozenset[str] = frozenset()

    def type_of(self, value: Value) -> TensorType:
        return self.nodes[value.node].types[value.index]

    def behind_identities(self, value: Value) -> Value:
        """The value that it is another name of."""
        while self.nodes[value.node].op == "Identity":
            value = self.nodes[value.node].inputs[0]
        return value

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """For each node, the nodes that read one of its outputs or wait on it (control edges)."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for node in self.nodes.values():
            for producer in dict.fromkeys([v.node for v in node.inputs] + list(node.controls)):
                if producer in found:
                    found[producer].append(node.name)
        return {name: tuple(users) for name, users in found.items()}

    @cached_property
    def members(self) -> Mapping[str, frozenset[str]]:
        """For each word of a context, the nodes that run under it."""
        found: dict[str, set[str]] = {}
        for node in self.nodes.values():
            for word in node.context:
                found.setdefault(word, set()).add(node.name)
        return {word: frozenset(names) for word, names in found.items()}
