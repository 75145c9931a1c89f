"""Where the time of a step goes: TensorFlow's own trace of it, cut into compute, memory and gaps.

    thread 1   [ MatMul  ]   [ Add ][ Softmax ]            at each moment, what runs shares it: an op alone gets all
    thread 2       [   Mul   ]            [ Read ]         of it, one of two gets half
               ├ C ┤½ C½M┤M ┤├─── memory ───┤├ gap ┤       compute + memory + gap = the step

Compute and memory are what `kernel_rule` says of an op. A gap is all the rest: dispatch, Python, views, bookkeeping,
a wait for another thread. A trace does not tell sizes, so no op is small.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from bench.kernel_rule import Kind, kind_of_op

_STEP = "bench step"
_EVERY_OP = 3  # the tracer's level, at which cheap ops are in the trace too
_END = "end: "  # XLA's name of the moment when a kernel that other threads ran was ready


@dataclass(frozen=True)
class Operation:
    """One run of an op, or of an instruction of XLA. Times in µs from the step's begin; thread: the trace's line."""

    node: str
    op: str
    kind: Kind
    start: float
    duration: float
    thread: int

    @property
    def end(self) -> float:
        return self.start + self.duration


@dataclass(frozen=True)
class Step:
    """One traced call: how long it took, in µs, and what ran in it."""

    duration: float
    operations: tuple[Operation, ...]

    @property
    def launched(self) -> tuple[Operation, ...]:
        """What is neither view nor bookkeeping."""
        return tuple(o for o in self.operations if o.kind in (Kind.COMPUTE, Kind.MEMORY))


def traced(call: Callable[[], object], times: int = 3, *, kinds: Mapping[str, Kind] | None = None) -> Step:
    """The fastest of so many calls. kinds: of the instructions of a program of XLA, for one that XLA runs."""
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=_EVERY_OP, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as directory:
        with tf.profiler.experimental.Profile(directory, options):
            for _ in range(times):
                with tf.profiler.experimental.Trace(_STEP):
                    call()
        spaces = [XSpace.FromString(path.read_bytes()) for path in Path(directory).rglob("*.xplane.pb")]
    events = [event for space in spaces for plane in space.planes for event in _events(plane)]
    spans = [event for event in events if event.name == _STEP]
    fastest = min(spans, key=lambda span: span.duration)
    inside = [e for e in events if fastest.start <= e.start and e.end <= fastest.end]
    operations = _operations(inside) if kinds is None else _instructions(inside, kinds)
    moved = (replace(o, start=o.start - fastest.start) for o in operations)
    return Step(fastest.duration, tuple(sorted(moved, key=lambda o: o.start)))


@dataclass(frozen=True)
class _Event:
    name: str
    hlo_op: str
    start: float
    duration: float
    thread: int

    @property
    def end(self) -> float:
        return self.start + self.duration


def _events(plane: Any) -> Iterable[_Event]:
    stats = plane.stat_metadata
    for number, line in enumerate(plane.lines):
        for event in line.events:
            hlo = (stats[s.ref_value].name or s.str_value for s in event.stats if stats[s.metadata_id].name == "hlo_op")
            start = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
            name = plane.event_metadata[event.metadata_id].name
            yield _Event(name, next(hlo, ""), start, event.duration_ps / 1e6, number)


def _operations(events: Iterable[_Event]) -> list[Operation]:
    """Kernels of ops; one that holds others, on its own thread, is not one."""
    found: list[Operation] = []
    for event in events:
        node, colon, op = event.name.rpartition(":")
        if node and colon and op_def_registry.get(op) is not None:
            kind = kind_of_op(op, (None,))
            found.append(Operation(node, op, kind, event.start, event.duration, event.thread))
    return _innermost(found)


def _instructions(events: Iterable[_Event], kinds: Mapping[str, Kind]) -> list[Operation]:
    """XLA's instructions. What other threads ran for one lasts until its end is told."""
    ends: dict[str, list[_Event]] = {}
    starts: list[_Event] = []
    for event in sorted(events, key=lambda event: event.start, reverse=True):
        if event.name.startswith(_END):
            ends.setdefault(event.name.removeprefix(_END), []).append(event)
        elif event.hlo_op:
            starts.append(event)
    found: list[Operation] = []
    for event in reversed(starts):
        told = ends.get(event.hlo_op, [])
        while told and told[-1].start < event.start:
            told.pop()
        end = max(event.end, told[-1].end if told else event.end)
        kind = kinds.get(event.hlo_op, Kind.MEMORY)
        found.append(Operation(event.hlo_op, event.hlo_op, kind, event.start, end - event.start, event.thread))
    return _innermost(found)


def _innermost(operations: Iterable[Operation]) -> list[Operation]:
    """Without those that hold another one, on the same thread."""
    kept: list[Operation] = []
    open_on: dict[int, list[Operation]] = {}
    holders: set[int] = set()
    for each in sorted(operations, key=lambda o: (o.start, -o.duration)):
        stack = open_on.setdefault(each.thread, [])
        while stack and stack[-1].end <= each.start:
            stack.pop()
        if stack and each.end <= stack[-1].end:
            holders.add(id(stack[-1]))
        stack.append(each)
        kept.append(each)
    return [each for each in kept if id(each) not in holders]


# ---- the sums -----------------------------------------------------------------------------------------------


def shares(step: Step) -> dict[Operation, float]:
    """µs of the step that each op accounts for: what runs at the same time shares the time."""
    operations = step.launched
    moments = sorted({0.0, step.duration, *(t for o in operations for t in (o.start, o.end))})
    found = dict.fromkeys(operations, 0.0)
    running: list[Operation] = []
    waiting = sorted(operations, key=lambda o: o.start, reverse=True)
    for begin, end in itertools.pairwise(moments):
        while waiting and waiting[-1].start <= begin:
            running.append(waiting.pop())
        running = [o for o in running if o.end > begin]
        for operation in running:
            found[operation] += (end - begin) / len(running)
    return found


def breakdown(step: Step, step_ms: float) -> dict[str, float | int]:
    """Milliseconds of compute, memory and gaps, which sum up to `step_ms`, the time of a step that is not traced."""
    scale = step_ms / step.duration if step.duration else 0.0
    found = shares(step)
    by_kind = {kind: sum(t for o, t in found.items() if o.kind is kind) * scale for kind in (Kind.COMPUTE, Kind.MEMORY)}
    counts = {kind: sum(o.kind is kind for o in found) for kind in by_kind}
    return {
        "compute_ms": by_kind[Kind.COMPUTE],
        "memory_ms": by_kind[Kind.MEMORY],
        "gap_ms": max(0.0, step_ms - sum(by_kind.values())),
        "compute_ops": counts[Kind.COMPUTE],
        "memory_ops": counts[Kind.MEMORY],
    }


# ---- for people ---------------------------------------------------------------------------------------------


def top_table(step: Step, step_ms: float, title: str, most: int = 25) -> str:
    """The ops of a step by time, then the nodes, and what is left between them."""
    found = shares(step)
    scale = step_ms / step.duration if step.duration else 0.0
    parts = breakdown(step, step_ms)
    named = [(part, parts[f"{part}_ms"]) for part in ("compute", "memory", "gap")]
    lines = [title, ", ".join(f"{part} {ms:.3f} ms ({_share(ms, step_ms)})" for part, ms in named), ""]
    for heading, key in (("op", _op), ("node", _node)):
        sums: dict[tuple[str, Kind], tuple[float, int]] = {}
        for operation, time in found.items():
            ms, times = sums.get((key(operation), operation.kind), (0.0, 0))
            sums[key(operation), operation.kind] = ms + time * scale, times + 1
        lines.append(f"{'ms':>10} {'share':>6} {'times':>6}  {'kind':<8} {heading}")
        for (name, kind), (ms, times) in sorted(sums.items(), key=lambda item: -item[1][0])[:most]:
            lines.append(f"{ms:10.3f} {_share(ms, step_ms):>6} {times:6}  {kind.name.lower():<8} {name}")
        lines.append("")
    lines.append("the longest gaps")
    lines += [f"{gap * scale:10.3f} ms before {before}" for gap, before in gaps(step)[:10]]
    return "\n".join(lines) + "\n"


def gaps(step: Step) -> list[tuple[float, str]]:
    """(µs in which no op ran, what ran next), the longest first."""
    found: list[tuple[float, str]] = []
    reached = 0.0
    for operation in sorted(step.launched, key=lambda o: o.start):
        if operation.start > reached:
            found.append((operation.start - reached, f"{operation.node}:{operation.op}"))
        reached = max(reached, operation.end)
    if step.duration > reached:
        found.append((step.duration - reached, "the end of the step"))
    return sorted(found, reverse=True)


def chrome_trace(step: Step) -> str:
    """JSON that Perfetto and chrome://tracing open."""
    events = [
        {
            "name": operation.op,
            "cat": operation.kind.name.lower(),
            "ph": "X",
            "ts": operation.start,
            "dur": operation.duration,
            "pid": 1,
            "tid": operation.thread,
            "args": {"node": operation.node, "kind": operation.kind.value},
        }
        for operation in step.operations
    ]
    whole = {"name": "step", "cat": "step", "ph": "X", "ts": 0.0, "dur": step.duration, "pid": 1, "tid": -1}
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": [whole, *events]}) + "\n"


def _op(operation: Operation) -> str:
    return operation.op


def _node(operation: Operation) -> str:
    return f"{operation.node}:{operation.op}"


def _share(ms: float, of: float) -> str:
    return f"{ms / of:.0%}" if of else "–"
