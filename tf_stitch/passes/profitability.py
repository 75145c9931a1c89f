"""Profitability: whether a legal cluster should be stitched. Changes nothing about what is legal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tf_stitch.config import Config, is_for_gpus
from tf_stitch.errors import Reason
from tf_stitch.ir.body import Body, Broadcast, Input, Reduce, Reshape
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import product
from tf_stitch.ops import OPS, Kind
from tf_stitch.passes.contraction import frames
from tf_stitch.passes.expand import Expansion
from tf_stitch.plan.cost import Bytes, size
from tf_stitch.plan.factors import factors

# Words in the names of ops that compute for long; so does a call of a function or a loop.
_COMPUTE_INTENSIVE = tuple(
    "MatMul Conv Einsum FFT Cholesky Svd Eig Lu Qr Solve RNN LSTM GRU Attention Call While XlaLaunch".split()
)
# Not worth a kernel, however many of them.
_TINY = 16  # elements
_IN_CACHE = 4096  # elements
_SMALL_CLUSTER = 4  # nodes: below it, so few elements save no time that could be measured
_STAYS_CACHED = 1 << 20  # bytes
# A product of matrices: TensorFlow takes longer to call it than to compute it, and oneDNN's is no faster up to here.
_MOST_WEIGHTS = 1 << 16  # elements: they stay in L2
_MOST_PRODUCTS = 1 << 27
_NARROW = 32  # columns: however many rows there are, oneDNN's blocks of filters or channels are half empty
_TURNED = 32  # rows: for fewer, weights are not turned round first
_FEW_ROWS = 8  # where weights are read once, it is memory that limits both
_IDLE = frozenset("Cast ZerosLike OnesLike Fill".split())


def is_view(alone: Expansion) -> bool:
    """Whether a node, expanded by itself, just gives its operand a new shape or name.

    TensorFlow does that without touching an element: Reshape, Identity, a transpose that moves only dims of 1, ...
    """
    steps = alone.body.steps
    return all(isinstance(s.op, Input | Reshape) for s in steps) and len(alone.body.outputs) == 1


def goes_over_again(body: Body) -> bool:
    """Whether a body reduces rows and then needs what was reduced along the rows: that of a softmax, say.

    TensorFlow goes through memory for each pass, and a kernel while the row is in the cache.
    """
    reduced: set[int] = set()
    for index, step in enumerate(body.steps):
        if isinstance(step.op, Reduce):
            reduced.add(index)
        elif reduced.intersection(step.operands):
            if isinstance(step.op, Broadcast):
                return True
            reduced.add(index)
    return False


def without_idle_movement(graph: Graph, members: set[str], views: frozenset[str]) -> set[str]:
    """`members` less what is moved for others only.

    A view that others read beside what it is a view of: inside, it would be a copy. And a copy (a slice, say) of a
    value that is needed whole as well, or in several such pieces: inside, each piece would be computed anew. And a
    concatenation of what is not computed here: nothing is saved by copying it in this kernel, but for a product, which
    has no other way to read it.
    """
    members = set(members)
    while True:
        idle = {name for name in members & views if _is_idle_view(graph, members, name)}
        idle |= {name for name in members - views if _is_idle_copy(graph, members, name)}
        if not idle:
            return members
        members -= idle


def without_passed_on_views(graph: Graph, eligible: Sequence[str], views: frozenset[str]) -> list[str]:
    """`eligible`, in topological order, less the views that no cluster keeps: of what stays outside, for what does.

    Such a view (what a loop hands to its body, say) must not grow into a cluster either: with it inside, the ops that
    read it would wait for the cluster, and the cluster could take in nothing that follows them.
    """
    members = set(eligible)
    for name in eligible:
        node = graph.nodes[name]
        if name in views and not any(p in members for p in (*(v.node for v in node.inputs), *node.controls)):
            returned = any(Value(name, i) in graph.returned for i in range(len(node.types)))
            if returned or any(u not in members for u in graph.consumers[name]):
                members.discard(name)
    return [name for name in eligible if name in members]


def _is_idle_view(graph: Graph, members: set[str], name: str) -> bool:
    users = graph.consumers[name]
    node = graph.nodes[name]
    returned = any(Value(name, i) in graph.returned for i in range(len(node.types)))
    leaves = returned or any(u not in members for u in users)
    if not leaves:
        return False
    source = node.inputs[0]
    read_inside = any(u in members for u in users)
    if source.node not in members:  # out with it, unless it would then stand both behind the cluster and before it
        reads_inside = any(v.node in members for v in node.inputs) or any(c in members for c in node.controls)
        return not (reads_inside and read_inside)
    others_read_it = any(u not in members for u in graph.consumers[source.node]) or source in graph.returned
    return others_read_it and not read_inside


def _is_idle_copy(graph: Graph, members: set[str], name: str) -> bool:
    node = graph.nodes[name]
    if OPS[node.op].gathers:
        is_multiplied = any(u in members and OPS[graph.nodes[u].op].kind is Kind.PRODUCT for u in graph.consumers[name])
        return not is_multiplied and not any(v.node in members for v in node.inputs)
    if OPS[node.op].kind is not Kind.MOVEMENT or any(u in members for u in graph.consumers[name]):
        return False
    source = node.inputs[0]
    if source.node not in members:
        return True
    return len(graph.consumers[source.node]) > 1 or source in graph.returned


def is_compute_intensive(node: Node) -> bool:
    """Whether a node computes for so long that others should not keep it waiting."""
    is_memory_intensive = node.op in OPS and OPS[node.op].kind is not Kind.PRODUCT
    return not is_memory_intensive and any(word in node.op for word in _COMPUTE_INTENSIVE)


def is_small_product(graph: Graph, node: Node, alone: Expansion, config: Config) -> bool:
    """Whether a product, of [m, k] with weights [k, n], is one that a kernel computes no slower than TensorFlow.

    What is not known of how many rows it has counts as UNKNOWN_DIM.
    """
    if not config.product_stitching or is_for_gpus(config.target):
        return False
    weights = graph.type_of(node.inputs[1])
    if not weights.shape or not weights.size.is_static:
        return False
    steps = alone.body.steps
    products = product(d for s in steps if isinstance(s.op, Reduce) for d in steps[s.operands[0]].type.dims)
    if factors(alone.body) and not (products.is_static and products.coefficient >= _TURNED * weights.size.coefficient):
        return False
    few_rows = products.is_static and products.coefficient <= _FEW_ROWS * weights.size.coefficient
    narrow = weights.dims[-1].coefficient <= _NARROW  # a depthwise filter's last dim is 1: it is memory that limits all
    few_products = products.coefficient <= _MOST_PRODUCTS
    return few_rows or (weights.size.coefficient <= _MOST_WEIGHTS and (narrow or few_products))


def refusal(
    graph: Graph, members: Sequence[str], views: frozenset[str], again: frozenset[str], config: Config
) -> tuple[Reason, str] | None:
    """Why a cluster is not worth a kernel, or None.

    again: the nodes of the graph that go over their elements more than once; each counts as two.
    To move elements is no reason for one, but a reason the more where others do too: a bias and a transpose behind it,
    or slices and what puts them together, are one pass over the elements instead of two. But what only turns rows into
    columns TensorFlow does block by block.
    """
    working = [n for n in members if n not in views and _works(graph, n)]
    moving = [n for n in members if n not in views and _moves(graph, n)]
    passes = len(working) + len(moving) + sum(n in again for n in working)
    turns = not working and any(_turns_rows(graph, n) for n in moving)
    if not (working or moving) or turns or passes < config.min_cluster_size:
        return Reason.TOO_SMALL, f"{len(working)} node(s) that do work"
    if len(working) < _SMALL_CLUSTER and all(_is_tiny(graph, n) for n in working or moving):
        return Reason.TOO_SMALL, f"{len(working)} node(s) of a few elements each"
    return None


def _turns_rows(graph: Graph, name: str) -> bool:
    """Whether a node puts other elements side by side, more of them than the cache holds."""
    node = graph.nodes[name]
    if node.op != "Transpose":
        return False
    type_, permutation = node.types[0], graph.constants.get(node.inputs[1])
    keeps_rows = permutation is not None and permutation.size and permutation.ravel()[-1] == permutation.size - 1
    is_small = type_.shape is not None and type_.size.is_static and type_.size.coefficient <= _IN_CACHE
    return not (keeps_rows or is_small)


@dataclass(frozen=True)
class Traffic:
    """What a kernel reads, and the bytes that it writes. An unknown dim counts as UNKNOWN_DIM."""

    read: Mapping[Value, int]
    written: int

    @staticmethod
    def of(graph: Graph, names: Sequence[str], found: Expansion) -> Traffic:
        """That of a cluster; `found` may have the names of another one that looks the same."""
        inside = set(names)
        outside = {v for n in names for v in graph.nodes[n].inputs if v.node not in inside}
        types = {v: graph.type_of(v) for v in outside}
        read = {v: Bytes.of([size(t)]).at() for v, t in types.items() if t.shape is not None}
        return Traffic(read, Bytes.of(size(found.body.steps[o].type) for o in found.body.outputs).at())

    @property
    def bytes(self) -> int:
        return sum(self.read.values()) + self.written

    def with_(self, other: Traffic) -> Traffic:
        return Traffic({**self.read, **other.read}, self.written + other.written)


def stays_together(one: Traffic, other: Traffic) -> bool:
    """Whether two kernels that have nothing to do with each other are no slower as one.

    An op's call costs as much as some 30 KB from memory. An optimizer's steps that are joined for all variables write
    what the assignments behind them then read from memory; each by itself, they would find it in the cache.
    """
    together = one.with_(other).bytes
    shared = one.bytes + other.bytes - together
    return together <= _STAYS_CACHED or 4 * shared >= min(one.bytes, other.bytes)


def works(graph: Graph, members: Sequence[str], views: frozenset[str]) -> bool:
    """Whether a cluster does more than move and fill: only then is another one's kernel the better for it."""
    return any(n not in views and _works(graph, n) for n in members)


def _is_tiny(graph: Graph, name: str) -> bool:
    """Whether a node reads and makes so little that it is over before a kernel is called. A table is not read whole."""
    node = graph.nodes[name]
    read = (graph.type_of(v) for i, v in enumerate(node.inputs) if not (i == 0 and 0 in OPS[node.op].outside))
    sizes = [None if t.shape is None else product(t.shape) for t in (*read, *node.types)]
    return all(size is not None and size.is_static and size.coefficient <= _TINY for size in sizes)


def counts_turns(graph: Graph, name: str, legal: Collection[str]) -> bool:
    """Whether the next turn of a loop begins with a number that nothing is computed for: i + 1, say.

    In a kernel it would come when all else is done. By itself it is there at once, and what waits for nothing else of
    this turn is done beside the kernel: the next turn's condition, the rows that it reads, its other kernels.
    legal: what may be computed in a kernel.
    """
    if not any(graph.nodes[user].op == "NextIteration" for user in graph.consumers[name]) or not _is_tiny(graph, name):
        return False
    return all(graph.behind_identities(value).node not in legal for value in graph.nodes[name].inputs)


def computes_beside(graph: Graph, around: frozenset[str]) -> bool:
    """Whether something else that takes long is done in the turns of a loop: a product that is not stitched, a loop."""
    inside = (n for n in graph.nodes.values() if around <= n.context)
    return any(is_compute_intensive(n) or (n.op == "LoopCond" and frames(n) != around) for n in inside)


def _works(graph: Graph, name: str) -> bool:
    op = graph.nodes[name].op
    return OPS[op].kind is not Kind.MOVEMENT and op not in _IDLE


def _moves(graph: Graph, name: str) -> bool:
    op = graph.nodes[name].op
    return OPS[op].kind is Kind.MOVEMENT and op not in _IDLE
