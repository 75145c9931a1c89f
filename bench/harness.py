"""Measure one workload at one shape under TensorFlow, XLA and tf_stitch, in this process.

Where TensorFlow has ops for just that work (a workload's `rival`), they are measured too, in the same turns.

How a figure comes about:

* Compile cost: CPU seconds, those of compilers run as children included, of the first call of a single copy.
* Accuracy: that copy's outputs, and the chain's, against the same function run by TensorFlow in float64 on
  the same inputs: the largest difference, relative to the largest value.
* Kernels: of a single copy. StitchOps are counted as they run, XLA's kernels in its optimised HLO. What tf_stitch
  left to TensorFlow (`stitch_left`, in ops, less those that only rename a shape) is what `tf_stitch.explain` says.
* Time: of a chain of copies (see `workloads/chain.py`), all three measured in turns, less the time of a call
  with the same arguments that does all but the copies, divided by the copies. On one thread the figure is CPU
  time of the process, which other users of the machine hardly change; on several it is wall time. Ratios are
  between medians; the quartiles, the best, and what was taken off are in the row's `spread`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from bench import baselines, timing
from bench.baselines import Absent, Way
from bench.timing import Effort, Spread
from bench.workloads import chain
from bench.workloads.workload import Arrays, Rival, Shape, Workload

# An output agrees when its error is below this, or below twice TensorFlow's own.
TOLERANCE = 1e-5
# Stands for NaN and infinity, which JSON has not.
NO_AGREEMENT = 1e30

RIVAL = "rival"

Row = dict[str, Any]


@dataclass(frozen=True)
class Kernels:
    """What runs a copy: so many kernels and, beside them, so many ops that were left to TensorFlow. None: not known."""

    count: int | None = None
    left: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """One way on one workload and shape, before the clock is started."""

    chain_call: Callable[[], Any]
    empty_call: Callable[[], Any]
    compile_cpu_s: float
    error: float
    chain_error: float
    kernels: Kernels


@dataclass(frozen=True)
class Case:
    """A workload at a shape: the arguments and right answers of one copy and of a chain."""

    workload: Workload
    shape: Shape
    copies: int
    one_arguments: tuple[tf.Tensor, ...]
    chain_arguments: tuple[tf.Tensor, ...]
    one_right: Arrays
    chain_right: Arrays

    @staticmethod
    def of(workload: Workload, shape: Shape, copies: int | None = None) -> Case:
        copies = workload.copies(shape) if copies is None else copies
        one = workload.arrays(shape, 1)
        one_arguments, one_right = _tensors(one), float64_run(workload, 1, one)
        if copies == 1:
            return Case(workload, shape, 1, one_arguments, one_arguments, one_right, one_right)
        many = workload.arrays(shape, copies)
        return Case(
            workload, shape, copies, one_arguments, _tensors(many), one_right, float64_run(workload, copies, many)
        )


def float64_run(workload: Workload, copies: int, arrays: Arrays) -> Arrays:
    function = tf.function(chain.reference(workload, copies), autograph=False)
    return _outputs(function(*(tf.constant(a, tf.float64 if a.dtype.kind == "f" else None) for a in arrays)))


def measure(case: Case, ways: tuple[Way | Absent, ...], threads: int, effort: Effort) -> Row:
    prepared = {way.name: _prepared(way, case) for way in ways}
    if case.workload.rival is not None:
        prepared[RIVAL] = _or_why_not(_prepare_rival, case.workload.rival, case)
    outcomes = {name: o for name, o in prepared.items() if isinstance(o, Outcome)}
    absent = {name: o for name, o in prepared.items() if isinstance(o, str)}
    calls = {name: o.chain_call for name, o in outcomes.items()}
    empties = {_empty(name): o.empty_call for name, o in outcomes.items()}
    samples = timing.interleaved({**calls, **empties}, effort)
    clock = "cpu" if threads == 1 else "wall"
    spreads = {
        name: Spread.of(getattr(samples[name], clock), getattr(samples[_empty(name)], clock), case.copies)
        for name in outcomes
    }
    return _row(case, threads, clock, outcomes, spreads, absent)


def relative_error(outputs: Arrays, right: Arrays) -> float:
    worst = 0.0
    for got, want in zip(outputs, right, strict=True):
        if not np.array_equal(np.isfinite(got), np.isfinite(want)):
            return NO_AGREEMENT
        worst = max(worst, float(np.max(np.abs(got - want))) / max(float(np.max(np.abs(want))), 1e-30))
    return worst if np.isfinite(worst) else NO_AGREEMENT


def _prepared(way: Way | Absent, case: Case) -> Outcome | str:
    return way.reason if isinstance(way, Absent) else _or_why_not(_prepare, way, case)


def _or_why_not(prepare: Callable[..., Outcome], *arguments: Any) -> Outcome | str:
    """A row without one of the ways is worth more than no table."""
    try:
        return prepare(*arguments)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def _prepare(way: Way, case: Case) -> Outcome:
    one = way.compiled(chain.unrolled(case.workload, 1))
    compile_cpu_s = timing.cpu_seconds_of(lambda: one(*case.one_arguments))
    kernels = _kernels(way, case, one)
    error = relative_error(_outputs(one(*case.one_arguments)), case.one_right)
    chained = way.alone(one) if case.copies == 1 else way.chained(case.workload, case.copies)
    arguments = case.chain_arguments
    chain_error = relative_error(*_comparable(_outputs(chained.chain(*arguments)), case))
    if way.name == "stitch" and kernels.count:
        ran, _ = _stitch_ops(lambda: chained.chain(*arguments))
        if ran != kernels.count * case.copies:
            note = f"{ran} StitchOps ran in a chain of {case.copies} copies of {kernels.count}"
            kernels = replace(kernels, notes=(*kernels.notes, note))
    chained.empty(*arguments)
    return Outcome(
        chain_call=lambda: chained.chain(*arguments),
        empty_call=lambda: chained.empty(*arguments),
        compile_cpu_s=compile_cpu_s,
        error=error,
        chain_error=chain_error,
        kernels=kernels,
    )


def _prepare_rival(rival: Rival, case: Case) -> Outcome:
    prepared = rival.prepare(*case.one_arguments)
    function, empty = map(baselines.plain, (prepared.function, chain.next_to_nothing))
    compile_cpu_s = timing.cpu_seconds_of(lambda: function(*prepared.arguments))
    error = relative_error(_outputs(prepared.outputs()), case.one_right)
    empty(*prepared.arguments)
    return Outcome(
        chain_call=lambda: function(*prepared.arguments),
        empty_call=lambda: empty(*prepared.arguments),
        compile_cpu_s=compile_cpu_s,
        error=error,
        chain_error=error,
        kernels=Kernels(),
    )


def _comparable(outputs: Arrays, case: Case) -> tuple[Arrays, Arrays]:
    """With the right answers: a loop returns what its last copy emitted, which stands before what others did."""
    of_the_last = 1 + case.workload.emits
    return outputs, case.chain_right[:of_the_last] if len(outputs) == of_the_last else case.chain_right


def _kernels(way: Way, case: Case, one: chain.Function) -> Kernels:
    match way.name:
        case "xla":
            return Kernels(baselines.xla_kernels(one, case.one_arguments))
        case "stitch":
            ran, fell_back = _stitch_ops(lambda: one(*case.one_arguments))
            left = baselines.left_by_stitch(one, case.one_arguments)
            ops = ", ".join(f"{count} {op} ({why})" for (op, why), count in sorted(left.items()))
            notes = [f"left to TensorFlow: {ops}"] if ops else []
            if not ran:
                notes.append("nothing was stitched")
            if fell_back:
                notes.append(f"{fell_back} of {ran} StitchOps fell back")
            return Kernels(ran, left.total(), tuple(notes))
        case _:
            return Kernels()


def _stitch_ops(call: Callable[[], object]) -> tuple[int, int]:
    """How many StitchOps a call runs, and how many of those fall back."""
    calls, fallbacks = baselines.stitch_counts()
    call()
    calls_after, fallbacks_after = baselines.stitch_counts()
    return calls_after - calls, fallbacks_after - fallbacks


def _empty(name: str) -> str:
    return f"{name} empty"


def _tensors(arrays: Arrays) -> tuple[tf.Tensor, ...]:
    return tuple(tf.constant(a) for a in arrays)


def _outputs(result: Any) -> Arrays:
    return tuple(t.numpy().astype(np.float64) for t in tf.nest.flatten(result))


def _row(
    case: Case,
    threads: int,
    clock: str,
    outcomes: dict[str, Outcome],
    spreads: dict[str, Spread],
    absent: dict[str, str],
) -> Row:
    def ms(name: str) -> float | None:
        return spreads[name].median if name in spreads else None

    def over_stitch(name: str) -> float | None:
        other, stitch = ms(name), ms("stitch")
        return other / stitch if other is not None and stitch is not None else None

    def of(name: str, field: str) -> Any:
        return getattr(outcomes[name], field) if name in outcomes else None

    def kernels(name: str) -> Kernels:
        return outcomes[name].kernels if name in outcomes else Kernels()

    return {
        "workload": case.workload.name,
        "shape": "x".join(map(str, case.shape)),
        "threads": threads,
        "tf_ms": ms("tf"),
        "xla_ms": ms("xla"),
        "stitch_ms": ms("stitch"),
        "tf_over_stitch": over_stitch("tf"),
        "xla_over_stitch": over_stitch("xla"),
        "stitch_kernels": kernels("stitch").count,
        "stitch_left": kernels("stitch").left,
        "xla_kernels": kernels("xla").count,
        "max_err_f64": of("stitch", "error"),
        "tf_err_f64": of("tf", "error"),
        "xla_err_f64": of("xla", "error"),
        "chain_err_f64": {name: o.chain_error for name, o in outcomes.items()},
        "clock": clock,
        "copies": case.copies,
        "tf_compile_cpu_s": of("tf", "compile_cpu_s"),
        "xla_compile_cpu_s": of("xla", "compile_cpu_s"),
        "stitch_compile_cpu_s": of("stitch", "compile_cpu_s"),
        "rival": _rival(case, ms(RIVAL), over_stitch(RIVAL), of(RIVAL, "error")),
        "spread": {name: asdict(spread) for name, spread in spreads.items()},
        "absent": absent,
        "disagree": _disagreeing(outcomes),
        "notes": [f"{name}: {note}" for name, o in outcomes.items() for note in o.kernels.notes],
    }


def _rival(case: Case, ms: float | None, over_stitch: float | None, error: float | None) -> Row | None:
    rival = case.workload.rival
    if rival is None or ms is None:
        return None
    return {"name": rival.name, "ms": ms, "over_stitch": over_stitch, "err_f64": error}


def _disagreeing(outcomes: dict[str, Outcome]) -> list[str]:
    """The ways whose outputs are further from float64 than they may be."""
    tf_outcome = outcomes.get("tf")
    may = max(TOLERANCE, 2 * tf_outcome.error if tf_outcome else 0.0)
    may_chain = max(TOLERANCE, 2 * tf_outcome.chain_error if tf_outcome else 0.0)
    return [
        name
        for name, o in outcomes.items()
        if (o.error > may or o.chain_error > may_chain) or NO_AGREEMENT in (o.error, o.chain_error)
    ]
