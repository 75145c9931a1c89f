"""The terminal's view of `bench gpu`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.results import Row, Summary


def show(console: Console, rows: list[Row], summary: Summary) -> None:
    console.print(render(rows, summary))


def render(rows: list[Row], summary: Summary) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for title in ("cluster", "GPU"):
        table.add_column(title, no_wrap=True)
    for title in ("XLA", "stitch", "XLA MB", "stitch", "least", "× least", "est. µs"):
        table.add_column(title, justify="right", no_wrap=True)
    before = None
    for row in rows:
        name = row["cluster"] if row["cluster"] != before else ""
        before = row["cluster"]
        table.add_row(
            name,
            row["arch"],
            _count(row["xla_kernels"]),
            str(row["stitch_kernels"]),
            *(_megabytes(row[key]) for key in ("xla_bytes", "stitch_bytes", "min_bytes")),
            _ratio(row["stitch_over_min"]),
            f"{row['stitch_us']:.1f}",
            style="red" if row["short"] else None,
        )
    return Group(table, *_footer(rows, summary))


def _footer(rows: list[Row], summary: Summary) -> Iterator[RenderableType]:
    yield Text("XLA, stitch: memory-intensive kernels, products aside; MB: what they read and write; least: once")
    for reason in sorted({reason for row in rows for reason in row["absent"].values()}):
        yield Text(f"not counted, XLA: {reason}", style="yellow")
    archs: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["again"]:
            archs.setdefault((row["cluster"], row["again"]), []).append(row["arch"])
    for (name, again), those in archs.items():
        yield Text(f"{name} on {', '.join(those)} may pass over memory again: {again}")
    for name, left in {row["cluster"]: row["stitch_left"] for row in rows if row["stitch_left"]}.items():
        yield Text(f"{name} leaves to TensorFlow: {', '.join(f'{n} {op}' for op, n in left.items())}")
    yield from (Text(f"short: {what}", style="red") for what in summary["short"])
    yield Text(
        f"geometric means: kernels XLA/stitch {_ratio(summary['xla_over_stitch_kernels'])}"
        f" · bytes XLA/stitch {_ratio(summary['xla_over_stitch_bytes'])}"
        f" · bytes stitch/least {_ratio(summary['stitch_over_min'])}",
        style="bold",
    )


def _count(value: int | None) -> str:
    return "–" if value is None else str(value)


def _megabytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e6:.1f}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
