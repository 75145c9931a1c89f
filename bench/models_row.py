"""What the processes of `bench models` found, as one row; and the rows' summary."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import machine, results
from bench.models_case import Case
from bench.results import Row, Summary

SLOWER = 0.98  # a row below it, TensorFlow's time over stitch's, is flagged
WRONG = ("mismatch", "fallback", "nothing stitched")  # flags that end the command with an error
MODES = ("infer", "train")
TRIAD = "STREAM triad, generated C++ on Python threads"
RATIOS = ("tf_over_stitch", "xla_over_stitch", "better_over_stitch")


@dataclass(frozen=True)
class Findings:
    """Of one case on one number of threads.

    cold: way → the result of its own process. turns: of each process that measured. auto: of the one with
    auto-clustering. refused: way → why there are no figures. kernels: a row of `bench kernels`.
    """

    case: Case
    threads: int
    cold: Mapping[str, Row]
    turns: Sequence[Row]
    reference: str = "tf"
    auto: Row | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    kernels: Row | None = None
    notes: tuple[str, ...] = ()

    @property
    def clock(self) -> str:
        return "cpu" if self.threads == 1 else "wall"


def row_of(found: Findings) -> Row:
    first = found.turns[0]
    spread = {way: _spread([turn["seconds"][way][found.clock] for turn in found.turns]) for way in _ways(found.turns)}
    if found.auto and "xla-auto" in found.auto["seconds"]:
        beside = ("xla-auto", "tf-beside-auto")
        spread |= {way: _spread([found.auto["seconds"][way][found.clock]]) for way in beside}
    ratios = _ratios(found)
    errors = {way: error for way, (error, _) in first["errors"].items()}
    parts, kernels = first["breakdown"], found.kernels
    auto = _auto(found, spread["tf"]["median"])
    return {
        "model": found.case.name,
        "mode": found.case.mode,
        "size": found.case.size,
        "threads": found.threads,
        "clock": found.clock,
        "tf_ms": spread["tf"]["median"],
        "xla_ms": spread["xla"]["median"] if "xla" in spread else None,
        "xla_refused": found.refused.get("xla"),
        **auto,
        "stitch_ms": spread["stitch"]["median"],
        **{name: ratios[name]["median"] if name in ratios else None for name in RATIOS},
        "processes": len(found.turns),
        "spread": spread,
        "ratio_spread": ratios,
        "stitch_ops": first["stitch_ops"],
        "fallbacks": first["fallbacks"],
        "ops": first["ops"],
        "kernels": {way: kernels[f"{way}_kernels"] if kernels else None for way in ("tf", "xla", "stitch")},
        "max_err": errors["stitch"],
        "tolerance": found.case.tolerance,
        "reference": found.reference,
        "errors": errors,
        "first_call_s": found.cold["stitch"]["first_call_s"],
        "first_calls_s": {way: cold["first_call_s"] for way, cold in found.cold.items()},
        "compile_cpu_s": {way: cold["compile_cpu_s"] for way, cold in found.cold.items()},
        "peak_mb": found.cold["stitch"]["peak_mb"],
        "peaks_mb": {way: cold["peak_mb"] for way, cold in found.cold.items()},
        "breakdown": parts,
        "ceiling_over_tf": ceiling(parts["tf"]),
        "gemm_share": first["gemm_share"],
        "bytes": first["bytes"],
        "flags": list(_flags(found, errors, ratios)),
        "notes": [*found.notes, *_notes(first)],
    }


def absent_row(name: str, mode: str, reason: str, *, failed: bool = False, **more: Any) -> Row:
    """A model that was not measured. failed: it was there, and yet could not be run."""
    return {"model": name, "mode": mode, "absent": reason, "failed": failed, **more}


def is_wrong(row: Row) -> bool:
    return bool(row.get("failed")) or any(flag in WRONG for flag in row.get("flags", ()))


def summary(rows: Sequence[Row]) -> Summary:
    measured = [row for row in rows if "absent" not in row]
    return {
        "geomeans": {
            mode: {name: results.geomean(row[name] for row in measured if row["mode"] == mode) for name in RATIOS}
            for mode in MODES
            if any(row["mode"] == mode for row in measured)
        },
        "absent": list(dict.fromkeys(f"{row['model']}: {row['absent']}" for row in rows if "absent" in row)),
        "flagged": [f"{label(row)}: {', '.join(row['flags'])}" for row in measured if row["flags"]],
        "triad": TRIAD,
        **machine.description(),
    }


def label(row: Row) -> str:
    return f"{row['model']} {row['size']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}"


def ceiling(parts: Mapping[str, float | int] | None) -> dict[str, float | None] | None:
    """What TensorFlow's time over a stitched one would be if all but compute took a third of it, or nothing.

    A kernel that computes small products, too, may be faster than that.
    """
    if parts is None:
        return None
    compute, rest = parts["compute_ms"], parts["memory_ms"] + parts["gap_ms"]
    third = compute + rest / 3
    return {
        "third": (compute + rest) / third if third else None,
        "none": (compute + rest) / compute if compute else None,
    }


def _ways(turns: Sequence[Row]) -> list[str]:
    return [way for way in turns[0]["seconds"] if all(way in turn["seconds"] for turn in turns)]


def _spread(processes: Iterable[Sequence[float]]) -> Row:
    """Milliseconds. The quartiles are of a process, too: the median one's."""
    of_each = [_quartiles([seconds * 1e3 for seconds in samples]) for samples in processes]
    return {
        "median": statistics.median(q[1] for q in of_each),
        "q1": statistics.median(q[0] for q in of_each),
        "q3": statistics.median(q[2] for q in of_each),
        "best": min(q[3] for q in of_each),
        "per_process": [q[1] for q in of_each],
    }


def _quartiles(values: Sequence[float]) -> tuple[float, float, float, float]:
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return q1, median, q3, min(values)


def _ratios(found: Findings) -> dict[str, Row]:
    """Taken inside each process, where all ways had the same minutes."""
    of_each: dict[str, list[float]] = {name: [] for name in RATIOS}
    for turn in found.turns:
        ms = {way: statistics.median(clocks[found.clock]) for way, clocks in turn["seconds"].items()}
        of_each["tf_over_stitch"].append(ms["tf"] / ms["stitch"])
        of_each["better_over_stitch"].append(min(ms["tf"], ms.get("xla", ms["tf"])) / ms["stitch"])
        if "xla" in ms:
            of_each["xla_over_stitch"].append(ms["xla"] / ms["stitch"])
    spreads = {name: _quartiles(values) for name, values in of_each.items() if len(values) == len(found.turns)}
    return {name: {"median": q[1], "q1": q[0], "q3": q[2]} for name, q in spreads.items()}


def _auto(found: Findings, tf_ms: float) -> Row:
    """Of auto-clustering. Its ms are what it took of TensorFlow's time beside it, of TensorFlow's time here."""
    refused = found.refused.get("xla-auto")
    seconds = found.auto["seconds"] if found.auto else {}
    if "xla-auto" not in seconds:
        return {"xla_auto_ms": None, "xla_auto_refused": refused}
    auto, beside = (statistics.median(seconds[way][found.clock]) for way in ("xla-auto", "tf-beside-auto"))
    return {"xla_auto_ms": tf_ms * auto / beside, "xla_auto_refused": refused}


def _flags(found: Findings, errors: Mapping[str, float], ratios: Mapping[str, Row]) -> Iterable[str]:
    first, case = found.turns[0], found.case
    allowed = case.tolerance
    if found.reference == "float64":  # TensorFlow isn't exact either
        allowed = max(allowed, case.float64_factor * errors["tf"])
    if errors["stitch"] > allowed:
        yield "mismatch"
    if first["fallbacks"]:
        yield "fallback"
    if not first["stitch_ops"]:
        yield "nothing stitched"
    if ratios["tf_over_stitch"]["median"] < SLOWER:
        yield "slower"


def _notes(first: Row) -> Iterable[str]:
    error, output = first["errors"]["stitch"]
    if error and output:
        yield f"stitch differs most in {output!r}, by {error:.1e}"
    if first["left_out"]:
        some = ", ".join(first["left_out"][:3])
        count = f"{len(first['left_out'])} of {first['tensors']}"
        yield f"tensors that a rounding changes as much, left out: {count}, {some}…"
    if first["fallbacks"]:
        yield f"{first['fallbacks']} of {first['stitch_ops']} StitchOps fell back"
