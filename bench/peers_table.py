"""The terminal's view of `bench peers`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.cluster_table import ms, ratio
from bench.peers_rows import PEERS, WAYS
from bench.results import Row, Summary

TITLES = {"tf": "TF", "stitch": "stitch", "ort": "ORT", "torch": "torch"}


def render(rows: list[Row], summary: Summary) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("workload", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    for title in ("T", "TF ms", *(TITLES[way] for way in WAYS[1:]), "ORT/s", "torch/s"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["workload"],
            row["shape"],
            str(row["threads"]),
            *(ms(row[f"{way}_ms"]) for way in WAYS),
            *(ratio(row[f"{peer}_over_stitch"]) for peer in PEERS),
            style="red" if row["disagree"] else None,
        )
    return Group(table, *_footer(summary))


def show(console: Console, rows: list[Row], summary: Summary) -> None:
    console.print(render(rows, summary))


def log_line(row: Row) -> str:
    times = ", ".join(f"{TITLES[way]} {ms(row[f'{way}_ms'])}" for way in WAYS)
    return f"threads {row['threads']}, {row['workload']} {row['shape']}: {times} ms"


def _footer(summary: Summary) -> Iterator[RenderableType]:
    yield Text("ms: a step, CPU time on 1 thread, wall time on more; ORT/s, torch/s: over stitch")
    for way, reasons in summary["absent"].items():
        for why, names in reasons.items():
            yield Text(f"not measured, {TITLES[way]}: {', '.join(names)}: {why}", style="yellow")
    yield from (Text(f"not TensorFlow's output: {which}", style="red") for which in summary["disagreeing"])
    yield from (Text(f"ahead of tf_stitch: {which}") for which in summary["ahead"])
    versions = ", ".join(f"{package} {version}" for package, version in summary["peers"].items())
    yield Text(f"with {versions or 'no peer that answers'}")
    means = " · ".join(f"{TITLES[way]}/stitch {ratio(summary[f'geomean_{way}_over_stitch'])}" for way in ("tf", *PEERS))
    yield Text(f"geometric means: {means}", style="bold")
