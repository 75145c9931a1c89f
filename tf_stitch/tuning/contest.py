"""Contest: what a race is about, as data: a kernel, the nodes that it replaces, and the tensors that both get.

    cluster     mean = Mean(x, -1); y = Sub(x, mean)        x: f32[?, 768]
    contest     kernel 5c0e…, nodes 91ab… (names aside), operands f32[8, 768]

Equal contests have the same outcome, wherever in a model they stand, and so they are raced once. The kernel alone
would not do: a Softmax, and Exp, Sum and RealDiv, have the same kernel and take TensorFlow different times.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tf_stitch.ir.symbols import completed, sources_of
from tf_stitch.ir.types import Dim, DType
from tf_stitch.lower.kernel import DerivedSymbol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tf_stitch.ir.graph import Graph, Value
    from tf_stitch.lower.kernel import Kernel
    from tf_stitch.passes.clustering import Cluster
    from tf_stitch.pipeline import StitchedCluster

BATCH, OTHER = 8, 64
"""What an unknown dim is taken to be, where nobody says: on the first axis, and on others."""

_ATTEMPTS = 20  # to find sizes that a kernel takes
_LARGEST = 1 << 30
"""Bytes of all operands of one contest."""


class Unraceable(Exception):
    """A cluster that cannot be run by itself. The text says why."""


@dataclass(frozen=True)
class Operand:
    """A tensor that both sides are given. content: its bytes, where they are not free. below: of indices, their end."""

    dtype: DType
    shape: tuple[int, ...]
    content: bytes | None = None
    below: int | None = None

    def array(self, random: np.random.Generator) -> np.ndarray[Any, Any]:
        """Normal numbers; indices; integers from 1 to 7, which are extents and divisors alike; or what is fixed."""
        if self.content is not None:
            return np.frombuffer(self.content, self.dtype.numpy).reshape(self.shape)
        if self.dtype is DType.BOOL:
            return random.random(self.shape) < 0.5
        if self.below is not None:
            return random.integers(0, self.below, self.shape).astype(self.dtype.numpy)
        made = random.standard_normal(self.shape) if self.dtype.is_float else random.integers(1, 8, self.shape)
        return np.asarray(made).astype(self.dtype.numpy)

    @property
    def bytes(self) -> int:
        return self.dtype.size * math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.value}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Contest:
    """kernel: its key. nodes: a hash of the nodes that it replaces, in which their names do not count."""

    kernel: str
    nodes: str
    operands: tuple[Operand, ...]

    @property
    def key(self) -> str:
        """A hash of all of it."""
        digest = hashlib.sha256(f"{self.kernel} {self.nodes}".encode())
        for operand in self.operands:
            digest.update(f"\n{operand} {(operand.content or b'').hex()}".encode())
        return digest.hexdigest()

    @property
    def sizes(self) -> str:
        """The operands in words."""
        return ", ".join(map(str, self.operands))


def contest_of(graph: Graph, made: StitchedCluster, kernel: str, dims: Mapping[str, int] | None = None) -> Contest:
    """The contest of a cluster of `graph`.

    kernel: the key of its kernel. dims: what is known of the graph's symbols, by name.

    Raises:
      Unraceable: where no operands can be made up that the kernel takes.
    """
    return Contest(kernel, nodes_hash(graph, made.cluster), _operands(graph, made.cluster, made.kernel, dims or {}))


# ---- The nodes ---------------------------------------------------------------------------------------------


def nodes_hash(graph: Graph, cluster: Cluster) -> str:
    """Equal for clusters of equal nodes that are wired alike, whatever they are called."""
    numbers = {name: number for number, name in enumerate(cluster.nodes)}
    inputs = {value: number for number, value in enumerate(cluster.inputs)}

    def spelled(value: Value) -> str:
        if value in inputs:
            return f"input {inputs[value]}"
        if value.node in numbers:
            return f"node {numbers[value.node]}:{value.index}"
        return f"constant {_plain(graph.constants.get(value))}"

    digest = hashlib.sha256()
    for name in cluster.nodes:
        node = graph.nodes[name]
        attributes = [(k, _plain(v)) for k, v in sorted(node.attributes.items()) if not k.startswith("_")]
        digest.update(f"{node.op} {[spelled(v) for v in node.inputs]} {attributes}\n".encode())
    digest.update(repr([spelled(v) for v in cluster.outputs]).encode())
    return digest.hexdigest()


def _plain(value: Any) -> str:
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, np.dtype[Any]]", value)
        return f"{array.dtype.name}{array.shape} {array.tobytes().hex()}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_plain, value))})"  # pyright: ignore[reportUnknownArgumentType]
    return repr(value)


# ---- The operands ------------------------------------------------------------------------------------------
#
#     symbols of the graph   ->   symbols of the kernel   ->   shapes of what it reads
#              └────────────────────────────────────────►   what it does not read and the nodes do: shapes, mostly
#
# The kernel's word counts: it may assume that two symbols of the graph are one.


def _operands(graph: Graph, cluster: Cluster, kernel: Kernel, dims: Mapping[str, int]) -> tuple[Operand, ...]:
    numbers = _graph_numbers(graph, cluster, dims)
    sizes = _kernel_numbers(graph, cluster, kernel, numbers, frozenset(dims))
    for value, type_ in zip(cluster.inputs, kernel.inputs, strict=True):
        for mine, theirs in zip(graph.type_of(value).shape or (), type_.dims if type_ else (), strict=False):
            if mine.coefficient == 1 and len(mine.symbols) == 1:
                numbers[mine.symbols[0]] = theirs.evaluate(sizes)
    below: dict[int, int] = {}
    for within in kernel.indices:
        end = max(1, within.below.evaluate(sizes))
        below[within.input] = min(end, below.get(within.input, end))
    found = tuple(
        _unread(graph, value, numbers)
        if type_ is None
        else Operand(type_.dtype, tuple(d.evaluate(sizes) for d in type_.dims), below=below.get(number))
        for number, (value, type_) in enumerate(zip(cluster.inputs, kernel.inputs, strict=True))
    )
    if sum(operand.bytes for operand in found) > _LARGEST:
        raise Unraceable(f"its operands take more than {_LARGEST >> 20} MiB")
    return found


def _graph_numbers(graph: Graph, cluster: Cluster, dims: Mapping[str, int]) -> dict[str, int]:
    """A number for each symbol of the inputs' shapes, and of the shapes that they hold."""
    numbers = dict(dims)
    shapes = [graph.type_of(value).shape or () for value in cluster.inputs]
    shapes += [graph.extents.get(value, ()) for value in cluster.inputs]
    placed = [(len(dim.symbols), bool(axis), dim) for shape in shapes for axis, dim in enumerate(shape)]
    for _, inner, dim in sorted(placed, key=lambda each: each[0]):  # of a product no axis tells what its factors are
        for symbol in dim.symbols:
            numbers.setdefault(symbol, OTHER if inner else BATCH)
    return numbers


def _kernel_numbers(
    graph: Graph, cluster: Cluster, kernel: Kernel, numbers: Mapping[str, int], given: frozenset[str]
) -> dict[str, int]:
    """A number for each symbol of the kernel, as its bounds ask. Symbols of the graph that are `given` stay."""
    sizes: dict[str, int] = {}
    free: set[str] = set()
    for source in kernel.symbols:
        if isinstance(source, DerivedSymbol):
            sizes[source.symbol] = source.derivation.evaluate(sizes)
            continue
        shape = graph.type_of(cluster.inputs[source.input]).shape
        divisor = max(1, source.divisor.evaluate(sizes))
        dim = Dim(OTHER if source.axis else BATCH) if shape is None else shape[source.axis]
        sizes[source.symbol] = max(1, dim.evaluate(numbers) // divisor)
        if shape is None or not given.issuperset(dim.symbols):
            free.add(source.symbol)
    for _ in range(_ATTEMPTS):
        broken = [b for b in kernel.bounds if b.small.evaluate(sizes) > b.large.evaluate(sizes)]
        if not broken:
            return sizes
        for symbol in sources_of((bound.large for bound in broken), kernel.derivations) & free:
            sizes[symbol] *= 2
        derived = {name for name, _ in kernel.derivations}
        sizes = completed({s: size for s, size in sizes.items() if s not in derived}, kernel.derivations)
    raise Unraceable("no sizes were found for which all that the kernel assumes holds")


def _unread(graph: Graph, value: Value, numbers: Mapping[str, int]) -> Operand:
    """An input that the kernel does not read and the nodes do: what a reshape takes for its shape, say."""
    type_, constant = graph.type_of(value), graph.constants.get(value)
    if type_.dtype is DType.OTHER or type_.shape is None:
        raise Unraceable(f"nothing can be made up for {value}, which is {type_}")
    if constant is not None:
        content = np.asarray(constant, type_.dtype.numpy)
        return Operand(type_.dtype, content.shape, content.tobytes())
    shape = tuple(d.evaluate(numbers) for d in type_.shape)
    extents = graph.extents.get(value)
    if extents is None:
        return Operand(type_.dtype, shape)
    content = np.asarray([d.evaluate(numbers) for d in extents], type_.dtype.numpy)
    return Operand(type_.dtype, shape, content.tobytes())
