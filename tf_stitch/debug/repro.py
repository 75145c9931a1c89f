"""Repro: a cluster as a script that builds its kernel and runs it against TensorFlow's own ops.

The script spells the nodes out, so that it can be read, cut down by hand and sent with a bug report:

    def cluster(x, gamma):
        mean = op("Mean", x, constant("int32", [-1]), keep_dims=True)
        sub = op("Sub", x, mean)
        ...
"""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.ir.graph import Value
from tf_stitch.ir.symbols import completed, sources_of
from tf_stitch.ir.types import Dim, DType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tf_stitch.ir.graph import Graph
    from tf_stitch.passes.clustering import Cluster

_TENSORFLOW = {
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.F32: "float32",
    DType.F64: "float64",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.BOOL: "bool",
}
_SIZE = 5  # of unknown dims: no multiple of a vector
_SPELLED_OUT = 64  # elements of a constant; more are given as bytes

_SCRIPT = '''\
"""Cluster {cluster} of {graph}: its kernel against TensorFlow's own ops, on random inputs.

    python repro.py [--seed N]        exit status 4 where they differ
"""

from pathlib import Path

from tf_stitch.frontend.replay import constant, extents, main, op, tensor

SIZES = {sizes}  # of the dims that are not known; change them at will
INPUTS = {{
{inputs}
}}


def cluster({parameters}):
{nodes}
    return [{results}]


if __name__ == "__main__":
    main(cluster, INPUTS, SIZES, source=Path(__file__).with_name("06_source.cpp"), name={name!r}, cpu={cpu!r})
'''


def repro_script(graph: Graph, cluster: Cluster, name: str, cpu: str) -> str:
    """The script; `name` is the kernel's, `cpu` the instruction set that its source was made for."""
    words = _Words()
    parameters = {value: words.fresh(value.node) for value in cluster.inputs}
    symbols = _body_symbols(graph, cluster)
    inputs = [
        f"    {parameter!r}: {_input(graph, cluster, number, value, symbols)},  # {_comment(str(value))}"
        for number, (value, parameter) in enumerate(parameters.items())
    ]
    spelled = _Nodes(graph, cluster, parameters, words)
    return _SCRIPT.format(
        cluster=_comment(cluster.name),
        graph=_comment(graph.name or "a main graph"),
        sizes=_sizes(graph, cluster, symbols),
        inputs="\n".join(inputs),
        parameters=", ".join(parameters.values()),
        nodes="\n".join(f"    {line}" for line in spelled.lines()),
        results=", ".join(spelled.operand(v) for v in cluster.outputs),
        name=name,
        cpu=cpu,
    )


class _Words:
    """Python identifiers that recall node names, each handed out once."""

    def __init__(self) -> None:
        self._taken = {"constant", "extents", "main", "op", "tensor", "cluster", "Path", "SIZES", "INPUTS"}

    def fresh(self, node: str) -> str:
        stem = re.sub(r"\W+", "_", node.rsplit("/", 1)[-1], flags=re.ASCII).lower().strip("_") or "v"
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"v_{stem}"
        word, number = stem, 1
        while word in self._taken:
            number += 1
            word = f"{stem}_{number}"
        self._taken.add(word)
        return word


class _Nodes:
    """The cluster's nodes as assignments."""

    def __init__(self, graph: Graph, cluster: Cluster, parameters: Mapping[Value, str], words: _Words) -> None:
        self.graph = graph
        self.cluster = cluster
        self.parameters = parameters
        self.names = {node: words.fresh(node) for node in cluster.nodes}

    def lines(self) -> Iterator[str]:
        for name in self.cluster.nodes:
            node = self.graph.nodes[name]
            arguments = [repr(node.op), *map(self.operand, node.inputs), *_attributes(node.attributes)]
            yield f"{self.names[name]} = op({', '.join(arguments)})"

    def operand(self, value: Value) -> str:
        if value in self.parameters:
            return self.parameters[value]
        if value.node in self.names:
            several = len(self.graph.nodes[value.node].types) > 1
            return f"{self.names[value.node]}[{value.index}]" if several else self.names[value.node]
        return _constant(self.graph.constants[value], self.graph.type_of(value).dtype)


def _constant(value: np.ndarray[Any, Any], dtype: DType) -> str:
    if value.size > _SPELLED_OUT:
        return f"constant({_TENSORFLOW[dtype]!r}, {list(value.shape)}, {value.tobytes().hex()!r})"
    return f"constant({_TENSORFLOW[dtype]!r}, {_spelled(value.astype(object).tolist(), dtype)})"


def _spelled(value: Any, dtype: DType) -> str:
    """Nested lists of numbers; text where Python has no literal, floats as short as is exact."""
    if isinstance(value, list):
        return f"[{', '.join(_spelled(v, dtype) for v in value)}]"
    if not dtype.is_float:
        return repr(value)
    number = float(value)
    if not np.isfinite(number):
        return repr(str(number))
    return repr(number) if dtype is DType.F64 else str(np.float32(number))


def _attributes(attributes: Mapping[str, Any]) -> Iterator[str]:
    for name, value in sorted(attributes.items()):
        if not name.startswith("_") and name.isidentifier() and not keyword.iskeyword(name):
            spelled = _attribute(value)
            if spelled is not None:
                yield f"{name}={spelled}"


def _attribute(value: Any) -> str | None:
    match value:
        case DType():
            return repr(_TENSORFLOW[value]) if value in _TENSORFLOW else None
        case bool() | int() | float() | str() | bytes():
            return repr(value)
        case tuple():
            parts = [_attribute(v) for v in value]
            return None if None in parts else f"[{', '.join(map(str, parts))}]"
        case _:
            return None


# ---- Inputs -----------------------------------------------------------------------------------------------


def _body_symbols(graph: Graph, cluster: Cluster) -> dict[str, Dim]:
    """What the graph's symbols are called in the body."""
    found: dict[str, Dim] = {}
    for value, type_ in zip(cluster.inputs, cluster.body.inputs, strict=True):
        for mine, theirs in zip(graph.type_of(value).shape or (), type_.dims if type_ else (), strict=False):
            if mine.coefficient == 1 and len(mine.symbols) == 1:
                found[mine.symbols[0]] = theirs
    return found


def _dim(dim: Dim, symbols: Mapping[str, Dim]) -> Dim:
    result = Dim(dim.coefficient)
    for symbol in dim.symbols:
        result = result * symbols.get(symbol, Dim.symbol(symbol))
    return result


def _input(graph: Graph, cluster: Cluster, number: int, value: Value, symbols: Mapping[str, Dim]) -> str:
    type_ = cluster.body.inputs[number]
    if type_ is not None:
        ends = [w.below for w in cluster.body.indices if w.input == number]
        return _call("tensor", type_.dtype, type_.dims, min(ends, key=lambda d: (len(d.symbols), d), default=None))
    mine = graph.type_of(value)
    if value in graph.constants:
        return _constant(graph.constants[value], mine.dtype)
    if value in graph.extents:
        return _call("extents", mine.dtype, tuple(_dim(d, symbols) for d in graph.extents[value]))
    return _call("tensor", mine.dtype, tuple(_dim(d, symbols) for d in mine.shape or ()))


def _call(function: str, dtype: DType, dims: tuple[Dim, ...], below: Dim | None = None) -> str:
    """below: the end of indices."""
    spelled = [_number(d) for d in dims]
    if below is not None:
        spelled.append(f"below={_number(below)}")
    return f"{function}({', '.join([repr(_TENSORFLOW.get(dtype, 'float32')), *spelled])})"


def _number(dim: Dim) -> str:
    return str(dim) if dim.is_static else repr(str(dim))


def _sizes(graph: Graph, cluster: Cluster, symbols: Mapping[str, Dim]) -> dict[str, int]:
    """A size for each symbol, such that what the body requires of them holds."""
    dims = [d for t in cluster.body.inputs if t for d in t.dims]
    for value in cluster.inputs:
        dims += [_dim(d, symbols) for d in (*graph.extents.get(value, ()), *(graph.type_of(value).shape or ()))]
    dims += [d for pair in cluster.body.requires for d in pair]
    free = dict.fromkeys(sorted(sources_of(dims, cluster.body.derivations)), _SIZE)
    for _ in range(20):
        sizes = completed(free, cluster.body.derivations)
        broken = [large for small, large in cluster.body.requires if small.evaluate(sizes) > large.evaluate(sizes)]
        for symbol in sources_of(broken, cluster.body.derivations):
            free[symbol] = 2 * free[symbol] + 1
    return completed(free, cluster.body.derivations)


def _comment(text: str) -> str:
    """Names are untrusted: nothing that could end a comment or a docstring."""
    return re.sub(r"[^\w./:\-]", "_", text)
