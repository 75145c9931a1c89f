"""`python -m bench report FILE…`: what bench commands have measured, to be read, compared and printed.

    models.json ─┐                   ┌─► terminal, 80 columns       ┌─ --html OUT
    kernels.json ┼─► Runs ─► Sections┼─► ───────────────────────────┼─ --png DIR
    gpu.json ────┘    │              │                              └─ --markdown OUT
                      └─► several of one command: B over A          beside the paper's tables

Nothing is measured here, and no figure is made up: a sentence is a sum over rows of the files.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from bench import paper_tables, report_compare, report_html, report_markdown, report_png, report_terminal
from bench.report_files import UnreadableFile, load
from bench.report_kinds import KINDS
from bench.report_parts import Run, Section

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--html", "html_path", type=FILE, help="Write one page with everything in it.")
@click.option("--png", "png_directory", type=click.Path(file_okay=False, path_type=Path), help="Write each chart here.")
@click.option("--markdown", "markdown_path", type=FILE, help="Write the tables for a document.")
def report(
    files: tuple[Path, ...], html_path: Path | None, png_directory: Path | None, markdown_path: Path | None
) -> None:
    """Show files that bench commands wrote with --json; of several runs of one command, each beside the first."""
    try:
        runs = [load(path) for path in files]
        sections = sections_of(runs)
        log = Console(stderr=True, highlight=False)
        if html_path is not None:
            _write(html_path, report_html.render(sections, runs))
            log.print(f"page: {html_path}", markup=False, soft_wrap=True)
        if markdown_path is not None:
            _write(markdown_path, report_markdown.render(sections))
            log.print(f"tables: {markdown_path}", markup=False, soft_wrap=True)
        if png_directory is not None:
            written = report_png.write(png_directory, sections)
            log.print(f"{len(written)} charts in {png_directory}", markup=False, soft_wrap=True)
        report_terminal.show(Console(), sections)
    except (UnreadableFile, report_png.NoMatplotlib) as error:
        raise click.ClickException(str(error)) from None


def sections_of(runs: Sequence[Run]) -> list[Section]:
    """Comparisons first, then what is in each run (of several of one command, the last), then the paper's tables."""
    found: list[Section] = []
    last: dict[str, Run] = {}
    for command, group in itertools.groupby(
        sorted(runs, key=lambda r: list(KINDS).index(r.command)), lambda r: r.command
    ):
        first, *later = group
        found += [report_compare.section(report_compare.compared(first, run)) for run in later]
        last[command] = later[-1] if later else first
    for run in last.values():
        found += KINDS[run.command].sections(run)
    return found + paper_tables.sections(list(last.values()))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
