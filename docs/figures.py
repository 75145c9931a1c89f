"""Writes measured figures into the documents: `python -m docs.figures`, with `--check` only compares.

A block stands between `<!-- figures:NAME -->` and `<!-- end figures:NAME -->`; BLOCKS says which files of bench/results
it is made of, and how. Those files are written by bench commands alone, so no figure is typed by hand, and each block
ends with what it was measured on, and when.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import (
    paper_tables,
    report_ablation,
    report_clusters,
    report_gpu,
    report_kernels,
    report_markdown,
    report_models,
)
from bench import report_values as values
from bench.report_files import load
from bench.report_parts import Run, Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
_BLOCK = re.compile(r"(<!-- figures:([\w-]+) -->\n).*?(<!-- end figures:\2 -->\n)", re.DOTALL)
_MARKER = re.compile(r"<!-- (?:end )?figures:")


class UnknownFigures(Exception):
    """A block that cannot be made; one sentence that says which, and what to do."""


@dataclass(frozen=True)
class Block:
    """commands: whose files it needs, each bench/results/COMMAND.json. optional: it does without these."""

    commands: tuple[str, ...]
    written: Callable[[Mapping[str, Run]], str]
    optional: tuple[str, ...] = ()


def documents() -> list[Path]:
    """Those that have blocks."""
    found = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
    return [path for path in found if _MARKER.search(path.read_text(encoding="utf-8"))]


def current(text: str, results: Path = RESULTS) -> str:
    """`text` with its blocks as they should be.

    Raises:
      UnknownFigures: for a block of a name that there is not, that has no end, or whose file is not there.
    """
    changed = _BLOCK.sub(lambda match: match[1] + made(match[2], results) + match[3], text)
    if len(_MARKER.findall(text)) != 2 * len(_BLOCK.findall(text)):
        raise UnknownFigures(
            "a marker of figures has no partner; a block is <!-- figures:NAME --> … <!-- end figures:NAME -->"
        )
    return changed


def made(name: str, results: Path = RESULTS) -> str:
    """What stands in a block.

    Raises:
      UnknownFigures: as `current` does.
    """
    if name not in BLOCKS:
        raise UnknownFigures(f"there are no figures '{name}', only {', '.join(BLOCKS)}")
    block = BLOCKS[name]
    runs: dict[str, Run] = {}
    for command in (*block.commands, *block.optional):
        path = results / f"{command}.json"
        if path.exists():
            runs[command] = load(path)
        elif command in block.commands:
            raise UnknownFigures(f"{path} is not there; `python -m bench {command} --json {path}` writes it")
    return f"{block.written(runs).strip()}\n\n{_provenance(list(runs.values()))}\n"


def _provenance(runs: Sequence[Run]) -> str:
    told = [f"`bench {run.command}`, {report_markdown.plain(values.machine(run.summary))}" for run in runs]
    return f"<sub>{'; '.join(told)}.</sub>"


def _table(table: Table, *, is_wide: bool = False) -> str:
    return "\n\n".join((report_markdown.table(table, is_wide=is_wide), *map(report_markdown.plain, table.notes)))


def _overview(runs: Mapping[str, Run]) -> str:
    rows = report_models.measured(runs["models"].rows)
    return "\n\n".join(map(report_markdown.plain, report_models.overview(rows)))


def _models(runs: Mapping[str, Run]) -> str:
    return f"{_overview(runs)}\n\n{_table(report_models.times(report_models.measured(runs['models'].rows)))}"


def _paper(runs: Mapping[str, Run]) -> str:
    (section,) = paper_tables.sections(list(runs.values()))
    parts = [report_markdown.plain(sentence) for sentence in section.sentences]
    parts += [f"**{report_markdown.plain(table.title)}**\n\n{_table(table)}" for table in section.tables]
    return "\n\n".join(parts)


BLOCKS: dict[str, Block] = {
    "models": Block(("models",), _models),
    "models-overview": Block(("models",), _overview),
    "kernels": Block(("kernels",), lambda runs: _table(report_kernels.table(runs["kernels"].rows))),
    "clusters": Block(("clusters",), lambda runs: _table(report_clusters.overview(runs["clusters"].rows))),
    "workloads": Block(("clusters",), lambda runs: _table(report_clusters.by_workload(runs["clusters"].rows))),
    "gpu": Block(("gpu",), lambda runs: _table(report_gpu.by_arch(runs["gpu"].rows))),
    "ablation": Block(("ablation",), lambda runs: _table(report_ablation.table(runs["ablation"].rows), is_wide=True)),
    "paper": Block(("kernels", "gpu", "ablation"), _paper, optional=("models",)),
}


def main() -> None:
    stale: list[str] = []
    for path in documents():
        written = path.read_text(encoding="utf-8")
        try:
            wanted = current(written)
        except UnknownFigures as error:
            sys.exit(f"{path.relative_to(ROOT)}: {error}")
        if written == wanted:
            continue
        name = str(path.relative_to(ROOT))
        stale.append(name)
        if "--check" in sys.argv:
            lines = written.splitlines(True), wanted.splitlines(True)
            sys.stdout.writelines(difflib.unified_diff(*lines, name, "as it should be"))
        else:
            path.write_text(wanted, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(stale)}; run `python -m docs.figures`")


if __name__ == "__main__":
    main()
