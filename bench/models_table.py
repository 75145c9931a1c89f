"""The terminal's view of `bench models` and `bench compare`, 80 columns wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench import models_row
from bench.results import Row, Summary

_MARKS = {"mismatch": "≠", "fallback": "f", "nothing stitched": "∅", "slower": "−"}


def show(console: Console, rows: Sequence[Row], summary: Summary) -> None:
    console.print(render(rows, summary))


def render(rows: Sequence[Row], summary: Summary) -> RenderableType:
    measured = [row for row in rows if "absent" not in row]
    modes = (mode for mode in models_row.MODES if any(row["mode"] == mode for row in measured))
    tables = (_table([row for row in measured if row["mode"] == mode], mode) for mode in modes)
    return Group(*tables, *_footer(rows, summary))


def _table(rows: Sequence[Row], mode: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("training step" if mode == "train" else "model", overflow="fold")
    table.add_column("size", overflow="fold")
    for heading in ("T", "TF ms", "XLA ms", "stitch", "TF/s", "XLA/s", "max", "ops", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["model"],
            row["size"],
            str(row["threads"]),
            *(ms(row[f"{way}_ms"]) for way in ("tf", "xla", "stitch")),
            ratio(row["tf_over_stitch"]),
            ratio(row["xla_over_stitch"]),
            ratio((row["ceiling_over_tf"] or {}).get("third")),
            str(row["stitch_ops"]),
            "".join(_MARKS[flag] for flag in row["flags"]),
            style="red" if models_row.is_wrong(row) else "yellow" if row["flags"] else None,
        )
    return table


def _footer(rows: Sequence[Row], summary: Summary) -> Iterator[RenderableType]:
    measured = [row for row in rows if "absent" not in row]
    if measured:
        yield Text("ms: a step, CPU time on 1 thread, wall time on more; TF/s, XLA/s: over stitch;")
        yield Text("max: TF/s if all but compute took a third; ops: StitchOps a step")
    if any(row["flags"] for row in measured):
        yield Text(", ".join(f"{mark} {flag}" for flag, mark in _MARKS.items()))
    for row in measured:
        if row["xla_refused"]:
            yield Text(f"{models_row.label(row)}: XLA: {row['xla_refused']}", style="yellow")
        for note in row["notes"] if models_row.is_wrong(row) else ():
            yield Text(f"{models_row.label(row)}: {note}", style="red")
    for line in summary["flagged"]:
        yield Text(f"flagged: {line}", style="yellow")
    for line in summary["absent"]:
        yield Text(f"absent: {line}", style="yellow")
    for mode, means in summary["geomeans"].items():
        named = (("TF/s", "tf_over_stitch"), ("XLA/s", "xla_over_stitch"), ("better/s", "better_over_stitch"))
        text = " · ".join(f"{name} {ratio(means[key])}" for name, key in named)
        yield Text(f"geometric means, {mode}: {text}", style="bold")


def log_line(row: Row) -> str:
    if "absent" in row:
        return f"{row['model']}: {row['absent']}"
    times = ", ".join(f"{way} {ms(row[f'{way}_ms'])}" for way in ("tf", "xla", "stitch"))
    flags = f"  [{', '.join(row['flags'])}]" if row["flags"] else ""
    return f"{models_row.label(row)}: {times} ms, {ratio(row['better_over_stitch'])} over the better{flags}"


def ms(value: object) -> str:
    if not isinstance(value, int | float):
        return "–"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def ratio(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"
