"""Sizes of unknown dims, from the inputs of a model down through the functions that it calls.

    main graph            x: f32[a, 64]        given: x is 32 × 64, so a = 32
      serve(x)            x: f32[b, 64]        called with f32[a, 64], so b = 32
        inner(y, 3)       y: f32[c, d, 64]     called with something of rank 3 that nobody knows: left open

Symbols have a meaning within one graph only, so each graph gets a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from tf_stitch.ir.graph import Graph, Node, Value
    from tf_stitch.ir.types import Dim, Shape

Dims = dict[str, int]
"""Numbers for some of the symbols of one graph."""

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_LOOPS = frozenset({"While", "StatelessWhile"})


def propagated(graphs: Mapping[str, Graph], given: Mapping[Value, tuple[int, ...]]) -> dict[str, Dims]:
    """The numbers for each graph.

    graphs: by name, the main graph's being "". given: shapes of values of the main graph.
    """
    found: dict[str, Dims] = {name: {} for name in graphs}
    main = graphs.get("")
    if main is None:
        return found
    for value, shape in given.items():
        for dim, size in zip(main.type_of(value).shape or (), shape, strict=False):
            _bind(found[""], dim, size)
    queue = [""]
    while queue:
        caller = queue.pop()
        graph, dims = graphs[caller], found[caller]
        for node in graph.nodes.values():
            for callee, arguments in _called(node, graphs):
                parameters = [n for n in graphs[callee].nodes.values() if n.op == "_Arg"]
                learnt = False
                for parameter, argument in zip(parameters, arguments, strict=False):
                    learnt |= _learn(found[callee], parameter.types[0].shape, graph.type_of(argument).shape, dims)
                if learnt:
                    queue.append(callee)
    return found


def _called(node: Node, graphs: Mapping[str, Graph]) -> Iterator[tuple[str, tuple[Value, ...]]]:
    """The functions that a node calls, and with which of its inputs."""
    if node.op in graphs and node.op:
        yield node.op, node.inputs
    if node.op not in _CALLS | _BRANCHES | _LOOPS:
        return
    arguments = node.inputs[1:] if node.op in _BRANCHES else node.inputs
    for attribute in node.attributes.values():
        names = cast("tuple[object, ...]", attribute) if isinstance(attribute, tuple) else (attribute,)
        for name in names:
            if isinstance(name, str) and name and name in graphs:
                yield name, arguments


def _learn(dims: Dims, parameter: Shape | None, argument: Shape | None, outer: Mapping[str, int]) -> bool:
    """Whether anything was learnt of the callee's dims."""
    learnt = False
    for mine, theirs in zip(parameter or (), argument or (), strict=False):
        known = theirs.given(outer)
        if known.is_static:
            learnt |= _bind(dims, mine, known.coefficient)
    return learnt


def _bind(dims: Dims, dim: Dim, size: int) -> bool:
    """Whether `dim` being `size` tells a symbol that was open. The first call that tells one has the word."""
    left = dim.given(dims)
    if len(left.symbols) != 1 or not left.coefficient or size % left.coefficient:
        return False
    dims[left.symbols[0]] = size // left.coefficient
    return True
