"""The terminal's view of `bench clusters`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench import results
from bench.results import Row, Summary

# Narrower than this, the accuracy columns stay away.
WIDE = 88


def render(rows: list[Row], summary: Summary, width: int) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("workload", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    for title in ("T", "TF ms", "XLA ms", "stitch", "TF/s", "XLA/s", "s/XLA"):
        table.add_column(title, justify="right", no_wrap=True)
    if width >= WIDE:
        table.add_column("error", justify="right", no_wrap=True)
        table.add_column("TF's", justify="right", no_wrap=True)
    for row in rows:
        cells = [
            row["workload"],
            row["shape"],
            str(row["threads"]),
            *(ms(row[name]) for name in ("tf_ms", "xla_ms", "stitch_ms")),
            ratio(row["tf_over_stitch"]),
            ratio(row["xla_over_stitch"]),
            _kernels(row),
        ]
        if width >= WIDE:
            cells += [_error(row["max_err_f64"]), _error(row["tf_err_f64"])]
        table.add_row(*cells, style="red" if row["disagree"] else None)
        if row["rival"]:
            table.add_row(*_rival_cells(row["rival"]))
    return Group(table, *_footer(rows, summary))


def _kernels(row: Row) -> str:
    left = f"+{row['stitch_left']}" if row["stitch_left"] else ""
    return f"{_count(row['stitch_kernels'])}{left}/{_count(row['xla_kernels'])}"


def _rival_cells(rival: Row) -> list[str]:
    """A line below a row: what TensorFlow takes with its own ops for the work."""
    return [f" {rival['name']}", "", "", ms(rival["ms"]), "", "", ratio(rival["over_stitch"])]


def _footer(rows: list[Row], summary: Summary) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text("ms: a step, CPU time on 1 thread, wall time on more; TF/s, XLA/s: over stitch"),
        Text("s/XLA: their kernels, + ops that tf_stitch left; error: relative to float64"),
    ]
    lines += [Text(line, style="yellow") for line in sorted(set(_remarks(rows)))]
    lines += [Text(f"wrong output: {which}", style="red") for which in summary["disagreeing"]]
    seconds = (f"{way} {ms(summary[f'{way}_compile_cpu_s'])}" for way in ("tf", "xla", "stitch"))
    lines.append(Text(f"CPU seconds of first calls: {', '.join(seconds)}"))
    lines.append(Text(f"worst row, better of the two / stitch: {ratio(summary['worst_over_better'])}"))
    lines.append(
        Text(
            f"geometric means: TF/stitch {ratio(summary['geomean_tf_over_stitch'])}"
            f" · XLA/stitch {ratio(summary['geomean_xla_over_stitch'])}"
            f" · TF/XLA {ratio(summary['geomean_tf_over_xla'])}",
            style="bold",
        )
    )
    return lines


def _remarks(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        yield from (f"not measured, {way}: {reason}" for way, reason in row["absent"].items())
        yield from (f"{row['workload']} {row['shape']}: {note}" for note in row["notes"])


def show(console: Console, rows: list[Row], summary: Summary) -> None:
    console.print(render(rows, summary, console.width))


def log_line(row: Row) -> str:
    times = ", ".join(f"{way} {ms(row[f'{way}_ms'])}" for way in ("tf", "xla", "stitch"))
    better = results.better_over_stitch(row)
    lead = f", {better:.2f} over the better" if better is not None else ""
    return f"threads {row['threads']}, {row['workload']} {row['shape']}: {times} ms{lead}"


def ms(value: object) -> str:
    if not isinstance(value, int | float):
        return "–"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def ratio(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _count(value: object) -> str:
    return "–" if value is None else str(value)


def _error(value: object) -> str:
    return f"{value:.0e}" if isinstance(value, int | float) else "–"
