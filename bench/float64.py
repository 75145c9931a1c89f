"""Run a TensorFlow model in float64: the oracle that says which of two float32 results is nearer the truth.

Every float32 type in the graph and its function library becomes float64: constants and variables keep
their float32 values, all arithmetic between them is done in double precision. Three kinds of nodes differ:

  expanded   an op whose kernel computes in float32 only, but whose formula is simple (batch norm, bilinear
             resizing), becomes a call of a float64 function out of `float64_expansions`
  kept       an op with no float64 kernel stays in float32 between casts
  fixed      an argument that the op itself declares as float32 is cast, the rest of the op is converted

`Float64Model.kept` counts the latter two, where the outputs depend on them.
The graph runs in a TF1 session without graph optimizers, so nothing here touches the eager context, and
SavedModels bring their variables, tables and assets by their own restore and init ops.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2, op_def_pb2, types_pb2
from tensorflow.core.protobuf import config_pb2, saved_model_pb2
from tensorflow.python.framework import kernels, op_def_registry, tensor_util
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from bench.float64_expansions import FLOAT, Attrs, AttrValue, expansion

NodeDef: TypeAlias = node_def_pb2.NodeDef
OpDef: TypeAlias = op_def_pb2.OpDef

DOUBLE = types_pb2.DT_DOUBLE

# Ops whose result depends on the width of the type, or on random bits drawn for it; files hold float32.
_RANDOM = ["Uniform", "Normal", "UniformV2", "NormalV2"]
KEPT_OPS = {
    *("Bitcast", "DecodeRaw", "RestoreV2", "SaveV2"),
    *("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "Multinomial", "RandomGammaV2"),
    *("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal"),
    *("StatelessTruncatedNormal", "StatelessTruncatedNormalV2", *(f"StatelessRandom{r}" for r in _RANDOM)),
}


@dataclass
class Float64Model:
    """A float64 copy of a model, open in its own session. `kept` counts the ops run in float32."""

    session: tf.compat.v1.Session
    feeds: dict[str, str]
    fetches: dict[str, str]
    kept: Counter[str] = field(default_factory=Counter)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        feed = {self.feeds[key]: _widened(value) for key, value in inputs.items()}
        return self.session.run(self.fetches, feed)

    def variables(self) -> dict[str, np.ndarray]:
        """What each variable of a SavedModel holds now, by its name without ":0"."""
        graph = self.session.graph
        handles = [op for op in graph.get_operations() if op.type == "VarHandleOp"]
        with graph.as_default():
            names = [op.get_attr("shared_name").decode() for op in handles]
            reads = [tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype")) for op in handles]
        return dict(zip(names, self.session.run(reads), strict=True))

    def close(self) -> None:
        self.session.close()


def from_saved_model(
    path: str | Path, signature: str = "serving_default", tags: Sequence[str] = ("serve",)
) -> Float64Model:
    """The float64 copy of a signature of a SavedModel directory, which is only read."""
    path = Path(path)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / "saved_model.pb").read_bytes())
    meta = next(m for m in saved.meta_graphs if set(m.meta_info_def.tags) == set(tags))
    widened, renamed, kept = widen_graph(meta.graph_def)
    meta.graph_def.CopyFrom(widened)
    with tempfile.TemporaryDirectory(prefix="float64-") as scratch:
        (Path(scratch) / "saved_model.pb").write_bytes(saved.SerializeToString())
        for part in ("variables", "assets"):
            if (path / part).exists():
                (Path(scratch) / part).symlink_to((path / part).resolve())
        session = tf.compat.v1.Session(graph=tf.Graph(), config=_plain_config())
        with session.graph.as_default():
            tf.compat.v1.saved_model.load(session, list(tags), scratch)
    sig = meta.signature_def[signature]
    feeds = {key: info.name for key, info in sig.inputs.items()}
    fetches = {key: renamed.get(info.name, info.name) for key, info in sig.outputs.items()}
    return Float64Model(session, feeds, fetches, _used(kept, widened, fetches.values()))


def from_graph_def(graph_def: graph_pb2.GraphDef, feeds: Mapping[str, str], fetches: Mapping[str, str]) -> Float64Model:
    """The float64 copy of a GraphDef without variables; feeds and fetches name its tensors ("x:0")."""
    widened, renamed, kept = widen_graph(graph_def)
    session = tf.compat.v1.Session(graph=tf.Graph(), config=_plain_config())
    with session.graph.as_default():
        tf.graph_util.import_graph_def(widened, name="")
    fetches = {key: renamed.get(name, name) for key, name in fetches.items()}
    return Float64Model(session, dict(feeds), fetches, _used(kept, widened, fetches.values()))


def from_concrete_function(function: Any) -> Float64Model:
    """The float64 copy of a ConcreteFunction, its variables frozen as they are now.

    Inputs are keyed by argument name ("x" for the placeholder "x:0"), outputs "output_0", "output_1", …
    """
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    feeds = {t.name.partition(":")[0]: t.name for t in frozen.inputs}
    fetches = {f"output_{i}": t.name for i, t in enumerate(frozen.outputs)}
    return from_graph_def(frozen.graph.as_graph_def(), feeds, fetches)


Kept: TypeAlias = dict[tuple[str, str], str]  # (function or "", node) → op


def widen_graph(graph_def: graph_pb2.GraphDef) -> tuple[graph_pb2.GraphDef, dict[str, str], Kept]:
    """The graph in float64, the tensors that moved (old name → new name), and the nodes kept in float32."""
    out = graph_pb2.GraphDef(versions=graph_def.versions)
    widening = _Widening({f.signature.name for f in graph_def.library.function})
    nodes, renamed = widening.body("", graph_def.node, _graph_ref)
    out.node.extend(nodes)
    for function in graph_def.library.function:
        new = out.library.function.add()
        new.CopyFrom(function)
        for arg in (*new.signature.input_arg, *new.signature.output_arg):
            arg.type = DOUBLE if arg.type == FLOAT else arg.type
            arg.ClearField("experimental_full_type")
        for arg_attrs in new.arg_attr.values():
            _widen_attrs(arg_attrs.attr)
        nodes, moved = widening.body(function.signature.name, function.node_def, _function_ref)
        del new.node_def[:]
        new.node_def.extend(nodes)
        for name, ref in function.ret.items():
            new.ret[name] = moved.get(ref, ref)
    out.library.gradient.extend(graph_def.library.gradient)
    out.library.function.extend(widening.expansions.values())
    return out, renamed, widening.kept


def _used(kept: Kept, graph_def: graph_pb2.GraphDef, fetches: Iterable[str]) -> Counter[str]:
    """The kept ops that the fetches depend on, through any functions."""
    top = {node.name: node for node in graph_def.node}
    bodies = {f.signature.name: f.node_def for f in graph_def.library.function}
    found: Counter[str] = Counter()
    seen: set[str] = set()
    pending = [name.lstrip("^").partition(":")[0] for name in fetches]
    calls: list[str] = []
    while pending:
        if (name := pending.pop()) not in seen:
            seen.add(name)
            found.update([op] if (op := kept.get(("", name))) else [])
            calls += _functions(top[name])
            pending += [i.lstrip("^").partition(":")[0] for i in top[name].input]
    called: set[str] = set()
    while calls:
        if (function := calls.pop()) in bodies and function not in called:
            called.add(function)
            for node in bodies[function]:
                found.update([op] if (op := kept.get((function, node.name))) else [])
                calls += _functions(node)
    return found


def _functions(node: NodeDef) -> list[str]:
    """The functions that a node may call."""
    values = node.attr.values()
    return [node.op, *(v.func.name for v in values), *(f.name for v in values for f in v.list.func)]


# ---- one body of nodes -------------------------------------------------------------------------------------


class Ref(Protocol):
    """How a body spells an output of a node: GraphDefs count over all args, FunctionDefs within one."""

    def __call__(self, node: str, *, arg: str, index: int, flat: int) -> str: ...


def _graph_ref(node: str, *, flat: int, **_: Any) -> str:
    return f"{node}:{flat}"


def _function_ref(node: str, *, arg: str, index: int, **_: Any) -> str:
    return f"{node}:{arg}:{index}"


class _Widening:
    """Rewrites node lists; collects the functions they need and the ops they could not convert."""

    def __init__(self, library: set[str]) -> None:
        self.library = library
        self.expansions: dict[str, Any] = {}
        self.kept: Kept = {}

    def body(self, function: str, nodes: Iterable[NodeDef], ref: Ref) -> tuple[list[NodeDef], dict[str, str]]:
        """The nodes in float64, and which of their outputs are to be read elsewhere."""
        renamed: dict[str, str] = {}
        out: list[NodeDef] = []
        casts: list[NodeDef] = []
        for node in nodes:
            new, old_attrs, op_def = self._node(node, ref, renamed)
            if op_def:
                before = list(_narrow_inputs(new, op_def, old_attrs, ref))
                after = list(_widen_outputs(new, op_def, old_attrs, ref, renamed))
                out += before
                casts += after
                if before or after:
                    self.kept[function, node.name] = node.op
            out.append(new)
        for node in out:
            for i, name in enumerate(node.input):
                full = f"{name}:0" if ref is _graph_ref and ":" not in name and name[0] != "^" else name
                node.input[i] = renamed.get(full, name)
        return out + casts, renamed

    def _node(self, node: NodeDef, ref: Ref, renamed: dict[str, str]) -> tuple[NodeDef, Attrs, OpDef | None]:
        """The node in float64, its attributes before, and its OpDef where its ports may need casts."""
        new = NodeDef()
        new.CopyFrom(node)
        new.ClearField("experimental_type")
        op_def = None if node.op in self.library else op_def_registry.get(node.op)
        if op_def is None:
            _widen_attrs(new.attr)
            return new, {}, None
        old_attrs = _with_defaults(node.attr, op_def)
        if traced := expansion(node.op, old_attrs):
            return self._call(node, op_def, old_attrs, traced, ref, renamed), old_attrs, None
        new_attrs = {k: _copied(v) for k, v in old_attrs.items()}
        _widen_attrs(new_attrs)
        if node.op in KEPT_OPS or (not _legal(op_def, new_attrs) and _legal(op_def, old_attrs)):
            new_attrs = old_attrs
        for name, value in new_attrs.items():
            new.attr[name].CopyFrom(value)
        return new, old_attrs, op_def

    def _call(
        self,
        node: NodeDef,
        op_def: OpDef,
        attrs: Attrs,
        traced: Any,
        ref: Ref,
        renamed: dict[str, str],
    ) -> NodeDef:
        """A call of a traced float64 function in place of the node."""
        digest = hashlib.sha256(repr(sorted((k, str(v)) for k, v in attrs.items())).encode()).hexdigest()[:12]
        name = f"float64_{node.op}_{digest}"
        if name not in self.expansions:
            definition = type(traced.function_def)()
            definition.CopyFrom(traced.function_def)
            definition.signature.name = name
            self.expansions[name] = definition
        call = NodeDef(name=node.name, op="PartitionedCall", input=node.input, device=node.device)
        call.attr["f"].func.name = name
        call.attr["Tin"].list.type.extend(t.dtype.as_datatype_enum for t in traced.inputs)
        call.attr["Tout"].list.type.extend(t.dtype.as_datatype_enum for t in traced.outputs)
        for arg, index, flat, _ in _ports(op_def.output_arg, attrs):
            old = ref(node.name, arg=arg, index=index, flat=flat)
            moved = ref(node.name, arg="output", index=flat, flat=flat)
            if old != moved:
                renamed[old] = moved
        return call


def _narrow_inputs(node: NodeDef, op_def: OpDef, old: Attrs, ref: Ref) -> Iterator[NodeDef]:
    """Casts in front of the inputs that were float32 and still are."""
    for _, _, flat in _still_float(op_def.input_arg, old, dict(node.attr)):
        cast = _cast(f"{node.name}/float32_in_{flat}", node.input[flat], DOUBLE, FLOAT)
        node.input[flat] = ref(cast.name, arg="y", index=0, flat=0)
        yield cast


def _widen_outputs(node: NodeDef, op_def: OpDef, old: Attrs, ref: Ref, renamed: dict[str, str]) -> Iterator[NodeDef]:
    """Casts behind the outputs that were float32 and still are; everyone else reads the cast."""
    for arg, index, flat in _still_float(op_def.output_arg, old, dict(node.attr)):
        source = ref(node.name, arg=arg, index=index, flat=flat)
        cast = _cast(f"{node.name}/float64_out_{flat}", source, FLOAT, DOUBLE)
        renamed[source] = ref(cast.name, arg="y", index=0, flat=0)
        yield cast


def _still_float(args: Sequence[OpDef.ArgDef], old: Attrs, new: Attrs) -> Iterator[tuple[str, int, int]]:
    for (arg, index, flat, was), (_, _, _, now) in zip(_ports(args, old), _ports(args, new), strict=True):
        if was == now == FLOAT:
            yield arg, index, flat


def _cast(name: str, source: str, src: int, dst: int) -> NodeDef:
    node = NodeDef(name=name, op="Cast", input=[source])
    node.attr["SrcT"].type = src
    node.attr["DstT"].type = dst
    return node


def _ports(args: Iterable[OpDef.ArgDef], attrs: Attrs) -> Iterator[tuple[str, int, int, int]]:
    """(arg, index in the arg, flat index, dtype) of every tensor that the args stand for."""
    flat = 0
    for arg in args:
        if arg.type_list_attr:
            types = list(attrs[arg.type_list_attr].list.type)
        else:
            dtype = arg.type or attrs[arg.type_attr].type
            types = [dtype] * (attrs[arg.number_attr].i if arg.number_attr else 1)
        for index, dtype in enumerate(types):
            yield arg.name, index, flat, dtype
            flat += 1


# ---- attributes --------------------------------------------------------------------------------------------


def _copied(value: AttrValue) -> AttrValue:
    copy = AttrValue()
    copy.CopyFrom(value)
    return copy


def _with_defaults(attrs: Mapping[str, AttrValue], op_def: OpDef) -> Attrs:
    """SavedModels leave out attributes that have their default value."""
    defaults = {a.name: a.default_value for a in op_def.attr if a.HasField("default_value")}
    return {**defaults, **dict(attrs)}


def _widen_attrs(attrs: Any) -> None:
    """float32 becomes float64, in place: types, lists of types, tensors, attributes of function values."""
    for value in attrs.values():
        match value.WhichOneof("value"):
            case "type" if value.type == FLOAT:
                value.type = DOUBLE
            case "tensor" if value.tensor.dtype == FLOAT:
                wide = tensor_util.MakeNdarray(value.tensor).astype(np.float64)
                value.tensor.CopyFrom(tensor_util.make_tensor_proto(wide))
            case "func":
                _widen_attrs(value.func.attr)
            case "list":
                types = [DOUBLE if t == FLOAT else t for t in value.list.type]
                del value.list.type[:]
                value.list.type.extend(types)
                for function in value.list.func:
                    _widen_attrs(function.attr)
            case _:
                pass


def _legal(op_def: OpDef, attrs: Attrs) -> bool:
    """May the op have these types, and is there a CPU kernel for them?"""
    for attr in op_def.attr:
        allowed = attr.allowed_values.list.type
        if allowed and not set(_types(attrs[attr.name])) <= set(allowed):
            return False
    registered = _cpu_kernels(op_def.name)
    return not registered or any(
        all(name not in attrs or set(_types(attrs[name])) <= allowed for name, allowed in constraints)
        for constraints in registered
    )


def _types(value: AttrValue) -> list[int]:
    return [value.type] if value.WhichOneof("value") == "type" else list(value.list.type)


@functools.cache
def _cpu_kernels(op: str) -> tuple[tuple[tuple[str, frozenset[int]], ...], ...]:
    return tuple(
        tuple((c.name, frozenset(c.allowed_values.list.type)) for c in kernel.constraint)
        for kernel in kernels.get_registered_kernels_for_op(op).kernel
        if kernel.device_type in ("CPU", "DEFAULT")
    )


def _widened(value: np.ndarray) -> np.ndarray:
    value = np.asarray(value)
    return value.astype(np.float64) if value.dtype == np.float32 else value


def _plain_config() -> config_pb2.ConfigProto:
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config
