"""`python -m bench ablation`: what each idea of the method is worth, on whole models, by taking ideas away.

The steps are AStitch's own, each with what the one before it has:

    fusion      no value is kept between passes over the same elements: a cluster ends where XLA's fusions end
    mapping     the same clusters; their loops follow the shape of the rows
    stitching   rows, scratch and clusters without a path between them; each dominant has a loop nest of its own
    full        dominants that run over the same elements share a loop nest

`ablation_steps` has the switches of the Config that are off in each. Of a step of the model, a row tells for each:
kernels, by the rule of `bench kernels`; bytes, in the planner's model, that those kernels' loop nests read and write;
and time.

`fusion` is fusion by tf_stitch's rules, not XLA itself. It differs in that nothing is computed twice for two readers,
and that an op which TensorFlow has as one kernel (Softmax) stays one. XLA's own count is in `bench kernels`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench import elsewhere, machine, report_ablation, report_terminal, results
from bench.ablation_steps import ABLATIONS
from bench.report_parts import Run
from bench.results import Row, Summary
from bench.workloads.models import ALL, PAPER, BuildError, FetchError

LONGEST_MODEL_S = 900
NAMES = click.Choice(list(ALL))
OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("names", nargs=-1, type=NAMES, metavar="[MODEL]...")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Of TensorFlow.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
def ablation(names: tuple[str, ...], threads: int, json_path: Path | None) -> None:
    """Kernels, bytes and time with ideas of the method taken away (the paper's five models, or those named)."""
    log = Console(stderr=True, highlight=False)
    rows: list[Row] = []
    for name in names or PAPER:
        rows.append(measured(name, threads))
        log.print(_log_line(rows[-1]), markup=False, soft_wrap=True)
    outcome = summary(rows)
    if json_path is not None:
        results.write(json_path, rows, outcome, "ablation")
    report_terminal.show(Console(), report_ablation.sections(Run(Path(), "ablation", tuple(rows), outcome)))
    if any(row["absent"] or row["disagree"] for row in rows):
        sys.exit(1)


def measured(name: str, threads: int) -> Row:
    """A row for one model; where it could not be run, `absent` has the reason and there are no ways."""
    model = ALL[name]
    row: Row = {
        "model": name,
        "size": "x".join(map(str, model.sizes[0])),
        "threads": threads,
        "clock": "cpu" if threads == 1 else "wall",
        "ways": {},
        "disagree": [],
        "absent": "",
    }
    try:
        model.path()
    except (FetchError, BuildError) as error:
        return row | {"absent": f"{name} is not there: {str(error).strip().splitlines()[-1]}"}
    return row | _in_own_process(name, threads)


def summary(rows: list[Row]) -> Summary:
    """full_over: geometric means over the models, `full` over each other step: of kernels, bytes and milliseconds."""
    return {
        "steps": {step.name: {"meaning": step.meaning, "off": list(step.off)} for step in ABLATIONS},
        "full_over": {
            what: {step.name: results.geomean(_full_over(row, step.name, what) for row in rows) for step in ABLATIONS}
            for what in ("kernels", "bytes", "ms")
        },
        "absent": [f"{row['model']}: {row['absent']}" for row in rows if row["absent"]],
        "disagreeing": [f"{row['model']}: {', '.join(row['disagree'])}" for row in rows if row["disagree"]],
        **machine.description(),
    }


def _log_line(row: Row) -> str:
    told = ", ".join(f"{name} {way['kernels']} kernels {way['ms']:.4g} ms" for name, way in row["ways"].items())
    return f"{row['model']} {row['size']}: {told or row['absent']}"


def _full_over(row: Row, step: str, what: str) -> float | None:
    full, other = (report_ablation.measure(row, way, what) for way in ("full", step))
    return full / other if full and other else None


def _in_own_process(name: str, threads: int) -> dict[str, Any]:
    return elsewhere.answer(["_ablation", name, str(threads)], LONGEST_MODEL_S, "it", TF_STITCH_ABLATE="")
