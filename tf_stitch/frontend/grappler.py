"""The optimizer "tf_stitch": what Grappler calls with each graph, on the thread that runs the function.

What arrives is the graph as it will run: functions inlined, While and If lowered to Switch and Merge, devices
placed, gradients in. A function that is not inlined arrives by itself, when it is called (`calls`). What
leaves is the same graph with clusters stitched, or nothing at all: an exception here is logged and counted
and the model runs as it would have. Under TF_STITCH_STRICT=1 it also waits for the caller to raise it
(`raise_pending`), since no exception crosses TensorFlow's executor.

The same graph comes again and again, from other threads and for other configurations: each is compiled once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import signal
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tf_stitch.config import Config, enabled, strict
from tf_stitch.errors import EnvironmentProblem, Reason, StitchError, StrictError
from tf_stitch.frontend.calls import stitched_calls
from tf_stitch.frontend.engine import engine_for
from tf_stitch.frontend.fallback import FALLBACK_PREFIX
from tf_stitch.frontend.importer import import_graph_def
from tf_stitch.frontend.protos import GraphDef
from tf_stitch.frontend.rewrite import OP, rewrite_graph_def
from tf_stitch.frontend.tuning import ANY_CALLER, caller, deferred
from tf_stitch.runtime import stitch_op

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tf_stitch.frontend.protos import Proto
    from tf_stitch.frontend.typing_pass import Declared
    from tf_stitch.pipeline import Stitched
    from tf_stitch.runtime.stitch_op import GrapplerItem
    from tf_stitch.tuning.contest import Contest

_LOG = logging.getLogger("tf_stitch")
_MEMO_BYTES = 64 * 1024 * 1024
_RETURN_SECONDS = 0.05
_EPOCH = "epoch"
_LOST = "_tf_stitch_lost"  # an attribute; TensorFlow ignores those with an underscore


@dataclasses.dataclass
class Counts:
    """What the optimizer did in this process since the last `reset`.

    graphs: seen; stitched: got at least one StitchOp; memoised: answered from memory; failed: left as they
      were because of an exception.
    kernels: clusters that a kernel was made for; compiled: of these, how many the compiler ran for.
    rejections: nodes that were not stitched, by reason code.
    """

    graphs: int = 0
    stitched: int = 0
    memoised: int = 0
    failed: int = 0
    kernels: int = 0
    compiled: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    rejections: dict[str, int] = dataclasses.field(default_factory=dict[str, int])


# ---- Parameters --------------------------------------------------------------------------------------------


def params_of(config: Config) -> str:
    """The config as the text that RewriterConfig carries to the optimizer: what differs from the default.

    Where kernels are raced, also how often some were found to lose: a new text makes TensorFlow optimize again.
    """
    changed = config.changed()
    if config.never_slower:
        changed[_EPOCH] = deferred().epoch
    return json.dumps(changed, sort_keys=True) if changed else ""


def is_older(params: str, than: str) -> bool:
    """Whether both mean the same config, and kernels were found to lose since `params` were written."""
    return params != than and config_of(params) == config_of(than)


def config_of(params: str) -> Config:
    """The inverse of `params_of`."""
    if not params:
        return Config()
    changed: dict[str, Any] = json.loads(params)
    changed.pop(_EPOCH, None)
    default = Config()
    for name, value in changed.items():
        if isinstance(getattr(default, name), frozenset):
            changed[name] = frozenset(value)
    return dataclasses.replace(default, **changed)


# ---- The callback ------------------------------------------------------------------------------------------


class Optimizer:
    """The callback with what it remembers. One per process; any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memo: OrderedDict[bytes, Future[bytes | None]] = OrderedDict()
        self._memo_bytes = 0
        self._counts = Counts()
        self._pending: dict[int, BaseException] = {}
        self._complained: set[str] = set()
        self._interrupt: threading.Timer | None = None

    def __call__(self, item: GrapplerItem) -> bytes | None:
        """A serialized GraphDef, or None to leave the graph as it is. Never raises."""
        if not enabled() or FALLBACK_PREFIX in item.item_id:
            return None
        started = time.perf_counter()
        try:
            return self._optimized(item)
        except Exception as error:  # noqa: BLE001  the model must run, whatever we did wrong
            self._failed(item, error)
            return None
        except BaseException:  # noqa: BLE001  Ctrl-C
            self._interrupted()
            return None
        finally:
            with self._lock:
                self._counts.graphs += 1
                self._counts.seconds += time.perf_counter() - started

    def counts(self) -> Counts:
        with self._lock:
            return dataclasses.replace(self._counts, rejections=dict(self._counts.rejections))

    def reset(self) -> None:
        """Sets the counts to 0; what was compiled stays known."""
        with self._lock:
            self._counts = Counts()

    def forget(self) -> None:
        """Drops what is remembered of graphs and of complaints, so that the next one is compiled again."""
        with self._lock:
            self._complained.clear()
            self._memo.clear()
            self._memo_bytes = 0

    @property
    def has_pending(self) -> bool:
        """Whether any thread has something to raise."""
        return bool(self._pending) or self._interrupt is not None

    def raise_pending(self) -> None:
        """Raises what went wrong on this thread under TF_STITCH_STRICT=1, and what Ctrl-C had to wait with.

        Raises:
          StrictError: with the cause.
        """
        interrupt = self._interrupt
        if interrupt is not None and threading.current_thread() is threading.main_thread():
            interrupt.cancel()
            self._interrupt = None
            raise KeyboardInterrupt
        with self._lock:
            error = self._pending.pop(threading.get_ident(), None) or self._pending.pop(ANY_CALLER, None)
        if error is not None:
            raise StrictError(f"a graph could not be stitched: {error}") from error

    def _failed(self, item: GrapplerItem, error: Exception) -> None:
        with self._lock:
            self._counts.failed += 1
            if strict():
                self._pending[caller()] = error
            known = str(error) in self._complained
            self._complained.add(str(error))
        if isinstance(error, EnvironmentProblem):
            if not known:
                _LOG.warning("functions run unstitched: %s", error)
        else:
            _LOG.error("graph '%s' is left as it was", item.item_id, exc_info=error)

    def _interrupted(self) -> None:
        """Ctrl-C again when TensorFlow has returned to Python, since no exception passes through it.

        To a function of ours it returns first (`raise_pending`); for others we wait a moment.
        """
        with self._lock:
            self._counts.failed += 1
            if self._interrupt is None:
                self._interrupt = threading.Timer(_RETURN_SECONDS, self._interrupt_main)
                self._interrupt.daemon = True
                self._interrupt.start()

    def _interrupt_main(self) -> None:
        self._interrupt = None
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _optimized(self, item: GrapplerItem) -> bytes | None:
        graph_def = GraphDef.FromString(item.graph)
        if not graph_def.node or any(_is_ours(n) for n in graph_def.node):
            return None  # TensorFlow optimizes twice
        key = _key(graph_def, item)
        with self._lock:
            future = self._memo.get(key)
            first = future is None
            if future is None:
                future = self._memo[key] = Future()
            else:
                self._memo.move_to_end(key)
                self._counts.memoised += 1
        if first:
            try:
                result = self._stitched(graph_def, item)
            except BaseException as error:
                with self._lock:
                    self._memo.pop(key, None)
                interrupted = not isinstance(error, Exception)  # is this thread's affair
                future.set_exception(StitchError("another thread was interrupted") if interrupted else error)
                raise
            future.set_result(result)
            self._remember(result)
        return future.result()

    def _remember(self, result: bytes | None) -> None:
        """Counts `result` in, and drops the graphs least recently used when they are too many."""
        with self._lock:
            self._memo_bytes += _weight(result)
            while self._memo_bytes > _MEMO_BYTES and len(self._memo) > 1:
                oldest = next(iter(self._memo))
                if not self._memo[oldest].done():
                    break
                self._memo_bytes -= _weight(self._memo.pop(oldest).result())

    def _stitched(self, graph_def: Proto, item: GrapplerItem) -> bytes | None:
        engine = engine_for(config_of(item.params))
        graph = import_graph_def(
            graph_def, shapes=shapes_of(graph_def.node, item), fetched=item.preserve, name=item.item_id
        )
        (stitched,) = engine.stitch([graph])
        contests: dict[int, Contest] = {}
        if engine.config.never_slower:
            stitched, contests = deferred().judged(stitched)
        self._count(stitched)
        lost = {r.node for r in stitched.rejections if r.reason is Reason.SLOWER}
        calls = stitched_calls(graph_def, item.params, is_older)
        if not stitched.clusters and not lost and not calls:
            return None
        for made in stitched.clusters:
            stitch_op.register_kernel(made.artifact.key, str(made.artifact.path))
        rewritten = rewrite_graph_def(graph_def, stitched)
        for node in rewritten.node:
            if node.name in lost:
                node.attr[_LOST].b = True
            if node.name in calls:
                node.attr["config_proto"].s = calls[node.name]
        if contests:
            deferred().note(contests, stitched, rewritten)
        return rewritten.SerializeToString(deterministic=True)

    def _count(self, stitched: Stitched) -> None:
        artifacts = [made.artifact for made in stitched.clusters]
        with self._lock:
            counts = self._counts
            counts.stitched += bool(artifacts)
            counts.kernels += len(artifacts)
            counts.compiled += sum(a.compile_seconds > 0 for a in artifacts)
            counts.compile_seconds += sum(a.compile_seconds for a in artifacts)
            for rejection in stitched.rejections:
                code = rejection.reason.name
                counts.rejections[code] = counts.rejections.get(code, 0) + 1
        for rejection in stitched.rejections:
            if strict() and rejection.reason is Reason.BUILD_FAILED:
                raise StrictError(f"{rejection.node}: {rejection.detail}")


def _is_ours(node: Proto) -> bool:
    """Whether it tells that we have seen the graph: a StitchOp of ours, or a node that was raced and stays a node.

    A StitchOp of a converted model is none of ours: it brings its kernel along.
    """
    return _LOST in node.attr or (node.op == OP and not node.attr["artefact"].s)


def _weight(result: bytes | None) -> int:
    return 64 + (0 if result is None else len(result))


def _key(graph_def: Proto, item: GrapplerItem) -> bytes:
    """Equal for graphs that get the same answer."""
    digest = hashlib.sha256(graph_def.SerializeToString(deterministic=True))
    digest.update(repr((item.shapes, item.preserve, item.params)).encode())
    return digest.digest()


def shapes_of(nodes: Iterable[Proto], item: GrapplerItem) -> dict[str, list[Declared]] | None:
    """Grappler's shapes by node name; None, so that the importer looks elsewhere, when it has none."""
    if not any(item.shapes):
        return None
    return {
        node.name: [output.dims for output in outputs]
        for node, outputs in zip(nodes, item.shapes, strict=True)
        if outputs
    }


_optimizer = Optimizer()
_installed = False
_install_lock = threading.Lock()


def install() -> Optimizer:
    """Makes Grappler call us wherever the optimizer "tf_stitch" is enabled. Again is harmless."""
    global _installed  # noqa: PLW0603  Grappler is one per process
    with _install_lock:
        if not _installed:
            stitch_op.set_optimizer_callback(_optimizer)
            _installed = True
    return _optimizer


def counts() -> Any:
    return _optimizer.counts()
