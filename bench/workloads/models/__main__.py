"""python -m bench.workloads.models list | fetch [NAME…]"""

from __future__ import annotations

import difflib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from bench.workloads.models import ALL, TINY, Model
from bench.workloads.models.fetch import cache_dir, remove_leftovers
from bench.workloads.models.prepare import Kind, Outcome, missing_packages, prepare

COLUMNS = (
    SpinnerColumn(),
    TextColumn("{task.fields[kind]:8}"),
    BarColumn(20),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TextColumn("{task.description}"),
)


class Named(click.ParamType):
    """The name of a model."""

    name = "model"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in ALL:
            near = difflib.get_close_matches(value, ALL, 1, 0.4)
            meant = f"did you mean {near[0]}? " if near else ""
            self.fail(
                f"There is no model {value}; {meant}`python -m bench.workloads.models list` shows all.", param, ctx
            )
        return value


@click.group(help="Real models as SavedModels, in a cache that TF_STITCH_ZOO moves.")
def main() -> None:
    pass


@main.command("list", help="The models, and which of them are ready.")
def list_models() -> None:
    table = Table(
        Column("model", no_wrap=True),
        Column("sizes", no_wrap=True),
        Column("ready", no_wrap=True, justify="right"),
        "what",
        caption=f"in {cache_dir()}",
    )
    for model in ALL.values():
        sizes = ", ".join("×".join(map(str, size)) for size in model.sizes)
        table.add_row(model.name, sizes, _megabytes(model.path()) if model.ready() else "–", model.notes)
    Console().print(table)


@main.command("fetch", help="Download and build what is missing: all models, or those named.")
@click.argument("names", nargs=-1, type=Named())
def fetch_models(names: tuple[str, ...]) -> None:
    remove_leftovers()
    models = [ALL[name] for name in dict.fromkeys(names or ALL)]
    outcomes = _prepared(models)
    failed = [outcome for outcome in outcomes if outcome.failure]
    for model in models:
        if model not in [outcome.model for outcome in failed]:
            click.echo(f"{model.name}\t{model.path()}")
    if failed:
        click.echo(f"{len(failed)} of {len(models)} models are missing:", err=True)
    for outcome in failed:
        click.echo(f"{outcome.model.name}: {outcome.failure}", err=True)
    sys.exit(1 if failed else 0)


def _prepared(models: list[Model]) -> list[Outcome]:
    """Every model's outcome, with the progress on stderr: bars, and a line for each model that was made."""
    outcomes: list[Outcome] = []
    with Progress(*COLUMNS, console=Console(stderr=True)) as progress:
        display = _Display(progress, packages=len(missing_packages(models)), models=len(models))
        for outcome in prepare(models, display.watch):
            outcomes.append(outcome)
            if outcome.failure:
                progress.console.print(f"{outcome.model.name} is missing", highlight=False)
            elif outcome.seconds:
                progress.console.print(f"{outcome.model.name} built in {outcome.seconds:.0f} s", highlight=False)
    return outcomes


class _Display:
    """Two bars, each with the names of what is being made at present."""

    def __init__(self, progress: Progress, packages: int, models: int) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._names: dict[Kind, list[str]] = {"package": [], "model": []}
        totals: dict[Kind, int] = {"package": packages, "model": models}
        self._tasks: dict[Kind, TaskID] = {k: progress.add_task("", total=n, kind=f"{k}s") for k, n in totals.items()}

    @contextmanager
    def watch(self, kind: Kind, name: str) -> Iterator[None]:
        with self._shown(kind):
            self._names[kind].append(name)
        try:
            yield
        finally:
            with self._shown(kind):
                self._names[kind].remove(name)
                self._progress.advance(self._tasks[kind])

    @contextmanager
    def _shown(self, kind: Kind) -> Iterator[None]:
        """What the block does to the names is shown when it ends."""
        with self._lock:
            yield
            self._progress.update(self._tasks[kind], description=", ".join(self._names[kind]))


def _megabytes(directory: Path) -> str:
    return f"{sum(path.stat().st_size for path in directory.rglob('*') if path.is_file()) / 1e6:,.0f} MB"


@main.command("build", hidden=True, help="Write one model's SavedModel; its packages are on the path.")
@click.argument("name", type=click.Choice([*ALL, *TINY]))
@click.argument("destination", type=click.Path(path_type=Path))
def build_model(name: str, destination: Path) -> None:
    build = (ALL | TINY)[name].build
    if build is None:
        raise click.UsageError(f"{name} is shipped as a SavedModel")
    build(destination)


if __name__ == "__main__":
    main()
