"""The terminal's view of `bench kernels`."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.results import Row, Summary

MOST_REASONS = 10  # a model


def show(console: Console, rows: list[Row], summary: Summary, *, why: bool) -> None:
    console.print(render(rows, summary, why=why))


def render(rows: list[Row], summary: Summary, *, why: bool) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    table.add_column("size", no_wrap=True)
    for title in ("TF", "XLA", "stitch", "StitchOps", "fewer than XLA"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        counts = (_count(row[f"{way}_kernels"]) for way in ("tf", "xla", "stitch"))
        table.add_row(row["model"], row["size"], *counts, _count(row["stitch_ops"]), _fewer(row["stitch_over_xla"]))
    parts: list[RenderableType] = [table, Text("launches of memory-intensive kernels in one step")]
    parts += [
        Text(f"not counted, {row['model']} under {way}: {reason}", style="yellow")
        for row in rows
        for way, reason in row["absent"].items()
    ]
    if why:
        parts += [_reasons(row) for row in rows if row["unstitched"]]
    parts.append(
        Text(
            f"fewer, by geometric means: than XLA {_share(summary['fewer_than_xla'])}"
            f" · than TF {_share(summary['fewer_than_tf'])}",
            style="bold",
        )
    )
    return Group(*parts)


def _reasons(row: Row) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, title=f"\nunstitched in {row['model']}")
    table.title_justify = "left"
    for title in ("kernels", "nodes"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("op", "reason"):
        table.add_column(title, no_wrap=True)
    table.add_column("such as", overflow="fold")
    for left in row["unstitched"][:MOST_REASONS]:
        table.add_row(str(left["kernels"]), str(left["nodes"]), left["op"], left["reason"], _short(left["example"]))
    return table


def log_line(row: Row) -> str:
    counts = ", ".join(f"{way} {_count(row[f'{way}_kernels'])}" for way in ("tf", "xla", "stitch"))
    return f"{row['model']} {row['size']}: {counts}"


def _short(node: str) -> str:
    return "/".join(node.split("/")[-2:])


def _count(value: int | None) -> str:
    return "–" if value is None else str(value)


def _fewer(ratio: float | None) -> str:
    return _share(None if ratio is None else 1 - ratio)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
