"""Signature: what an op's OpDef says of its outputs. Read once for each op, since it is asked for every node.

FunctionDefs name an output `node:arg:i`, output `i` of output arg `arg`; GraphDefs and we count them flat.
How many tensors an arg stands for, and of which dtype, depends on the node's attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import op_def_registry

from tf_stitch.frontend.attributes import python_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tf_stitch.frontend.protos import Proto


@dataclass(frozen=True, slots=True)
class OutputArg:
    """One output arg of an OpDef; the empty string stands for an attribute it does not have."""

    name: str
    type: int
    type_attr: str
    number_attr: str
    type_list_attr: str


@dataclass(frozen=True)
class Signature:
    """An op's outputs, and its attributes' defaults.

    stateful: as the OpDef says; an op without an OpDef is taken to be.
    defaults: attributes that a node may leave out, as protos; `python_defaults` the same as plain values.
    function_attrs: attributes that name functions.
    """

    op: str
    outputs: tuple[OutputArg, ...]
    stateful: bool
    defaults: Mapping[str, Proto]
    python_defaults: Mapping[str, Any]

    def dtypes(self, attr: Mapping[str, Proto]) -> list[int]:
        """The DataType enum of every output, flat."""
        found: list[int] = []
        for arg in self.outputs:
            found.extend(self._arg_dtypes(arg, attr))
        return found

    def starts(self, attr: Mapping[str, Proto]) -> dict[str, int]:
        """The flat index at which each output arg begins."""
        starts: dict[str, int] = {}
        flat = 0
        for arg in self.outputs:
            starts[arg.name] = flat
            flat += len(self._arg_dtypes(arg, attr))
        return starts

    def spelled(self, index: int, attr: Mapping[str, Proto]) -> tuple[str, int]:
        """The output arg that holds flat output `index`, and the index within it.

        Raises:
          IndexError: where the node has no such output.
        """
        left = index
        for arg in self.outputs:
            count = len(self._arg_dtypes(arg, attr))
            if left < count:
                return arg.name, left
            left -= count
        raise IndexError(f"a node of op {self.op} has no output {index}")

    def _arg_dtypes(self, arg: OutputArg, attr: Mapping[str, Proto]) -> list[int]:
        if arg.type_list_attr:
            return list(self._attr(arg.type_list_attr, attr).list.type)
        dtype = self._attr(arg.type_attr, attr).type if arg.type_attr else arg.type
        return [dtype] * (self._attr(arg.number_attr, attr).i if arg.number_attr else 1)

    def _attr(self, name: str, attr: Mapping[str, Proto]) -> Proto:
        # `in` first: reading a missing key of a proto map would add it
        return attr[name] if name in attr else self.defaults[name]


_CACHE: dict[str, Signature | None] = {}


def signature_of(op: str, functions: Mapping[str, Proto]) -> Signature | None:
    """The signature of a registered op, or of a function called by its name; None for an unknown op.

    functions: the FunctionDefs of the graph's library, by name.
    """
    found = _CACHE.get(op)
    if found is None:
        op_def: Any = op_def_registry.get(op)
        if op_def is not None:
            found = _CACHE[op] = _read(op_def, stateful=op_def.is_stateful)
        elif op in functions:
            found = _read(functions[op].signature, stateful=True)
    return found


def _read(op_def: Proto, *, stateful: bool) -> Signature:
    outputs = tuple(
        OutputArg(arg.name, arg.type, arg.type_attr, arg.number_attr, arg.type_list_attr) for arg in op_def.output_arg
    )
    defaults = {a.name: a.default_value for a in op_def.attr if a.HasField("default_value")}
    plain = {name: python_value(value) for name, value in defaults.items()}
    return Signature(op_def.name, outputs, stateful, defaults, plain)
