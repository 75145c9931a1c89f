"""The terminal's view of `bench ablation`."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.results import Row, Summary


def show(console: Console, rows: list[Row], summary: Summary) -> None:
    console.print(render(rows, summary))


def render(rows: list[Row], summary: Summary) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("model")
    table.add_column("step", no_wrap=True)
    for title in ("kernels", "StitchOps", "MB", "ms", "middle half", "TF/this"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        for number, (name, way) in enumerate(row["ways"].items()):
            table.add_row(
                f"{row['model']} {row['size']}" if number == 0 else "",
                "TensorFlow" if name == "tf" else name,
                str(way["kernels"]),
                str(way["stitch_ops"]) if name != "tf" else "",
                megabytes(way),
                f"{way['ms']:.4g}",
                f"{way['q1']:.4g}–{way['q3']:.4g}",
                f"{row['ways']['tf']['ms'] / way['ms']:.2f}",
                style="red" if name in row["disagree"] else None,
            )
    return Group(table, *_footer(rows, summary))


def megabytes(way: Row) -> str:
    """With a + where sizes of some launches are not known before they run."""
    return "–" if way["bytes"] is None else f"{way['bytes'] / 1e6:.1f}{'+' if way['unsized'] else ''}"


def _footer(rows: list[Row], summary: Summary) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text(f"{name}: {step['meaning']}", style="dim") for name, step in summary["steps"].items()
    ]
    clocks = sorted({row["clock"] for row in rows})
    lines.append(Text(f"kernels: launches of memory-intensive kernels in a step; ms: {' and '.join(clocks)} time"))
    lines.append(Text("MB: what they read and write, in the planner's model; +: some sizes are not known to it"))
    lines += [Text(f"absent: {absent}", style="yellow") for absent in summary["absent"]]
    lines += [Text(f"wrong output: {which}", style="red") for which in summary["disagreeing"]]
    for what, title in (("kernels", "kernels"), ("bytes", "bytes"), ("ms", "time")):
        shares = ", ".join(f"{n} {v:.2f}" for n, v in summary["full_over"][what].items() if v is not None)
        lines.append(Text(f"geometric mean of {title}, full over: {shares}", style="bold"))
    return lines


def log_line(row: Row) -> str:
    told = ", ".join(f"{name} {way['kernels']} kernels {way['ms']:.4g} ms" for name, way in row["ways"].items())
    return f"{row['model']} {row['size']}: {told or row['absent']}"
