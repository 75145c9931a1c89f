"""StitchOp in this process: loads the native library, and is the Python side of what it offers.

Importing this module imports TensorFlow, registers the op, its gradient and the Grappler optimizer
"tf_stitch", and checks first that the library and TensorFlow were made for each other.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tf_stitch.errors import BuildError, EnvironmentProblem
from tf_stitch.runtime import paths

try:
    import tensorflow as tf
except ImportError as error:
    raise EnvironmentProblem("TensorFlow is not installed; run `pip install 'tensorflow-cpu>=2.21,<2.22'`.") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

_LOG = logging.getLogger(__name__)

TENSORFLOW_RELEASE = "2.21"
OPTIMIZER_NAME = "tf_stitch"


# ---- Loading -----------------------------------------------------------------------------------------------


def _release(version: str) -> str:
    """The `major.minor` of a version: TensorFlow's C++ ABI is stable within it and not beyond."""
    return ".".join(version.split(".")[:2])


def check_environment(tensorflow_version: str, built_for: str) -> None:
    """Raises EnvironmentProblem unless the library can be loaded: a mismatch would crash, not complain."""
    if _release(tensorflow_version) != TENSORFLOW_RELEASE:
        raise EnvironmentProblem(
            f"tf_stitch works with TensorFlow {TENSORFLOW_RELEASE}, and {tensorflow_version} is installed; "
            f"run `pip install 'tensorflow-cpu>={TENSORFLOW_RELEASE},<2.22'`."
        )
    if _release(built_for) != _release(tensorflow_version):
        raise EnvironmentProblem(
            f"{paths.LIBRARY} was built for TensorFlow {built_for}, and {tensorflow_version} is installed; "
            "run `pip install --no-build-isolation --force-reinstall tf-stitch` (or `-e .` in a checkout)."
        )


def _load() -> tuple[ModuleType, ctypes.CDLL]:
    record = json.loads(paths.build_record_path().read_text())
    check_environment(tf.__version__, record["tensorflow"])
    path = str(paths.library_path())
    return tf.load_op_library(path), ctypes.CDLL(path)


_ops, _library = _load()


def native_library() -> ctypes.CDLL:
    """The C functions of the library; their signatures are in ``kernels/kernel_cache.h``."""
    return _library


def ops() -> ModuleType:
    """The generated op wrappers: ``ops().stitch_op(inputs=, Tout=, key=, fallback=, ...)``."""
    return _ops


# ---- Kernels and counters ----------------------------------------------------------------------------------


def _text(function: Callable[..., int], *arguments: bytes) -> str:
    """Calls a C function that fills a buffer and returns the size that all of its text needs."""
    size = 4096
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = function(*arguments, buffer, size)
        if needed <= size:
            return buffer.value.decode()
        size = needed + 1024  # it may grow between two calls


def register_kernel(key: str, path: str) -> None:
    """Loads the kernel in the shared library at `path` under `key`; a key that has a kernel keeps it.

    Ops that exist already find it at their next call.

    Raises:
      BuildError: when the library does not load, or breaks the kernel ABI.
    """
    error = ctypes.create_string_buffer(2048)
    if _library.tf_stitch_register_kernel(key.encode(), str(path).encode(), error, len(error)) != 0:
        reason = error.value.decode(errors="replace")
        raise BuildError(f"kernel {key} does not load: {reason}; delete the file and stitch again.")


def counters() -> dict[str, Any]:
    """What StitchOps did since the last reset: ``{"total": c, "keys": {key: c}}``, each `c` with ``calls``,
    ``fallbacks`` by reason (NO_KERNEL, GUARD, CPU, ABI, DEVICE), ``loads`` and ``load_failures``.
    """
    return json.loads(_text(_library.tf_stitch_counters))


def fallbacks_of(key: str) -> int:
    """How many calls of the kernel `key` fell back since the last reset."""
    counts = counters()["keys"].get(key)
    return sum(counts["fallbacks"].values()) if counts else 0


def reset_counters() -> None:
    """Sets all counters to 0; each key's first fallback is then logged again."""
    _library.tf_stitch_reset_counters()


def loaded_kernels() -> list[dict[str, Any]]:
    """The kernels in this process: key, name, source, counts of inputs, outputs and symbols, guards."""
    return json.loads(_text(_library.tf_stitch_kernels))


def missing_cpu_feature(requirements: str) -> str:
    """The first feature in a list like ``x86_64,avx2,fma`` that this CPU lacks, or ``""``."""
    return _text(_library.tf_stitch_missing_cpu_feature, requirements.encode())


# ---- The Grappler hook -------------------------------------------------------------------------------------


class OutputShape(NamedTuple):
    """What Grappler infers of one output of a node."""

    dtype: int  # a DataType enum
    dims: tuple[int, ...] | None  # None: unknown rank. Negative: a symbol, equal where the dims are equal


@dataclass(frozen=True)
class GrapplerItem:
    """A graph that TensorFlow is optimizing."""

    graph: bytes  # a serialized GraphDef
    shapes: tuple[tuple[OutputShape, ...], ...]  # for each node in order; empty when nothing is known
    preserve: tuple[str, ...]  # names of nodes that must survive
    item_id: str
    params: str  # the `params` of the RewriterConfig entry


_OPTIMIZE_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int64,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
)
_library.tf_stitch_malloc.restype = ctypes.c_void_p
_library.tf_stitch_malloc.argtypes = [ctypes.c_int64]
_library.tf_stitch_set_optimizer_callback.restype = None
_library.tf_stitch_set_optimizer_callback.argtypes = [ctypes.c_void_p]

_optimizer: Callable[[GrapplerItem], bytes | None] | None = None


def parse_shapes(flat: Sequence[int]) -> tuple[tuple[OutputShape, ...], ...]:
    """Undoes the flattening of ``DescribeNode`` in ``kernels/grappler_hook.cc``."""
    numbers = iter(flat)
    nodes: list[tuple[OutputShape, ...]] = []
    for outputs in numbers:
        node: list[OutputShape] = []
        for _ in range(outputs):
            dtype, rank = next(numbers), next(numbers)
            node.append(OutputShape(dtype, None if rank < 0 else tuple(next(numbers) for _ in range(rank))))
        nodes.append(tuple(node))
    return tuple(nodes)


@_OPTIMIZE_TYPE
def _optimize(
    graph: int,
    graph_size: int,
    shapes: Any,
    shapes_size: int,
    preserve: bytes,
    item_id: bytes,
    params: bytes,
    out: Any,
    out_size: Any,
) -> int:
    """Called by Grappler. Returns 1 with a new graph, 0 to keep the old one, -1 on an exception."""
    optimizer = _optimizer
    if optimizer is None:
        return 0
    try:
        item = GrapplerItem(
            graph=ctypes.string_at(graph, graph_size),
            shapes=parse_shapes(shapes[:shapes_size]),
            preserve=tuple(preserve.decode().split("\n")) if preserve else (),
            item_id=item_id.decode(),
            params=params.decode(errors="surrogateescape"),
        )
        optimized = optimizer(item)
        if optimized is None:
            return 0
        memory = _library.tf_stitch_malloc(len(optimized))
        ctypes.memmove(memory, optimized, len(optimized))
        out[0] = memory
        out_size[0] = len(optimized)
    except Exception:  # noqa: BLE001 - C++ above us knows no exceptions, and a model must run without us
        _LOG.exception("tf_stitch leaves graph '%s' as it is", item_id.decode(errors="replace"))
        return -1
    return 1


def set_optimizer_callback(optimizer: Callable[[GrapplerItem], bytes | None] | None) -> None:
    """Sets what runs inside Grappler wherever its optimizer "tf_stitch" is enabled; None for nothing.

    `optimizer` returns a serialized GraphDef, or None to leave the graph. It runs on the thread that calls
    the function being optimized, on several threads at a time, and never inside itself.
    """
    global _optimizer  # noqa: PLW0603 - Grappler is one per process, and so is its optimizer
    _optimizer = optimizer
    _library.tf_stitch_set_optimizer_callback(ctypes.cast(_optimize, ctypes.c_void_p) if optimizer else None)


# A TensorFlow thread that outlives the interpreter must not call into it.
atexit.register(set_optimizer_callback, None)


# ---- The gradient ------------------------------------------------------------------------------------------


def _function_def(name: str, graph: Any) -> Any:
    """The FunctionDef of a function that `graph`, a graph around it, or the eager context knows."""
    from tensorflow.python.eager import context

    while graph is not None:
        if graph._is_function(name):  # noqa: SLF001 - a graph has no public way to name its functions
            return graph._get_function(name).cached_definition  # noqa: SLF001
        graph = getattr(graph, "outer_graph", None)
    eager_context: Any = context.context()
    return eager_context.get_function_def(name)


def import_body(function_def: Any, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Copies the body of a function into the current graph, and returns its outputs."""
    from tensorflow.python.framework import function_def_to_graph

    graph_def, tensor_names = function_def_to_graph.function_def_to_graph_def(function_def)
    for node in graph_def.node:
        node.attr.pop("_class", None)  # colocation with nodes that the function does not hold
    signature = function_def.signature
    return tf.graph_util.import_graph_def(
        graph_def,
        input_map={f"{arg.name}:0": x for arg, x in zip(signature.input_arg, inputs, strict=True)},
        return_elements=[tensor_names[function_def.ret[arg.name]] for arg in signature.output_arg],
        name="stitch_gradient",
    )


def _differentiate(
    function_def: Any, inputs: Sequence[tf.Tensor], output_gradients: Sequence[Any]
) -> list[tf.Tensor | None]:
    """The gradients of a function's inputs, in graph mode."""
    from tensorflow.python.eager import backprop_util

    # Identities, so that the gradient stops at the inputs of this op, however they depend on one another.
    inputs = [tf.identity(x) for x in inputs]
    outputs = import_body(function_def, inputs)
    connected = [(y, dy) for y, dy in zip(outputs, output_gradients, strict=True) if dy is not None]
    wanted = [i for i, x in enumerate(inputs) if backprop_util.IsTrainable(x)]
    gradients: list[tf.Tensor | None] = [None] * len(inputs)
    if not connected or not wanted:
        return gradients
    ys, dys = zip(*connected, strict=True)
    wanted_gradients = tf.gradients(list(ys), [inputs[i] for i in wanted], list(dys))
    for i, gradient in zip(wanted, wanted_gradients, strict=True):
        gradients[i] = gradient
    return gradients


@functools.lru_cache(maxsize=256)
def _eager_gradient(function_def: bytes) -> Any:
    """A tf.function that differentiates the function; kept, so that it is traced once."""
    from tensorflow.core.framework import function_pb2

    definition = function_pb2.FunctionDef.FromString(function_def)
    return tf.function(lambda inputs, dys: _differentiate(definition, inputs, dys), autograph=False)


@tf.RegisterGradient("StitchOp")
def _stitch_op_gradient(op: Any, *output_gradients: Any) -> list[tf.Tensor | None]:
    """Differentiates the fallback: what StitchOp computes, as ops that TensorFlow can differentiate."""
    fallback = op.get_attr("fallback")  # eager ops give the name, graph ops a NameAttrList
    name = fallback.decode() if isinstance(fallback, bytes) else fallback.name
    if not name:
        raise EnvironmentProblem(
            f"StitchOp '{getattr(op, 'name', '')}' has no fallback function, and so no gradient; "
            "make it with `fallback=`."
        )
    function_def = _function_def(name, getattr(op, "graph", None))
    dys = [None if dy is None else tf.convert_to_tensor(dy) for dy in output_gradients]
    if tf.executing_eagerly():
        return _eager_gradient(function_def.SerializeToString(deterministic=True))(list(op.inputs), dys)
    return _differentiate(function_def, list(op.inputs), dys)
