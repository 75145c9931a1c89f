"""A SavedModel in, a SavedModel out: its function library is edited in place, everything else is copied.

Variables, assets, signatures and the object graph refer to functions by name, and functions keep theirs; so the
converted model loads like the one it was made from, anywhere the op library is loaded. Kernels are inside, as
attributes of the StitchOps: nothing is compiled where it is served.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import message as protobuf_message
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry
from tensorflow.python.saved_model import fingerprinting_utils

from tf_stitch.config import Config
from tf_stitch.errors import Reason, StitchError, UsageError
from tf_stitch.frontend.conversion import Conversion, converted_clusters
from tf_stitch.frontend.convertible import fetched_names, redirect_contexts, refusals
from tf_stitch.frontend.engine import engine_for
from tf_stitch.frontend.importer import import_function_def, import_graph_def
from tf_stitch.frontend.rewrite import OP, rewrite_function_def, rewrite_graph_def
from tf_stitch.runtime import stitch_op as _registered  # noqa: F401  registers StitchOp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tf_stitch.frontend.attributes import Proto
    from tf_stitch.ir.graph import Graph
    from tf_stitch.pipeline import Progress, Stitched

_BINARY, _TEXT, _CHUNKED = "saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"
_FINGERPRINT = "fingerprint.pb"


def convert_saved_model(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    config: Config | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Stitches a SavedModel. `src` is never touched, and `dst` is written whole or not at all.

    Where nothing could be stitched, and where `src` has been converted before, nothing is written:
    `Conversion.destination` is None.

    force: replace a SavedModel that is at `dst`.
    progress: called with a stage ("import", "plan", "build", "write"), how much of it is done, and of how much.

    Raises:
      UsageError: where `src` is not a SavedModel that can be read, or `dst` cannot be written to.
      EnvironmentProblem: where there is no compiler.
    """
    source, destination = Path(src), Path(dst)
    _check_paths(source, destination, force=force)
    saved_model = _read(source)
    if _is_stitched(saved_model):
        nodes = _count_nodes(saved_model)
        return Conversion(source, None, nodes, nodes, already_stitched=True)
    config = config or Config()
    tell = progress or (lambda stage, done, of: None)
    units, skipped = _units(saved_model, tell)
    results = engine_for(config).stitch([u.graph for u in units], progress)
    converted, conversion = _edit(saved_model, units, results)
    conversion = replace(conversion, source=source, skipped=skipped)
    if not conversion.clusters:
        return conversion
    tell("write", 0, 1)
    _write(converted, source, destination)
    tell("write", 1, 1)
    return replace(conversion, destination=destination)


# ---- Reading -------------------------------------------------------------------------------------------------


def _check_paths(source: Path, destination: Path, *, force: bool) -> None:
    if source.is_file():
        if source.suffix in (".keras", ".h5", ".hdf5"):
            raise UsageError(f"{source} is a Keras file; write a SavedModel with `model.export(DIR)` and convert that.")
        raise UsageError(f"{source} is a file; give the directory that holds {_BINARY}.")
    if not source.is_dir():
        raise UsageError(f"{source} does not exist; give the directory of a SavedModel.")
    real, target = source.resolve(), destination.resolve()
    if target == real:
        raise UsageError("source and destination are the same directory; a model is never converted in place.")
    if target.is_relative_to(real) or real.is_relative_to(target):
        raise UsageError(f"one of {source} and {destination} is inside the other; choose a directory beside it.")
    if not os.path.lexists(destination):
        return
    if not force:
        raise UsageError(f"{destination} exists; choose another directory, or pass --force (force=True) to replace it.")
    is_model = any((destination / name).is_file() for name in (_BINARY, _TEXT, _CHUNKED))
    if not destination.is_dir() or not (is_model or not any(destination.iterdir())):
        raise UsageError(f"{destination} is not a SavedModel; it is not replaced, even by force.")


def _read(source: Path) -> Proto:
    """The proto of a SavedModel.

    Raises:
      UsageError: where there is none, or none that can be read.
    """
    binary, text = source / _BINARY, source / _TEXT
    try:
        if binary.is_file():
            saved_model = saved_model_pb2.SavedModel.FromString(binary.read_bytes())
        elif text.is_file():
            saved_model = text_format.Parse(text.read_text(), saved_model_pb2.SavedModel())
        elif (source / _CHUNKED).is_file():
            raise UsageError(
                f"{source} is a SavedModel in chunks ({_CHUNKED}), as models over 2 GB are, and cannot be converted; "
                "save it with variables instead of constants, or without experimental_image_format."
            )
        else:
            raise UsageError(f"{source} has no {_BINARY}; give the directory of a SavedModel.")
    except (protobuf_message.DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} cannot be read: its proto is damaged ({error}); save the model again.") from error
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error}.") from error
    if not saved_model.meta_graphs:
        raise UsageError(f"{source} holds no graph; save the model again.")
    return saved_model


def _nodes(saved_model: Proto) -> Iterator[Proto]:
    for meta_graph in saved_model.meta_graphs:
        yield from meta_graph.graph_def.node
        for function in meta_graph.graph_def.library.function:
            yield from function.node_def


def _is_stitched(saved_model: Proto) -> bool:
    return any(node.op == OP for node in _nodes(saved_model))


def _count_nodes(saved_model: Proto) -> int:
    return sum(1 for _ in _nodes(saved_model))


# ---- Converting ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Unit:
    """A function, or a main graph, to be stitched. `function` is None for the latter."""

    meta_graph: int
    function: str | None
    graph: Graph


def _units(saved_model: Proto, tell: Progress) -> tuple[list[_Unit], dict[str, str]]:
    """Every graph that may be stitched, and the functions that may not with the reason."""
    units: list[_Unit] = []
    skipped: dict[str, str] = {}
    for number, meta_graph in enumerate(saved_model.meta_graphs):
        graph_def = meta_graph.graph_def
        functions = {f.signature.name: f for f in graph_def.library.function}
        refused = refusals(graph_def.library, graph_def.node)
        skipped |= {name: reason for name, reason in refused.items() if name in functions}
        wanted = [name for name in functions if name not in refused]
        for done, name in enumerate(wanted):
            tell("import", done, len(wanted) + 1)
            units.append(_Unit(number, name, import_function_def(functions[name], functions)))
        tell("import", len(wanted), len(wanted) + 1)
        graph = import_graph_def(graph_def, fetched=fetched_names(meta_graph))
        units.append(_Unit(number, None, graph))
        tell("import", len(wanted) + 1, len(wanted) + 1)
    return units, skipped


def _edit(saved_model: Proto, units: list[_Unit], results: list[Stitched]) -> tuple[Proto, Conversion]:
    """The converted proto, and what is to be said of it; paths and skipped functions aside."""
    converted = saved_model_pb2.SavedModel()
    converted.CopyFrom(saved_model)
    before = _count_nodes(saved_model)
    clusters, added = [], 0
    for number, meta_graph in enumerate(converted.meta_graphs):
        original = saved_model.meta_graphs[number].graph_def
        functions = {f.signature.name: f for f in original.library.function}
        edited: dict[str, Proto] = {}
        fallbacks: dict[str, Proto] = {}
        for unit, stitched in zip(units, results, strict=True):
            if unit.meta_graph != number or not stitched.clusters:
                continue
            if unit.function is None:
                rewritten = rewrite_graph_def(original, stitched, embed=True)
                del meta_graph.graph_def.node[:]
                meta_graph.graph_def.node.extend(rewritten.node)
                added_functions = [f for f in rewritten.library.function if f.signature.name not in functions]
                nodes = rewritten.node
            else:
                rewritten, added_functions = rewrite_function_def(
                    functions[unit.function], stitched, functions, embed=True
                )
                edited[unit.function] = rewritten
                nodes = rewritten.node_def
            fallbacks |= {f.signature.name: f for f in added_functions}
            names = _stitch_names(nodes, stitched)
            clusters += converted_clusters(stitched, names)
            if unit.function is None:
                replaced = {n: s for m, s in zip(stitched.clusters, names, strict=True) for n in m.cluster.nodes}
                redirect_contexts(meta_graph, replaced)
        library = meta_graph.graph_def.library
        for function in library.function:
            if function.signature.name in edited:
                function.CopyFrom(edited[function.signature.name])
        library.function.extend(fallbacks.values())
        added += sum(len(f.node_def) for f in fallbacks.values())
        _list_op(meta_graph)
    conversion = Conversion(
        Path(), None, before, _count_nodes(converted) - added, clusters=tuple(clusters), **_totals(results)
    )
    return converted, conversion


def _stitch_names(nodes: list[Proto], stitched: Stitched) -> tuple[str, ...]:
    """The node of each cluster, in the clusters' order."""
    by_first = {
        n.experimental_debug_info.original_node_names[0]: n.name for n in nodes if n.op == OP
    }
    return tuple(by_first[made.cluster.nodes[0]] for made in stitched.clusters)


def _totals(results: list[Stitched]) -> dict[str, object]:
    artifacts = [made.artifact for stitched in results for made in stitched.clusters]
    rejections: dict[str, int] = {}
    warnings: dict[str, None] = {}
    for rejection in (r for stitched in results for r in stitched.rejections):
        code = rejection.reason.name
        rejections[code] = rejections.get(code, 0) + 1
        if rejection.reason is Reason.BUILD_FAILED:
            warnings[f"a kernel could not be built: {rejection.detail}"] = None
    return {
        "kernels": len({a.key for a in artifacts}),
        "kernels_compiled": sum(a.compile_seconds > 0 for a in artifacts),
        "compile_seconds": sum(a.compile_seconds for a in artifacts),
        "rejections": rejections,
        "warnings": tuple(warnings),
    }


def _list_op(meta_graph: Proto) -> None:
    """Names StitchOp among the ops that the model needs, as `tf.saved_model.save` would."""
    listed = meta_graph.meta_info_def.stripped_op_list
    op_def = op_def_registry.get(OP)
    if op_def is None or any(o.name == OP for o in listed.op):
        return
    stripped = listed.op.add()
    stripped.CopyFrom(op_def)
    stripped.ClearField("description")
    stripped.ClearField("summary")
    for described in (*stripped.attr, *stripped.input_arg, *stripped.output_arg):
        described.ClearField("description")


# ---- Writing -------------------------------------------------------------------------------------------------


def _write(saved_model: Proto, source: Path, destination: Path) -> None:
    """Copies `source` with another proto to `destination`, which appears at once or not at all."""
    try:
        content = saved_model.SerializeToString(deterministic=True)
    except ValueError as error:  # protobuf ends at 2 GB
        raise StitchError(f"the converted model does not fit into a proto: {error}.") from error
    parent = destination.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".partial", dir=parent))
    except OSError as error:
        raise UsageError(f"{parent} cannot be written to: {error}.") from error
    try:
        model = scratch / "model"
        shutil.copytree(source, model)
        (model / _TEXT).unlink(missing_ok=True)
        (model / _BINARY).write_bytes(content)
        if (model / _FINGERPRINT).is_file():
            (model / _FINGERPRINT).unlink()
            fingerprinting_utils.write_fingerprint(str(model))
        _publish(model, destination, scratch)
    except OSError as error:
        raise UsageError(f"{destination} cannot be written: {error}.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _publish(model: Path, destination: Path, scratch: Path) -> None:
    """Moves the finished model to its place; what was there is kept until it is."""
    if not os.path.lexists(destination):
        model.replace(destination)
        return
    old = scratch / "old"
    destination.replace(old)
    try:
        model.replace(destination)
    except BaseException:
        with contextlib.suppress(OSError):
            old.replace(destination)
        raise
