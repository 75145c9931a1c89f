"""The two spellings of an input: `node:i` in a GraphDef, `node:arg:i` in a FunctionDef. We read and write
both.

what it is              GraphDef      FunctionDef     here
output 0 of a node      a             a:z:0           Value("a", 0)
its second output       a:1           a:y:0           Value("a", 1)     (counted flat over all output args)
an argument             –             x               Value("x", 0)
an order, not a value   ^a            ^a              the name "a"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tf_stitch.frontend.signatures import signature_of
from tf_stitch.ir.graph import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tf_stitch.frontend.protos import Proto


class Spelling(Protocol):
    """Reads and writes the text of a data input."""

    def read(self, text: str) -> Value: ...

    def write(self, value: Value) -> str: ...


class GraphSpelling:
    """`node` and `node:i`."""

    def read(self, text: str) -> Value:
        node, _, index = text.partition(":")
        return Value(node, int(index) if index else 0)

    def write(self, value: Value) -> str:
        return value.node if value.index == 0 else f"{value.node}:{value.index}"


class FunctionSpelling:
    """`node:arg:i`, and `arg` for the function's own arguments."""

    def __init__(self, nodes: Iterable[Proto], arguments: Iterable[str], functions: Mapping[str, Proto]) -> None:
        self._nodes = {n.name: n for n in nodes}
        self._arguments = frozenset(arguments)
        self._functions = functions
        self._starts: dict[str, dict[str, int]] = {}

    def read(self, text: str) -> Value:
        node, _, rest = text.partition(":")
        if node in self._arguments:
            return Value(node, int(rest) if rest else 0)
        arg, _, index = rest.partition(":")
        return Value(node, self._start(node, arg) + (int(index) if index else 0))

    def write(self, value: Value) -> str:
        if value.node in self._arguments:
            return value.node if value.index == 0 else f"{value.node}:{value.index}"
        proto = self._nodes[value.node]
        signature = signature_of(proto.op, self._functions)
        arg, index = ("output", value.index) if signature is None else signature.spelled(value.index, proto.attr)
        return f"{value.node}:{arg}:{index}"

    def _start(self, node: str, arg: str) -> int:
        starts = self._starts.get(node)
        if starts is None:
            proto = self._nodes[node]
            signature = signature_of(proto.op, self._functions)
            starts = {} if signature is None else signature.starts(proto.attr)
            self._starts[node] = starts
        return starts.get(arg, 0)
