"""Races between kernels and the nodes that they replace, run by TensorFlow; see `tuning/` for what is decided.

Both sides are functions, called from Python with the same tensors: one holds the cluster's nodes (its fallback),
which Grappler may optimize as it does anywhere, the other a StitchOp. A small cluster takes microseconds, and a call
from Python takes fifty. So its function holds several copies, one after the other:

    operands ─► copy ─► IdentityN ─► copy ─► IdentityN ─► copy ─► ...
        └──────────────────┘  └─────────────────┘

IdentityN waits for a copy and hands the operands on, as other values than before: no two copies are the same to
Grappler, and none is without a reader, as long as its optimizers "pruning" and "dependency" stay away, which know
what IdentityN does. All others do to the copies what they do anywhere. A third function has the same calls and
IdentityNs, and no copies.

The functions' name keeps the optimizer "tf_stitch" off them, so that a race under `tf_stitch.enable()` does not
stitch what it compares with.

A conversion runs its races between the build and the rewrite (`tuned`). A function that is stitched in the process
cannot: Grappler calls us on a thread of TensorFlow's, in the middle of starting a function, and what we would start
there may wait for that very thread. So there (`Deferred`) Grappler's callback only looks up what is known, and notes
the contests that are not; they are run when the call is over, on the thread that made it. Where a kernel loses, the
next call is optimized again, without it: the first call always runs stitched.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tf_stitch.config import strict
from tf_stitch.errors import Reason, UsageError
from tf_stitch.frontend.fallback import FALLBACK_PREFIX
from tf_stitch.frontend.options import raced_options
from tf_stitch.frontend.rewrite import OP, rewrite_function_def, rewrite_graph_def
from tf_stitch.ir.graph import Value
from tf_stitch.plan.target import Target
from tf_stitch.runtime import stitch_op
from tf_stitch.toolchain.once import warn_once
from tf_stitch.tuning.contest import Contest, Unraceable, contest_of
from tf_stitch.tuning.propagation import propagated
from tf_stitch.tuning.race import Call, Competitors
from tf_stitch.tuning.records import Records
from tf_stitch.tuning.tuner import Tuner, Verdict, without_losers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tf_stitch.frontend.protos import Proto
    from tf_stitch.ir.graph import Graph
    from tf_stitch.pipeline import Progress, Stitched, StitchedCluster
    from tf_stitch.toolchain.artifact import Artifact

_LOG = logging.getLogger("tf_stitch.tuning")
_SEED = 0
_MOST_COPIES, _MOST_NODES, _MOST_BYTES = 16, 256, 4 << 20  # of a cluster in one function


def records() -> Records:
    """Those of this machine, as TensorFlow is set up in this process."""
    cpu = Target.this_cpu()
    threads = tf.config.threading.get_intra_op_parallelism_threads() or cpu.threads
    return Records(f"{cpu.name}, {cpu.isa}, {threads} of {cpu.threads} threads, TensorFlow {tf.__version__}")


# ---- One race ----------------------------------------------------------------------------------------------


def competitors(artifact: Artifact, fallback: Proto, contest: Contest) -> Competitors:
    """The calls of a race between a kernel and the nodes of `fallback`, a FunctionDef.

    Raises:
      Unraceable: where this CPU cannot run the kernel, or only by falling back, or the nodes fail.
    """
    missing = stitch_op.missing_cpu_feature(artifact.requires)
    if missing:
        raise Unraceable(f"this CPU cannot run the kernel, which needs {missing}")
    stitch_op.register_kernel(artifact.key, str(artifact.path))
    random = np.random.default_rng(_SEED)
    with tf.device("/CPU:0"):
        operands = [tf.constant(operand.array(random)) for operand in contest.operands]
    types = [tf.as_dtype(argument.type) for argument in fallback.signature.output_arg]
    copies = _copies(len(fallback.node_def), contest)

    def original(*inputs: Any) -> Sequence[Any]:
        return stitch_op.import_body(fallback, inputs)

    single = _function(original, operands, 1)
    try:
        single(*operands)
    except tf.errors.InvalidArgumentError as error:
        complaint = error.message.strip().splitlines()[0]
        raise Unraceable(f"the nodes do not take what was made up for them: {complaint}") from error

    def stitch(*inputs: Any) -> Sequence[Any]:
        return stitch_op.ops().stitch_op(inputs=inputs, Tout=types, key=artifact.key, fallback=single)

    def nothing(*inputs: Any) -> Sequence[Any]:
        return [(inputs or (tf.constant(0),))[0]] * len(types)

    stitched = _function(stitch, operands, copies)
    before = stitch_op.fallbacks_of(artifact.key)
    stitched(*operands)
    if stitch_op.fallbacks_of(artifact.key) != before:
        raise Unraceable("a guard of the kernel does not hold for these operands")
    return Competitors(
        _call(stitched, operands),
        _call(_function(original, operands, copies), operands),
        _call(_function(nothing, operands, copies), operands),
        copies,
    )


def _copies(nodes: int, contest: Contest) -> int:
    """As many as are soon made, and soon run."""
    if not contest.operands:
        return 1
    size = max(1, sum(operand.bytes for operand in contest.operands))
    return max(1, min(_MOST_COPIES, _MOST_NODES // nodes, _MOST_BYTES // size))


def _function(body: Callable[..., Sequence[Any]], operands: Sequence[tf.Tensor], copies: int) -> Any:
    """The concrete function that runs `body` this many times, one after the other."""

    def traced(*inputs: Any) -> Any:
        results: Sequence[Any] = ()
        for _ in range(copies):
            passed = tf.raw_ops.IdentityN(input=[*inputs, *body(*inputs)])
            inputs, results = passed[: len(inputs)], passed[len(inputs) :]
        return results

    traced.__name__ = f"{FALLBACK_PREFIX}race"
    specs = [tf.TensorSpec(operand.shape, operand.dtype) for operand in operands]
    return tf.function(traced, autograph=False).get_concrete_function(*specs)


def _call(function: Any, operands: Sequence[tf.Tensor]) -> Call:
    """The shortest way into a concrete function: what Python does around it varies more than many a kernel takes."""
    return functools.partial(function._inference_function.call_preflattened, operands)  # noqa: SLF001


# ---- A conversion ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RacedCluster:
    """A cluster and what was found of it. `sizes`: the operands in words, "" where none could be made up."""

    function: str
    cluster: str
    kernel: str
    sizes: str
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """Times are null where there was no race; "how" then tells why."""
        outcome = self.verdict.outcome
        return {
            "function": self.function,
            "cluster": self.cluster,
            "kernel": self.kernel,
            "sizes": self.sizes,
            "stitch_us": outcome and outcome.stitch_us,
            "original_us": outcome and outcome.original_us,
            "stitch_cpu_us": outcome and outcome.stitch_cpu_us,
            "original_cpu_us": outcome and outcome.original_cpu_us,
            "doubt_us": outcome and outcome.doubt_us,
            "rounds": outcome and outcome.rounds,
            "kept": self.verdict.kept,
            "how": self.verdict.why,
        }


def tuned(
    meta_graph: Proto,
    results: Sequence[Stitched],
    given: Mapping[str, tuple[int, ...]],
    tuner: Tuner,
    tell: Progress,
) -> tuple[list[Stitched], list[RacedCluster]]:
    """The graphs of a meta graph without the clusters that lost their race, and what each race gave.

    results: of its main graph, named "", and of functions. given: shapes of inputs of its signatures, by name.

    Raises:
      UsageError: where an input that is given is none of any signature, or does not fit.
    """
    graph_def = meta_graph.graph_def
    functions = {f.signature.name: f for f in graph_def.library.function}
    graphs = {stitched.graph.name: stitched.graph for stitched in results}
    dims = propagated(graphs, _fed(meta_graph, graphs.get(""), given))
    total, done = sum(len(stitched.clusters) for stitched in results), 0
    kept: list[Stitched] = []
    raced: list[RacedCluster] = []
    for stitched in results:
        graph = stitched.graph
        fallbacks = _fallbacks(graph_def, functions, stitched) if stitched.clusters else {}
        verdicts: list[Verdict] = []
        for made in stitched.clusters:
            tell("race", done, total)
            fallback = fallbacks[made.cluster.nodes[0]]
            sizes, verdict = _verdict(graph, made, dims[graph.name], fallback, tuner)
            raced.append(RacedCluster(graph.name, made.cluster.name, made.artifact.key, sizes, verdict))
            verdicts.append(verdict)
            done += 1
        kept.append(without_losers(stitched, [v.outcome for v in verdicts]))
    tell("race", done, total)
    return kept, raced


def _verdict(
    graph: Graph, made: StitchedCluster, dims: Mapping[str, int], fallback: Proto, tuner: Tuner
) -> tuple[str, Verdict]:
    contest = _contest(graph, made, dims)
    if isinstance(contest, str):
        return "", Verdict(None, contest)
    with _racing():
        return contest.sizes, tuner.verdict(contest, functools.partial(competitors, made.artifact, fallback))


def _contest(graph: Graph, made: StitchedCluster, dims: Mapping[str, int]) -> Contest | str:
    """The contest, or why there is none. An error of ours keeps the kernel; under TF_STITCH_STRICT=1 it is raised."""
    try:
        return contest_of(graph, made, made.artifact.key, dims)
    except Unraceable as reason:
        return str(reason)
    except Exception as error:
        if strict():
            raise
        warn_once(_LOG, ("contest", type(error)), "a kernel is kept without a race, because of %r", error)
        return f"{type(error).__name__}: {error}"


def _fallbacks(graph_def: Proto, functions: Mapping[str, Proto], stitched: Stitched) -> dict[str, Proto]:
    """The FunctionDef of each cluster, by its first node."""
    if stitched.graph.name:
        rewritten, added = rewrite_function_def(functions[stitched.graph.name], stitched, functions)
        return _by_first_node(rewritten.node_def, added)
    rewritten = rewrite_graph_def(graph_def, stitched)
    return _by_first_node(rewritten.node, rewritten.library.function)


def _by_first_node(nodes: Iterable[Proto], functions: Iterable[Proto]) -> dict[str, Proto]:
    by_name = {function.signature.name: function for function in functions}
    return {
        node.experimental_debug_info.original_node_names[0]: by_name[node.attr["fallback"].func.name]
        for node in nodes
        if node.op == OP and node.attr["fallback"].func.name in by_name
    }


def _fed(meta_graph: Proto, main: Graph | None, given: Mapping[str, tuple[int, ...]]) -> dict[Value, tuple[int, ...]]:
    """The values of the main graph that inputs of signatures are fed to, with their shapes."""
    known = {name for signature in meta_graph.signature_def.values() for name in signature.inputs}
    fed: dict[Value, tuple[int, ...]] = {}
    for name, shape in given.items():
        if name not in known:
            inputs = ", ".join(sorted(known)) or "none"
            raise UsageError(f"there is no input {name!r} to tune with; the inputs of the signatures are {inputs}.")
        fits = False
        for signature in meta_graph.signature_def.values():
            if name not in signature.inputs:
                continue
            declared = tf.TensorShape(signature.inputs[name].tensor_shape)
            if declared.is_compatible_with(shape):
                node, _, index = signature.inputs[name].name.partition(":")
                value = Value(node, int(index or 0))
                if main is not None and node in main.nodes:
                    fed[value] = shape
                fits = True
        if not fits:
            raise UsageError(f"input {name!r} to tune with has the shape {list(shape)}, which no signature takes.")
    return fed


# ---- In the process ----------------------------------------------------------------------------------------


ANY_CALLER = 0  # no thread has this number


def caller() -> int:
    """The thread to tell what happens on this one: itself, or any that calls us where this is one of TensorFlow's."""
    own = threading.get_ident()
    found = (t for t in threading.enumerate() if t.ident == own)
    started_in_python = any(not isinstance(t, threading._DummyThread) for t in found)  # noqa: SLF001
    return own if started_in_python else ANY_CALLER


@dataclass(frozen=True)
class _Noted:
    """A contest that is to be raced when TensorFlow has returned."""

    contest: Contest
    artifact: Artifact
    fallback: Proto


class Deferred:
    """Verdicts for functions that are stitched in the process; see the head of this module.

    epoch: how often kernels were found to lose. It is part of the options that functions are called with, so that a
      new one makes TensorFlow optimize them again.
    """

    def __init__(self, tuner: Tuner) -> None:
        self._tuner = tuner
        self._lock = threading.Lock()
        self._noted: dict[int, dict[str, _Noted]] = {}  # by thread
        self.epoch = 0

    def judged(self, stitched: Stitched) -> tuple[Stitched, dict[int, Contest]]:
        """Without the known losers, and the contests of clusters (by number) of which nothing is known yet.

        Runs nothing of TensorFlow.
        """
        found = [_contest(stitched.graph, made, {}) for made in stitched.clusters]
        contests = [None if isinstance(contest, str) else contest for contest in found]
        outcomes = [None if c is None else self._tuner.known(c) for c in contests]
        left = [(c, o) for c, o in zip(contests, outcomes, strict=True) if o is None or o.kept]
        unknown = {number: c for number, (c, o) in enumerate(left) if c is not None and o is None}
        return without_losers(stitched, outcomes), unknown

    def note(self, contests: Mapping[int, Contest], stitched: Stitched, rewritten: Proto) -> None:
        """Remembers contests of `stitched`, whose StitchOps and fallbacks are in `rewritten`."""
        fallbacks = _by_first_node(rewritten.node, rewritten.library.function)
        with self._lock:
            mine = self._noted.setdefault(caller(), {})
            for number, contest in contests.items():
                made = stitched.clusters[number]
                mine[contest.key] = _Noted(contest, made.artifact, fallbacks[made.cluster.nodes[0]])

    @property
    def has_noted(self) -> bool:
        """Whether any thread has a race to run."""
        return bool(self._noted)

    def race(self) -> bool:
        """Runs the races that this thread has noted; whether any kernel lost. Not while a function is traced."""
        if not tf.executing_eagerly():
            return False
        with self._lock:
            mine = self._noted.pop(threading.get_ident(), {}) | self._noted.pop(ANY_CALLER, {})
        lost = 0
        for noted in mine.values():
            make = functools.partial(competitors, noted.artifact, noted.fallback)
            with _racing():
                lost += not self._tuner.verdict(noted.contest, make).kept
        if lost:
            _LOG.info("%s: %d of %d kernels", Reason.SLOWER.value, lost, len(mine))
            with self._lock:
                self.epoch += 1
        return bool(lost)


@contextlib.contextmanager
def _racing() -> Iterator[None]:
    """Functions that this thread calls inside run as those of a race have to."""
    tf_context: Any = context.context()
    own = tf_context.function_call_options
    tf_context.function_call_options = raced_options(own)
    try:
        yield
    finally:
        tf_context.function_call_options = own


@functools.cache
def deferred() -> Deferred:
    """The one of this process."""
    return Deferred(Tuner(records()))
