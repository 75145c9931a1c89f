"""Rewrite: one StitchOp in place of each cluster, the cluster itself kept as the op's fallback. Stage 8.

    a ─► Exp ─► Mul ─► b            a ─► StitchOp(key, fallback=stitch_fallback_3f2a…) ─► b
          (cluster)

What pointed at a removed node is redirected: data inputs and returns to the StitchOp's output, control
inputs to the StitchOp, and colocation constraints (`_class`) are dropped. Constants that only the cluster
read go with it. The proto that came in is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch.frontend.fallback import fallback_of, shape_proto
from tf_stitch.frontend.protos import FunctionDef, GraphDef, NodeDef
from tf_stitch.frontend.revised import revised, with_added
from tf_stitch.frontend.signatures import signature_of
from tf_stitch.frontend.spelling import FunctionSpelling, GraphSpelling
from tf_stitch.runtime import artefact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tf_stitch.frontend.protos import Proto
    from tf_stitch.frontend.spelling import Spelling
    from tf_stitch.ir.graph import Value
    from tf_stitch.passes.clustering import Cluster
    from tf_stitch.pipeline import Stitched, StitchedCluster

OP = "StitchOp"


def rewrite_graph_def(graph_def: Proto, stitched: Stitched, *, embed: bool = False) -> Proto:
    """A GraphDef with the clusters of its main graph stitched, and their fallbacks in its library.

    embed: put the kernels themselves into the graph, for one that leaves this process.
    """
    functions = {f.signature.name: f for f in graph_def.library.function}
    spelling = GraphSpelling()
    nodes = revised(with_added(graph_def.node, stitched.graph), stitched.graph, spelling)
    rewriting = _Rewriting(nodes, spelling, {}, functions, stitched, embed=embed)
    result = GraphDef()
    for field, value in graph_def.ListFields():
        if field.name == "node":
            result.node.extend(rewriting.nodes())
        elif field.name != "library":
            getattr(result, field.name).CopyFrom(value)
    result.library.CopyFrom(graph_def.library)
    result.library.function.extend(f for f in rewriting.fallbacks if f.signature.name not in functions)
    return result


def rewrite_function_def(
    function_def: Proto, stitched: Stitched, functions: Mapping[str, Proto], *, embed: bool = False
) -> tuple[Proto, list[Proto]]:
    """A function with its clusters stitched, and their fallbacks, which belong into the same library."""
    arguments = {a.name: a.type for a in function_def.signature.input_arg}
    nodes = with_added(function_def.node_def, stitched.graph)
    spelling = FunctionSpelling(nodes, arguments, functions)
    nodes = revised(nodes, stitched.graph, spelling)
    rewriting = _Rewriting(nodes, spelling, arguments, functions, stitched, embed=embed)
    result = FunctionDef()
    result.CopyFrom(function_def)
    del result.node_def[:]
    result.node_def.extend(rewriting.nodes())
    for name, text in function_def.ret.items():
        result.ret[name] = rewriting.redirected(text)
    for name, node in function_def.control_ret.items():
        result.control_ret[name] = rewriting.replaced.get(node, node)
    return result, rewriting.fallbacks


@dataclass(frozen=True, slots=True)
class _Stitch:
    """A cluster's node to be."""

    name: str
    made: StitchedCluster

    @property
    def cluster(self) -> Cluster:
        return self.made.cluster


class _Rewriting:
    """The nodes of one graph or function, and what becomes of them.

    replaced: for each removed node of a cluster, the StitchOp that stands for it.
    """

    def __init__(
        self,
        protos: Iterable[Proto],
        spelling: Spelling,
        arguments: Mapping[str, int],
        functions: Mapping[str, Proto],
        stitched: Stitched,
        *,
        embed: bool,
    ) -> None:
        self._protos: dict[str, Proto] = {p.name: p for p in protos}
        self._spelling = spelling
        self._arguments = arguments
        self._functions = functions
        self._graph = stitched.graph
        self._embed = embed
        self._stitches = self._named(stitched.clusters)
        self.replaced = {n: s.name for s in self._stitches for n in s.cluster.nodes}
        self._texts: dict[Value, str] = {}
        for stitch in self._stitches:
            for index, value in enumerate(stitch.cluster.outputs):
                self._texts[value] = self._output_text(stitch.name, index)
        self.fallbacks: list[Proto] = []

    def nodes(self) -> list[Proto]:
        """The nodes of the result: each StitchOp stands where the last node of its cluster stood."""
        last = {stitch.cluster.nodes[-1]: stitch for stitch in self._stitches}
        result: list[Proto] = []
        for name, proto in self._protos.items():
            if name in last:
                result.append(self._stitch_op(last[name]))
            elif name not in self.replaced:
                result.append(self._reconnected(proto))
        return self._without_unread_constants(result)

    def redirected(self, text: str) -> str:
        """The input `text`, spelled for the rewritten graph."""
        if text.startswith("^"):
            return "^" + self.replaced.get(text[1:], text[1:])
        if text.partition(":")[0] not in self.replaced:
            return text
        return self._texts[self._spelling.read(text)]

    def _named(self, clusters: Sequence[StitchedCluster]) -> list[_Stitch]:
        taken = set(self._protos) | set(self._arguments)
        stitches: list[_Stitch] = []
        for made in clusters:
            base = name = f"stitch/{made.cluster.name}"
            count = 0
            while name in taken:
                count += 1
                name = f"{base}_{count}"
            taken.add(name)
            stitches.append(_Stitch(name, made))
        return stitches

    def _output_text(self, name: str, index: int) -> str:
        if isinstance(self._spelling, FunctionSpelling):
            return f"{name}:outputs:{index}"
        return name if index == 0 else f"{name}:{index}"

    def _reconnected(self, proto: Proto) -> Proto:
        """The node itself, or a copy of it where it points at a removed node."""
        touched = any(t.lstrip("^").partition(":")[0] in self.replaced for t in proto.input)
        colocated = _colocated(proto, self.replaced)
        if not touched and not colocated:
            return proto
        copy = NodeDef()
        copy.CopyFrom(proto)
        # two nodes of one cluster are now one: the same control input twice is not allowed
        texts = [self.redirected(t) for t in proto.input]
        data = [t for t in texts if not t.startswith("^")]
        copy.input[:] = data + [t for t in dict.fromkeys(texts) if t.startswith("^")]
        if colocated:
            kept = [c for c in copy.attr["_class"].list.s if c not in colocated]
            copy.attr["_class"].list.s[:] = kept
            if not kept:
                del copy.attr["_class"]
        return copy

    def _stitch_op(self, stitch: _Stitch) -> Proto:
        """The StitchOp, all of its attributes explicit: Grappler fills in no defaults."""
        cluster, artifact = stitch.cluster, stitch.made.artifact
        fallback = fallback_of(cluster, self._graph, self._protos, self._spelling, self._dtype_of, self._functions)
        self.fallbacks.append(fallback)
        node = NodeDef(name=stitch.name, op=OP)
        node.device = next((self._protos[n].device for n in cluster.nodes if self._protos[n].device), "")
        node.input.extend(self._texts[v] if v in self._texts else self._spelling.write(v) for v in cluster.inputs)
        waited = dict.fromkeys(self.replaced.get(c, c) for c in cluster.controls)
        node.input.extend(f"^{c}" for c in waited if c != stitch.name)
        attr = node.attr
        attr["Tin"].list.type.extend(map(self._dtype_of, cluster.inputs))
        attr["Tout"].list.type.extend(map(self._dtype_of, cluster.outputs))
        attr["key"].s = artifact.key.encode()
        attr["artefact"].s = artefact.pack(artifact.content()) if self._embed else b""
        attr["requires"].s = artifact.requires.encode()
        attr["output_shapes"].list.shape.extend(shape_proto(self._graph.type_of(v)) for v in cluster.outputs)
        attr["fallback"].func.name = fallback.signature.name
        for name in ("Tin", "output_shapes"):
            attr[name].list.SetInParent()
        node.experimental_debug_info.original_node_names.extend(cluster.nodes)
        return node

    def _dtype_of(self, value: Value) -> int:
        if value.node in self._arguments:
            return self._arguments[value.node]
        proto = self._protos[value.node]
        signature = signature_of(proto.op, self._functions)
        assert signature is not None, f"{value} comes from op {proto.op}, which is not registered"
        return signature.dtypes(proto.attr)[value.index]

    def _without_unread_constants(self, nodes: Sequence[Proto]) -> list[Proto]:
        """Leaves out the constants of clusters that nobody else reads."""
        candidates = {c for s in self._stitches for c in s.cluster.constants} - self._graph.fetched
        returned = {v.node for v in self._graph.returned}
        read = {t.lstrip("^").partition(":")[0] for n in nodes for t in n.input} | returned
        unread = candidates - read
        return [n for n in nodes if n.name not in unread]


def _colocated(proto: Proto, removed: Mapping[str, str]) -> frozenset[bytes]:
    """The entries of `_class` that name a removed node."""
    if "_class" not in proto.attr:
        return frozenset()
    entries: Sequence[bytes] = proto.attr["_class"].list.s
    prefix = b"loc:@"
    return frozenset(e for e in entries if e.startswith(prefix) and e[len(prefix) :].decode() in removed)
