"""`python -m bench models`: real models under TensorFlow, XLA and tf_stitch, inference and training steps.

How a figure comes about:

* Time: `processes` processes a row, in each of which all ways are measured in turns. A row's times are medians over
  the processes, of the medians inside; ratios are taken inside a process first. On one thread the clock is the
  process's CPU time, which other users of the machine hardly change; on several it is the wall's. A call's own cost
  is in it, and the same for all.
* First call, CPU seconds of compilers, peak of memory: of a process for each way that loads the model and calls it
  twice, with no kernel in the cache.
* Difference: of outputs from float64, or from TensorFlow where float64 takes too long (see `reference` in a row); of
  training steps the losses, gradients and variables over three steps, from TensorFlow's.
* Where the time goes: see `models_trace`. What StitchOps move: see `models_bytes`.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console

from bench import clusters, kernels, models_case, models_measure, models_row, models_table, results
from bench.models_case import Case
from bench.models_measure import Plan
from bench.results import Row, Summary
from bench.workloads.models import ALL, BuildError, FetchError, Model

WRONG = 1  # exit code
NAMES = click.Choice(list(ALL))
OUTPUT = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("names", nargs=-1, type=NAMES, metavar="[MODEL]...")
@click.option("--quick", is_flag=True, help="Training too, on 2 threads, one process a row, no auto-clustering.")
@click.option("--train", is_flag=True, help="The training steps as well, where no model is named.")
@click.option("--threads", help="Thread counts, with commas between.  [default: 1,2; with --quick 2]")
@click.option("--processes", type=click.IntRange(1), help="That measure a row.  [default: 5; with --quick 1]")
@click.option(
    "--xla-limit",
    type=click.FloatRange(1),
    help="Seconds in which XLA has to be ready.  [default: 300; with --quick 45]",
)
@click.option("--kernels", "count_kernels", is_flag=True, help="Count memory-intensive kernels, too.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
@click.option("--profile", type=DIRECTORY, help="Write traces, and tables of what takes longest, here.")
def models(
    names: tuple[str, ...],
    quick: bool,
    train: bool,
    threads: str | None,
    processes: int | None,
    xla_limit: float | None,
    count_kernels: bool,
    json_path: Path | None,
    profile: Path | None,
) -> None:
    """Real models under TensorFlow, XLA and tf_stitch (all for inference, or those named)."""
    counts = clusters.thread_counts(threads or ("2" if quick else "1,2"))
    plan = planned(quick, processes, xla_limit, profile)
    log = Console(stderr=True, highlight=False)
    rows: list[Row] = []
    for row in measured(chosen(names, train=train or quick), counts, plan, count_kernels=count_kernels):
        rows.append(row)
        log.print(models_table.log_line(row), markup=False, soft_wrap=True)
        write(rows, json_path)  # each time, as the next row may take minutes
    finish(rows, json_path)


def planned(quick: bool, processes: int | None, xla_limit_s: float | None, profile: Path | None) -> Plan:
    """The plan for a quick run or a full one, with what was asked for in place of its own."""
    plan = models_measure.QUICK if quick else models_measure.FULL
    return dataclasses.replace(
        plan,
        processes=processes or plan.processes,
        xla_limit_s=xla_limit_s or plan.xla_limit_s,
        profile=profile,
    )


def write(rows: list[Row], json_path: Path | None) -> Summary:
    """The summary, which is written together with the rows where there is a path."""
    summary = models_row.summary(rows)
    if json_path is not None:
        results.write(json_path, rows, summary, command="models")
    return summary


def finish(rows: list[Row], json_path: Path | None) -> None:
    """Shows and writes the rows, and ends the command."""
    summary = write(rows, json_path)
    models_table.show(Console(), rows, summary)
    if any(map(models_row.is_wrong, rows)):
        sys.exit(WRONG)


def chosen(names: Sequence[str], *, train: bool) -> list[Model]:
    """The models that are named, or else all for inference, with `train` the training steps too."""
    if names:
        return [ALL[name] for name in dict.fromkeys(names)]
    modes = ("infer", "train") if train else ("infer",)
    return sorted((model for model in ALL.values() if model.mode in modes), key=lambda model: model.mode)


def measured(found: Sequence[Model], threads: Sequence[int], plan: Plan, *, count_kernels: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-models-") as scratch:
        for model in found:
            cases = _cases(model, Path(scratch))
            if isinstance(cases, str):
                yield models_row.absent_row(model.name, model.mode, cases)
                continue
            counted = kernels.count(model.name) if count_kernels else None
            for case in cases:
                for count in threads:
                    yield models_measure.row(case, count, plan, counted if case is cases[0] else None)


def _cases(model: Model, scratch: Path) -> list[Case] | str:
    """The model at its sizes, or why it cannot be had."""
    try:
        return [models_case.case_of(model, size, scratch) for size in models_case.sizes_of(model)]
    except (FetchError, BuildError) as error:
        return str(error).strip().splitlines()[-1]
