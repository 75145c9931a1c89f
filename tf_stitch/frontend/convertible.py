"""Which functions of a saved model may be converted, and which names of its main graph must survive."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import ops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tf_stitch.frontend.protos import Proto

_MARKS = {
    # function attributes that promise something of the body; the last that is set gives the reason
    "_noinline": "marked _noinline",
    "_tf_data_function": "run by tf.data",
    "_XlaMustCompile": "compiled by XLA",
}
_DATASET_OP = re.compile(r"Dataset(V\d+)?$")
_CONTEXTS = frozenset({"cond_context", "while_context"})


def refusals(library: Proto, nodes: Iterable[Proto]) -> dict[str, str]:
    """The functions that are left alone, each with the reason.

    nodes: of the main graph, which may hand functions to XLA or to tf.data too.
    """
    functions = {f.signature.name: f for f in library.function}
    refused: dict[str, str] = {}
    for gradient in library.gradient:
        refused[gradient.gradient_func] = "a gradient function"
    for name, function in functions.items():
        if function.signature.attr or any(a.type_attr or a.type_list_attr for a in function.signature.input_arg):
            refused[name] = "generic: its types are given where it is called"
        elif "internal_grad_fn" in name:
            refused[name] = "a custom gradient"
        for mark, reason in _MARKS.items():
            if mark in function.attr and _is_set(function.attr[mark]):
                refused[name] = reason
    bodies = [list(nodes), *(f.node_def for f in functions.values())]
    for node in (n for body in bodies for n in body):
        if _DATASET_OP.search(node.op):
            _refuse_all(refused, _called(node), "run by tf.data")
        elif "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b:
            _refuse_all(refused, _called(node), _MARKS["_XlaMustCompile"])
    _spread(refused, functions)
    return refused


def _is_set(attr: Proto) -> bool:
    return attr.b if attr.WhichOneof("value") == "b" else True


def _refuse_all(refused: dict[str, str], names: Iterable[str], reason: str) -> None:
    for name in names:
        refused.setdefault(name, reason)


def _spread(refused: dict[str, str], functions: Mapping[str, Proto]) -> None:
    """XLA compiles what its functions call, too: there is no kernel of StitchOp for it."""
    reason = _MARKS["_XlaMustCompile"]
    pending = [name for name, why in refused.items() if why == reason]
    while pending:
        function = functions.get(pending.pop())
        for name in (n for node in function.node_def for n in _called(node)) if function is not None else ():
            if name not in refused:
                refused[name] = reason
                pending.append(name)


def _called(node: Proto) -> Iterator[str]:
    """The functions that a node's attributes name, and its op where that is one."""
    yield node.op
    for value in node.attr.values():
        match value.WhichOneof("value"):
            case "func":
                yield value.func.name
            case "list":
                yield from (f.name for f in value.list.func)
            case _:
                pass


# ---- The main graph ----------------------------------------------------------------------------------------


def fetched_names(meta_graph: Proto) -> frozenset[str]:
    """Nodes of the main graph that something outside of it names: a signature, a collection, the saver."""
    texts: list[str] = []
    for signature in meta_graph.signature_def.values():
        texts += _texts(signature)
    texts += _texts(meta_graph.saver_def)
    for asset in meta_graph.asset_file_def:
        texts.append(asset.tensor_info.name)
    for name, collection in meta_graph.collection_def.items():
        texts += collection.node_list.value
        for message in _messages(name, collection):
            texts += _texts(message, skip=("values_def",) if name in _CONTEXTS else ())
    return frozenset(t.lstrip("^").partition(":")[0] for t in texts)


def redirect_contexts(meta_graph: Proto, outputs: Mapping[str, str]) -> None:
    """Rewrites what V1 control-flow contexts list as theirs, in place: nothing that is gone may be named.

    outputs: for each removed node the name of the StitchOp that replaces it.
    """
    present = {n.name for n in meta_graph.graph_def.node}
    for name in _CONTEXTS & set(meta_graph.collection_def):
        values = meta_graph.collection_def[name].bytes_list.value
        for index, message in enumerate(_messages(name, meta_graph.collection_def[name])):
            _redirect(message, outputs, present)
            values[index] = message.SerializeToString(deterministic=True)


def _redirect(context: Proto, outputs: Mapping[str, str], present: set[str]) -> None:
    kept: dict[str, None] = {}
    for text in context.values_def.values:
        name = text.partition(":")[0]
        if name in outputs:
            kept[f"{outputs[name]}:0"] = None
        elif name in present:
            kept[text] = None
    context.values_def.values[:] = list(kept)
    for nested in context.nested_contexts:
        kind = nested.WhichOneof("ctxt")
        if kind is not None:
            _redirect(getattr(nested, kind), outputs, present)


def _messages(name: str, collection: Proto) -> list[Any]:
    """The protos that a collection holds, where TensorFlow knows of which kind they are."""
    kind = ops.get_collection_proto_type(name)
    if kind is None:
        return []
    return [kind.FromString(content) for content in collection.bytes_list.value]


def _texts(message: Proto, skip: tuple[str, ...] = ()) -> list[str]:
    """Every string in a message, at any depth."""
    found: list[str] = []
    for field, value in message.ListFields():
        if field.name in skip:
            continue
        values = list(value.values()) if hasattr(value, "values") else value
        if isinstance(values, str):
            found.append(values)
        elif hasattr(values, "ListFields"):
            found += _texts(values, skip)
        elif not isinstance(values, bytes | int | float):
            for each in values:
                if isinstance(each, str):
                    found.append(each)
                elif hasattr(each, "ListFields"):
                    found += _texts(each, skip)
    return found
