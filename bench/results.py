"""Rows of every bench command, as JSON and as a summary."""

from __future__ import annotations

import datetime as dt
import json
import math
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench import machine

SCHEMA = 1

Row = dict[str, Any]
Summary = dict[str, Any]


def document(rows: list[Row], summary: Summary, command: str | None = None) -> dict[str, Any]:
    """What is written: the rows, and the summary with the time, in UTC, and the command line."""
    named = {} if command is None else {"command": command}
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    told = {**summary, "date": date, "command_line": shlex.join(["python", "-m", "bench", *sys.argv[1:]])}
    return {"schema": SCHEMA, **named, "rows": rows, "summary": told}


def write(path: Path, rows: list[Row], summary: Summary, command: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(rows, summary, command), indent=1, allow_nan=False) + "\n")


def cluster_summary(rows: list[Row], malloc: str) -> Summary:
    return {
        "geomean_tf_over_stitch": geomean(r["tf_over_stitch"] for r in rows),
        "geomean_xla_over_stitch": geomean(r["xla_over_stitch"] for r in rows),
        "geomean_tf_over_xla": geomean(_ratio(r["tf_ms"], r["xla_ms"]) for r in rows),
        "worst_over_better": min(filter(None, map(better_over_stitch, rows)), default=None),
        "tf_compile_cpu_s": total(r["tf_compile_cpu_s"] for r in rows),
        "xla_compile_cpu_s": total(r["xla_compile_cpu_s"] for r in rows),
        "stitch_compile_cpu_s": total(r["stitch_compile_cpu_s"] for r in rows),
        "disagreeing": sorted({f"{r['workload']} {r['shape']}: {w}" for r in rows for w in r["disagree"]}),
        "malloc": malloc,
        **machine.description(),
    }


def better_over_stitch(row: Row) -> float | None:
    """The better of TensorFlow, with its own ops for the work if there are such, and XLA over tf_stitch: below 1 where
    tf_stitch lost."""
    rival = row["rival"]["ms"] if row["rival"] else None
    others = [ms for ms in (row["tf_ms"], row["xla_ms"], rival) if ms is not None]
    return _ratio(min(others), row["stitch_ms"]) if others else None


def geomean(ratios: Iterable[float | None]) -> float | None:
    logs = [math.log(r) for r in ratios if r is not None]
    return math.exp(sum(logs) / len(logs)) if logs else None


def total(seconds: Iterable[float | None]) -> float | None:
    known = [s for s in seconds if s is not None]
    return sum(known) if known else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b is not None else None
