"""The process behind `bench models`, `bench compare` and `bench compile`: one task, its result as JSON.

cold        one way alone, with no kernel in the cache: the first call, the CPU seconds of compilers, the memory
turns       all ways in turns; on demand what they compute, and where the time goes
reference   the outputs in float64
    compile     first calls at many shapes: see `compilation`
"""

from __future__ import annotations

import json
import re
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench import compilation, timing
from bench.kernel_rule import Kind
from bench.models_case import Case
from bench.models_process import Result
from bench.timing import Effort, Samples

AUTO_CALLS = 3  # auto-clustering compiles not before the second
_LONG_STEP_MS = 200  # is traced once


@click.command(name="_measure", hidden=True)
@click.argument("task")
@click.argument("asked", type=click.Path(path_type=Path))
@click.argument("result", type=click.Path(path_type=Path))
def worker(task: str, asked: Path, result: Path) -> None:
    from bench.worker import _end_with_the_parent

    _end_with_the_parent()
    arguments = json.loads(asked.read_text())
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(arguments["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(arguments["threads"])
    try:
        found = TASKS[task](**arguments)
    except Exception as error:  # noqa: BLE001  its reason is what the row says
        found = {"failed": sentence(error)}
    result.write_text(json.dumps(found, allow_nan=False))


def sentence(error: Exception) -> str:
    """An exception in a line."""
    # XLA says what it lacks among names that mean nothing outside.
    text = re.sub(r" when trying to compile graph \S+ on \w+| devices compatible with node .*", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def cold(case: dict[str, Any], way: str, **_: Any) -> Result:
    """first_call_s, compile_cpu_s: of the first call. second_call_s. peak_mb: of the process, after two calls."""
    from bench import models_ways

    return _first_calls(next(models_ways.ways(Case(**case), [way])))


def _first_calls(found: Callable[[], object]) -> Result:
    start = time.perf_counter()
    compile_cpu_s = timing.cpu_seconds_of(found)
    first_call_s = time.perf_counter() - start
    start = time.perf_counter()
    found()
    return {
        "first_call_s": first_call_s,
        "compile_cpu_s": compile_cpu_s,
        "second_call_s": time.perf_counter() - start,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def reference(case: dict[str, Any], out: str, **_: Any) -> Result:
    """The outputs in float64, written to the .npz `out`; kept: how many ops ran in float32 all the same."""
    from bench import float64

    measured = Case(**case)
    model = float64.from_saved_model(measured.path, measured.signature)
    outputs = model(measured.arrays())
    texts = {name: array.astype("S") if array.dtype == object else array for name, array in outputs.items()}
    np.savez(out, **texts)  # pyright: ignore[reportArgumentType]
    return {"kept": sum(model.kept.values())}


def turns(
    case: dict[str, Any],
    ways: list[str],
    threads: int,
    quick: bool,
    look: bool,
    right: str | None = None,
    profile: str | None = None,
    hlo: bool = True,
    first_is_cold: bool = False,
    **_: Any,
) -> Result:
    """seconds: way → clock → seconds of a call, an entry a round; with `look`, all that `_looked_at` tells.

    right: an .npz with the outputs in float64. profile: a directory for traces. hlo: whether XLA may compile once more,
    for its share of compute. first_is_cold: the first way gives what `cold` does, too, before another one is loaded.
    """
    from bench import models_bytes, models_differences, models_ways

    measured = Case(**case)
    found: dict[str, models_ways.Way] = {}
    result: Result = {"refused": {}}
    with models_bytes.recorded() as planned:
        for way in models_ways.ways(measured, ways):
            try:
                if first_is_cold and not found:
                    result["cold"] = _first_calls(way)
                for _call in range(AUTO_CALLS if way.name == "xla-auto" else 1):
                    way()
                found[way.name] = way
            except Exception as error:
                if way.name in ("tf", "stitch"):
                    raise
                result["refused"][way.name] = sentence(error)
    if look:
        compared = models_differences.differences(found, measured, _loaded(right))
        result |= {"errors": compared.worst, "left_out": sorted(compared.left_out), "tensors": compared.tensors}
    for way in found.values():
        way.loaded.start_again()
    samples = timing.interleaved(dict(found), effort(found, quick))
    result["seconds"] = {name: {"cpu": s.cpu, "wall": s.wall} for name, s in samples.items()}
    if "xla-auto" in found:
        result["clusters"] = _clusters_of_xla(found["xla-auto"])
    if look:
        clock = "cpu" if threads == 1 else "wall"
        result |= _looked_at(measured, found, samples, planned, threads, clock, profile)
        xla = found.get("xla") if hlo else None
        result["gemm_share"] = {"tf": result["compute_share"], "xla": _compute_share_of_xla(xla)}
    return result


def effort(calls: Mapping[str, Callable[[], object]], quick: bool) -> Effort:
    """More seconds for longer steps, within bounds."""
    start = time.perf_counter()
    for call in calls.values():
        call()
    of_all = time.perf_counter() - start
    least, most, rounds = (1.5, 5.0, 3) if quick else (4.0, 20.0, 5)
    return Effort(budget_s=max(least, min(most, 15 * of_all)), slice_s=0.02, fewest_rounds=rounds, most_rounds=60)


def _loaded(path: str | None) -> dict[str, np.ndarray] | None:
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _clusters_of_xla(call: Callable[[], object]) -> int | None:
    from bench import trace

    ops = trace.executed_ops(call)
    return None if ops is None else ops["_XlaRun"] + ops["XlaLaunch"]


def _looked_at(
    case: Case,
    found: Mapping[str, Any],
    samples: Mapping[str, Samples],
    planned: Any,
    threads: int,
    clock: str,
    profile: str | None,
) -> Result:
    """Of one more call: StitchOps and fallbacks, ops, where the time goes, and what StitchOps moved."""
    from bench import baselines, models_bytes, models_trace

    ms = {name: float(np.median(getattr(s, clock))) * 1e3 for name, s in samples.items()}
    before, kernels_before = baselines.stitch_counts(), _calls_by_kernel()
    found["stitch"]()
    after, kernels_after = baselines.stitch_counts(), _calls_by_kernel()
    calls = {key: n for key in kernels_after if (n := kernels_after[key] - kernels_before.get(key, 0))}
    steps = {name: models_trace.traced(found[name], 1 if ms[name] > _LONG_STEP_MS else 3) for name in ("tf", "stitch")}
    parts = {name: models_trace.breakdown(step, ms[name]) for name, step in steps.items()}
    in_stitch_ops = sum(t for o, t in models_trace.shares(steps["stitch"]).items() if o.op == "StitchOp")
    of_step = in_stitch_ops / steps["stitch"].duration if steps["stitch"].duration else 0.0
    moved = planned.of_calls(calls)
    if profile is not None:
        _write_profiles(Path(profile), f"{case.file_name}-{threads}t", steps, ms)
    return {
        "stitch_ops": after[0] - before[0],
        "fallbacks": after[1] - before[1],
        "ops": {name: len(step.operations) for name, step in steps.items()},
        "breakdown": parts,
        "compute_share": parts["tf"]["compute_ms"] / ms["tf"],
        "bytes": {
            "model_mb": None if moved is None else moved / 1e6,
            "gb_per_s": moved / 1e6 / (of_step * ms["stitch"]) if moved and of_step else None,
            "triad_gb_per_s": models_bytes.triad_gb_per_s(threads),
        },
    }


def _calls_by_kernel() -> dict[str, int]:
    import tf_stitch

    return {key: int(counts["calls"]) for key, counts in tf_stitch.stats()["by_kernel"].items()}


def _write_profiles(directory: Path, name: str, steps: Mapping[str, Any], ms: Mapping[str, float]) -> None:
    from bench import models_trace

    directory.mkdir(parents=True, exist_ok=True)
    for way, step in steps.items():
        title = f"{name} under {way}: {ms[way]:.3f} ms a step"
        (directory / f"{name}-{way}.json").write_text(models_trace.chrome_trace(step))
        (directory / f"{name}-{way}.txt").write_text(models_trace.top_table(step, ms[way], title))


def _compute_share_of_xla(way: Any) -> float | None:
    """The share of XLA's step that is compute-intensive, by its optimised HLO; None where that cannot be had."""
    from bench import kernel_hlo, kernel_trace, models_trace

    if way is None:
        return None
    try:
        hlo = way.function.experimental_get_compiler_ir(**way.loaded.inputs)(stage="optimized_hlo")
        launches = kernel_hlo.launches(hlo, kernel_trace.executed_instructions(way))
    except Exception:  # noqa: BLE001  a share that isn't known is no reason to lose the row
        return None
    step = models_trace.traced(way, kinds={launch.name: launch.kind for launch in launches})
    compute = sum(t for o, t in models_trace.shares(step).items() if o.kind is Kind.COMPUTE)
    return compute / step.duration if step.duration else None


TASKS: dict[str, Callable[..., Result]] = {
    "cold": cold,
    "turns": turns,
    "reference": reference,
    "compile": compilation.costs,
}
