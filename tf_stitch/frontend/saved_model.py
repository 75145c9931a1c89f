"""A SavedModel in, a SavedModel out: its function library is edited in place, everything else is copied.

Variables, assets, signatures and the object graph refer to functions by name, and functions keep theirs; so
the converted model loads like the one it was made from, anywhere the op library is loaded. Kernels are
inside, as attributes of the StitchOps: nothing is compiled where it is served.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf import message as protobuf_message
from google.protobuf import text_format
from tensorflow.python.framework import op_def_registry
from tensorflow.python.saved_model import fingerprinting_utils

from tf_stitch.config import TUNE_SECONDS, Config, default_config
from tf_stitch.errors import Reason, StitchError, UsageError
from tf_stitch.frontend.conversion import Conversion, converted_clusters
from tf_stitch.frontend.convertible import fetched_names, redirect_contexts, refusals
from tf_stitch.frontend.engine import engine_for
from tf_stitch.frontend.importer import import_function_def, import_graph_def
from tf_stitch.frontend.protos import SavedModel
from tf_stitch.frontend.replacement import replacing, sweep
from tf_stitch.frontend.rewrite import OP, rewrite_function_def, rewrite_graph_def
from tf_stitch.frontend.tuning import records, tuned
from tf_stitch.runtime import stitch_op as _registered  # noqa: F401  registers StitchOp
from tf_stitch.tuning.tuner import Tuner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tf_stitch.frontend.conversion import ConvertedCluster
    from tf_stitch.frontend.protos import Proto
    from tf_stitch.frontend.tuning import RacedCluster
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
    never_slower: bool = False,
    tune_inputs: Mapping[str, np.ndarray[Any, Any]] | None = None,
    tune_seconds: float = TUNE_SECONDS,
) -> Conversion:
    """Stitches a SavedModel. `src` is never touched, and `dst` is written whole or not at all.

    Where nothing could be stitched, and where `src` has been converted before, nothing is written:
    `Conversion.destination` is None.

    force: replace a SavedModel that is at `dst`.
    progress: called with a stage ("import", "plan", "build", "race", "write"), how much of it is done, and of
      how much.
    never_slower: race each kernel against the nodes that it replaces, on this machine, and leave those that lose;
      short for `Config(never_slower=True)`. Outcomes are kept beside the kernels: equal races are run once.
    tune_inputs: inputs of the signatures, by name, whose sizes the races are run with. An unknown dim that they do
      not tell is 8 on the first axis, and 64 on others.
    tune_seconds: for all races together. What has not been raced by then is stitched.

    Raises:
      UsageError: where `src` is not a SavedModel that can be read, or `dst` cannot be written to, or one of
        `tune_inputs` is none of the model's, or kernels for GPUs are to be raced.
      EnvironmentProblem: where there is no compiler.
    """
    source, destination = Path(src), Path(dst)
    _check_source(source, destination)
    sweep(destination)
    _check_destination(destination, force=force)
    saved_model = read_saved_model(source)
    if _is_stitched(saved_model):
        nodes = _count_nodes(saved_model)
        return Conversion(source, None, nodes, nodes, already_stitched=True)
    config = config or default_config()
    config = replace(config, never_slower=config.never_slower or never_slower)
    tell = progress or _say_nothing
    units, skipped = units_of(saved_model, progress)
    results = engine_for(config).stitch([u.graph for u in units], progress)
    raced: tuple[RacedCluster, ...] = ()
    if config.never_slower:
        shapes = {name: np.shape(value) for name, value in (tune_inputs or {}).items()}
        results, raced = _tuned(saved_model, units, results, shapes, Tuner(records(), seconds=tune_seconds), tell)
    editing = _edited(saved_model, units, results)
    conversion = replace(_summary(source, saved_model, editing, results), skipped=skipped, raced=raced)
    if not conversion.clusters:
        return conversion
    tell("write", 0, 1)
    _write(editing.proto, source, destination)
    tell("write", 1, 1)
    return replace(conversion, destination=destination)


def _say_nothing(_stage: str, _done: int, _of: int) -> None:
    pass


# ---- Reading -----------------------------------------------------------------------------------------------


def _check_source(source: Path, destination: Path) -> None:
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


def _check_destination(destination: Path, *, force: bool) -> None:
    if not os.path.lexists(destination):
        return
    if not force:
        raise UsageError(f"{destination} exists; choose another directory, or pass --force (force=True) to replace it.")
    is_model = any((destination / name).is_file() for name in (_BINARY, _TEXT, _CHUNKED))
    if not destination.is_dir() or not (is_model or not any(destination.iterdir())):
        raise UsageError(f"{destination} is not a SavedModel; it is not replaced, even by force.")


def read_saved_model(source: Path) -> Proto:
    """The proto of a SavedModel.

    Raises:
      UsageError: where there is none, or none that can be read.
    """
    binary, text = source / _BINARY, source / _TEXT
    try:
        if binary.is_file():
            saved_model = SavedModel.FromString(binary.read_bytes())
        elif text.is_file():
            saved_model = text_format.Parse(text.read_text(), SavedModel())
        elif (source / _CHUNKED).is_file():
            raise UsageError(
                f"{source} is a SavedModel in chunks ({_CHUNKED}), as those over 2 GB are, and cannot be "
                "converted; save it with variables for constants, or without experimental_image_format."
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


# ---- Converting --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """A function, or a main graph, to be stitched. `function` is "" for the latter."""

    meta_graph: int
    function: str
    graph: Graph


def units_of(saved_model: Proto, progress: Progress | None = None) -> tuple[list[Unit], dict[str, str]]:
    """Every graph that may be stitched, and the functions that may not with the reason."""
    tell = progress or _say_nothing
    units: list[Unit] = []
    skipped: dict[str, str] = {}
    for number, meta_graph in enumerate(saved_model.meta_graphs):
        graph_def = meta_graph.graph_def
        functions = {f.signature.name: f for f in graph_def.library.function}
        refused = refusals(graph_def.library, graph_def.node)
        skipped |= {name: reason for name, reason in refused.items() if name in functions}
        wanted = [name for name in functions if name not in refused]
        for done, name in enumerate(wanted):
            tell("import", done, len(wanted) + 1)
            units.append(Unit(number, name, import_function_def(functions[name], functions)))
        tell("import", len(wanted), len(wanted) + 1)
        graph = import_graph_def(graph_def, fetched=fetched_names(meta_graph))
        units.append(Unit(number, "", graph))
        tell("import", len(wanted) + 1, len(wanted) + 1)
    return units, skipped


def _tuned(
    saved_model: Proto,
    units: Sequence[Unit],
    results: Sequence[Stitched],
    shapes: Mapping[str, tuple[int, ...]],
    tuner: Tuner,
    tell: Progress,
) -> tuple[list[Stitched], tuple[RacedCluster, ...]]:
    """The results without the clusters that lost their race."""
    kept: list[Stitched] = []
    raced: list[RacedCluster] = []
    for number, meta_graph in enumerate(saved_model.meta_graphs):  # units stand in this order
        here = [s for unit, s in zip(units, results, strict=True) if unit.meta_graph == number]
        left, races = tuned(meta_graph, here, shapes, tuner, tell)
        kept += left
        raced += races
    return kept, tuple(raced)


class _Editing:
    """The converted proto in the making.

    clusters: what was put in, so far; fallback_nodes: how many nodes came with it.
    """

    def __init__(self, saved_model: Proto) -> None:
        self._original = saved_model
        self.proto = SavedModel()
        self.proto.CopyFrom(saved_model)
        self.clusters: list[ConvertedCluster] = []
        self.fallback_nodes = 0

    def edit_meta_graph(self, number: int, made: Sequence[tuple[Unit, Stitched]]) -> None:
        """Puts the stitched functions and main graph of one meta graph in the place of the old ones."""
        original = self._original.meta_graphs[number].graph_def
        meta_graph = self.proto.meta_graphs[number]
        functions = {f.signature.name: f for f in original.library.function}
        edited: dict[str, Proto] = {}
        fallbacks: dict[str, Proto] = {}
        for unit, stitched in made:
            if not unit.function:
                added = self._edit_main_graph(meta_graph, original, stitched)
            else:
                function = functions[unit.function]
                rewritten, added = rewrite_function_def(function, stitched, functions, embed=True)
                edited[unit.function] = rewritten
                self.clusters += converted_clusters(stitched, _stitch_names(rewritten.node_def, stitched))
            fallbacks |= {f.signature.name: f for f in added}
        for function in meta_graph.graph_def.library.function:
            if function.signature.name in edited:
                function.CopyFrom(edited[function.signature.name])
        meta_graph.graph_def.library.function.extend(fallbacks.values())
        self.fallback_nodes += sum(len(f.node_def) for f in fallbacks.values())
        _list_op(meta_graph)

    def _edit_main_graph(self, meta_graph: Proto, original: Proto, stitched: Stitched) -> list[Proto]:
        """Returns the fallbacks."""
        rewritten = rewrite_graph_def(original, stitched, embed=True)
        del meta_graph.graph_def.node[:]
        meta_graph.graph_def.node.extend(rewritten.node)
        names = _stitch_names(rewritten.node, stitched)
        self.clusters += converted_clusters(stitched, names)
        made = zip(stitched.clusters, names, strict=True)
        redirect_contexts(meta_graph, {node: name for m, name in made for node in m.cluster.nodes})
        return list(rewritten.library.function[len(original.library.function) :])


def _stitch_names(nodes: Sequence[Proto], stitched: Stitched) -> tuple[str, ...]:
    """The node of each cluster, in the clusters' order."""
    by_first = {n.experimental_debug_info.original_node_names[0]: n.name for n in nodes if n.op == OP}
    return tuple(by_first[made.cluster.nodes[0]] for made in stitched.clusters)


def _edited(saved_model: Proto, units: Sequence[Unit], results: Sequence[Stitched]) -> _Editing:
    editing = _Editing(saved_model)
    made = [(unit, stitched) for unit, stitched in zip(units, results, strict=True) if stitched.clusters]
    for number in sorted({unit.meta_graph for unit, _ in made}):
        editing.edit_meta_graph(number, [(u, s) for u, s in made if u.meta_graph == number])
    return editing


def _summary(source: Path, saved_model: Proto, editing: _Editing, results: Sequence[Stitched]) -> Conversion:
    artifacts = [made.artifact for stitched in results for made in stitched.clusters]
    rejections = [rejection for stitched in results for rejection in stitched.rejections]
    failures = [r.detail for r in rejections if r.reason is Reason.BUILD_FAILED]
    return Conversion(
        source=source,
        destination=None,
        nodes_before=_count_nodes(saved_model),
        nodes_after=_count_nodes(editing.proto) - editing.fallback_nodes,
        kernels=len({a.key for a in artifacts}),
        kernels_compiled=sum(a.compile_seconds > 0 for a in artifacts),
        compile_seconds=sum(a.compile_seconds for a in artifacts),
        rejections=dict(Counter(r.reason.name for r in rejections)),
        clusters=tuple(editing.clusters),
        warnings=tuple(f"a kernel could not be built: {detail}" for detail in dict.fromkeys(failures)),
    )


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


# ---- Writing -----------------------------------------------------------------------------------------------


def _write(saved_model: Proto, source: Path, destination: Path) -> None:
    """Copies `source` with another proto to `destination`, which appears at once or not at all."""
    try:
        content = saved_model.SerializeToString(deterministic=True)
    except ValueError as error:  # protobuf ends at 2 GB
        raise StitchError(f"the converted model does not fit into a proto: {error}.") from error
    try:
        with replacing(destination) as model:
            shutil.copytree(source, model)
            (model / _TEXT).unlink(missing_ok=True)
            (model / _BINARY).write_bytes(content)
            if (model / _FINGERPRINT).is_file():
                (model / _FINGERPRINT).unlink()
                fingerprinting_utils.write_fingerprint(str(model))
    except OSError as error:
        raise UsageError(f"{destination} cannot be written: {error}.") from error
