"""Importer: a GraphDef, or a FunctionDef, becomes a Graph of typed values. Stage 1 of the pipeline.

Both become the same thing: nodes with flat outputs (`spelling`), attributes as plain values (`attributes`),
types with symbolic dims (`typing_pass`), and the frame and conditions each runs under (`contexts`). A
function's arguments become nodes of op `_Arg`. What the tables do not know is kept as a node nobody will
stitch. One thing is changed on the way: of which value a shape is read (`shape_reads`).

Shapes come from the caller (Grappler's inference), else from the `_output_shapes` that a saved model
carries, else from TensorFlow's own inference over a throwaway copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tf_stitch.frontend.attributes import attributes_of, dtype_of, shape_of_proto
from tf_stitch.frontend.contexts import MERGES, NEXTS, Wiring, contexts_of
from tf_stitch.frontend.shape_reads import with_early_shape_reads
from tf_stitch.frontend.signatures import signature_of
from tf_stitch.frontend.spelling import FunctionSpelling, GraphSpelling
from tf_stitch.frontend.tensor_lists import READERS, Element, contents_of_lists, declared_with, element
from tf_stitch.frontend.tf_shapes import shapes_by_tensorflow
from tf_stitch.frontend.typing_pass import Types
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tf_stitch.frontend.protos import Proto
    from tf_stitch.frontend.spelling import Spelling
    from tf_stitch.frontend.typing_pass import Declared, Turns

_MOST_TYPINGS = 4  # a list of what was read out of another one takes one more
_SAME_VALUE = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})


def import_graph_def(
    graph_def: Proto,
    *,
    shapes: Mapping[str, Sequence[Declared]] | None = None,
    fetched: Iterable[str] = (),
    name: str = "",
) -> Graph:
    """The main graph of a GraphDef: Grappler's, or that of a V1 model.

    shapes: for each node the shape of each output; a negative dim is the number of a symbol. Where None,
      what the nodes' `_output_shapes` say, or TensorFlow infers.
    fetched: nodes that are fetched or fed by name.
    """
    functions = {f.signature.name: f for f in graph_def.library.function}
    fetched = frozenset(fetched)
    if shapes is None and not any("_output_shapes" in n.attr for n in graph_def.node):
        shapes = shapes_by_tensorflow(graph_def)
    drafts = _drafts(graph_def.node, GraphSpelling(), functions, shapes or {})
    return _finish(name, drafts, fetched, frozenset())


def import_function_def(
    function_def: Proto,
    functions: Mapping[str, Proto],
    *,
    shapes: Mapping[str, Sequence[Declared]] | None = None,
) -> Graph:
    """One function of a library, by itself. Its arguments are nodes of op `_Arg`.

    functions: the whole library, by name.
    shapes: as for `import_graph_def`, arguments included.
    """
    names = [a.name for a in function_def.signature.input_arg]
    spelling = FunctionSpelling(function_def.node_def, names, functions)
    if shapes is None and not any("_output_shapes" in n.attr for n in function_def.node_def):
        shapes = shapes_by_tensorflow(function_def, functions)
    shapes = shapes or {}
    drafts = _arguments(function_def, shapes) | _drafts(function_def.node_def, spelling, functions, shapes)
    returned = frozenset(spelling.read(text) for text in function_def.ret.values())
    return _finish(function_def.signature.name, drafts, frozenset(function_def.control_ret.values()), returned)


@dataclass(slots=True)
class _Draft:
    """A node as far as its own proto tells: all but the shapes of its outputs and its context."""

    node: Node
    dtypes: list[DType]
    declared: Sequence[Declared] | None
    frame: str = ""


def _drafts(
    nodes: Iterable[Proto],
    spelling: Spelling,
    functions: Mapping[str, Proto],
    shapes: Mapping[str, Sequence[Declared]],
) -> dict[str, _Draft]:
    drafts: dict[str, _Draft] = {}
    for proto in nodes:
        name, op, attr = proto.name, proto.op, proto.attr
        texts = list(proto.input)
        inputs = tuple(spelling.read(t) for t in texts if t[0] != "^")
        controls = tuple(dict.fromkeys(t[1:] for t in texts if t[0] == "^")) if len(inputs) < len(texts) else ()
        attributes = attributes_of(attr)
        signature = signature_of(op, functions)
        dtypes: list[DType] = []
        stateful = True
        if signature is not None:
            dtypes = [dtype_of(t) for t in signature.dtypes(attr)]
            attributes = {**signature.python_defaults, **attributes}
            stateful = signature.stateful
        node = Node(name, op, inputs, (), controls, attributes, proto.device, stateful=stateful)
        frame = attr["frame_name"].s.decode() if "frame_name" in attr else ""
        drafts[name] = _Draft(node, dtypes, _declared(proto, shapes), frame)
    _complete_unknown_ops(drafts)
    return drafts


def _declared(proto: Proto, shapes: Mapping[str, Sequence[Declared]]) -> Sequence[Declared] | None:
    declared = shapes.get(proto.name)
    if declared is not None:
        return declared
    attr = proto.attr
    if proto.op == "Const" and "value" in attr:
        return [shape_of_proto(attr["value"].tensor.tensor_shape)]
    if "_output_shapes" in attr:
        return [shape_of_proto(s) for s in attr["_output_shapes"].list.shape]
    if proto.op == "Placeholder" and "shape" in attr:
        return [shape_of_proto(attr["shape"].shape)]
    return None


def _complete_unknown_ops(drafts: Mapping[str, _Draft]) -> None:
    """A node whose op has no OpDef gets as many outputs, of dtype `other`, as are read."""
    for draft in drafts.values():
        for value in draft.node.inputs:
            producer = drafts.get(value.node)
            if producer is not None and value.index >= len(producer.dtypes):
                producer.dtypes.extend([DType.OTHER] * (value.index + 1 - len(producer.dtypes)))


def _arguments(function_def: Proto, shapes: Mapping[str, Sequence[Declared]]) -> dict[str, _Draft]:
    drafts: dict[str, _Draft] = {}
    attr = function_def.attr
    listed = list(attr["_input_shapes"].list.shape) if "_input_shapes" in attr else []
    for index, arg in enumerate(function_def.signature.input_arg):
        declared = shapes.get(arg.name)
        own: Any = function_def.arg_attr[index].attr if index in function_def.arg_attr else {}
        if declared is None and "_output_shapes" in own:
            value = own["_output_shapes"]
            declared = [shape_of_proto(value.list.shape[0] if value.list.shape else value.shape)]
        if declared is None and index < len(listed):
            declared = [shape_of_proto(listed[index])]
        node = Node(arg.name, "_Arg", (), ())
        drafts[arg.name] = _Draft(node, [dtype_of(arg.type)], declared)
    return drafts


def _finish(name: str, drafts: Mapping[str, _Draft], fetched: frozenset[str], returned: frozenset[Value]) -> Graph:
    order = _topological(drafts)
    contexts = contexts_of(order, {n: _wiring(d) for n, d in drafts.items()})
    types = _typed(order, drafts, _constants(order, drafts, fetched))
    nowhere = frozenset[str]()
    nodes = {n: replace(drafts[n].node, types=types.types[n], context=contexts.get(n, nowhere)) for n in order}
    graph = Graph(name, nodes, fetched, returned, types.constants, types.extents, runs_with_onednn())
    return with_early_shape_reads(graph)


def _typed(order: Sequence[str], drafts: Mapping[str, _Draft], constants: Mapping[Value, Any]) -> Types:
    """Types of all nodes: once more with what the first time has told of elements of lists, which may tell more."""
    contents = contents_of_lists({n: d.node for n, d in drafts.items()})
    elements: dict[Value, Element] = {}
    for left in reversed(range(_MOST_TYPINGS)):
        types = _typed_with(elements, order, drafts, constants)
        found = {v: element(c, types.operand, types.numbers) for v, c in contents.items()} if left else {}
        known = {v: e for v, e in found.items() if e is not None}
        if not left or known == elements:
            break
        elements = known
    return types


def _typed_with(
    elements: Mapping[Value, Element],
    order: Sequence[str],
    drafts: Mapping[str, _Draft],
    constants: Mapping[Value, Any],
) -> Types:
    """Types of all nodes, with what is known of elements of lists.

    What goes round a loop is taken to stay as it enters, and then, again from the start, for as much as came out true.
    """
    held = {v: e.extents for v, e in elements.items() if e.extents is not None}
    turns: Turns = {name: frozenset() for name in order if _is_untyped_loop(drafts[name], drafts)}
    while True:
        types = Types(dict(constants), turns, held)
        for each in order:
            draft = drafts[each]
            types.add(draft.node, draft.dtypes, _declared_of_reader(draft, elements))
        types.settle()
        found = {name: types.turns(drafts[name].node) for name in turns}
        if found == turns:
            return types
        turns = found


def _declared_of_reader(draft: _Draft, elements: Mapping[Value, Element]) -> Sequence[Declared] | None:
    """What is declared of a node's outputs and, if it reads a list, known of the list's elements."""
    node = draft.node
    output = READERS.get(node.op, 0)
    known = elements.get(Value(node.name, output)) if node.op in READERS else None
    if known is None or known.shape is None:
        return draft.declared
    shape = (None, *known.shape) if node.op == "TensorListStack" else known.shape
    declared = list(draft.declared or [None] * len(draft.dtypes))
    declared[output] = declared_with(declared[output], shape)
    return declared


@cache
def runs_with_onednn() -> bool:
    """Whether TensorFlow's oneDNN kernels are on in this process: by TF_ENABLE_ONEDNN_OPTS, or by the CPU."""
    from tensorflow.python.util import (  # pyright: ignore[reportMissingTypeStubs, reportMissingImports]
        _pywrap_util_port as port,  # pyright: ignore[reportUnknownVariableType, reportAttributeAccessIssue]
    )

    return bool(port.IsMklEnabled())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _is_untyped_loop(draft: _Draft, drafts: Mapping[str, _Draft]) -> bool:
    """Is it the Merge of a loop of TensorFlow 1, for which no rank is declared?"""
    if draft.node.op not in MERGES or (draft.declared and draft.declared[0] is not None):
        return False
    return any(v.node in drafts and drafts[v.node].node.op in NEXTS for v in draft.node.inputs)


def _wiring(draft: _Draft) -> Wiring:
    node = draft.node
    return Wiring(node.op, node.inputs, node.controls, draft.frame, len(draft.dtypes))


def _topological(drafts: Mapping[str, _Draft]) -> list[str]:
    """Producers first, else in the order given. An edge from NextIteration closes a cycle, and is ignored."""
    order: list[str] = []
    state: dict[str, bool] = {}  # False while its producers are being visited, True when done
    for root in drafts:
        stack = [root]
        while stack:
            name = stack[-1]
            if name not in state:
                state[name] = False
                stack.extend(p for p in reversed(_producers(drafts[name].node, drafts)) if p not in state)
                continue
            stack.pop()
            if not state[name]:
                state[name] = True
                order.append(name)
    return order


def _producers(node: Node, drafts: Mapping[str, _Draft]) -> list[str]:
    names = [v.node for v in node.inputs]
    names.extend(node.controls)
    return [n for n in names if n in drafts and drafts[n].node.op not in NEXTS]


def _constants(order: Sequence[str], drafts: Mapping[str, _Draft], fetched: frozenset[str]) -> dict[Value, Any]:
    """The value of every small constant, also through Identities; one that may be fed is no constant."""
    found: dict[Value, Any] = {}
    for name in order:
        node = drafts[name].node
        if name in fetched:
            continue
        if node.op == "Const":
            value = node.attributes.get("value")
        elif node.op in _SAME_VALUE and node.inputs:
            value = found.get(node.inputs[0])
        else:
            continue
        if value is not None:
            found[Value(name, 0)] = value
    return found
