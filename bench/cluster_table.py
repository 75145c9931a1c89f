"""The terminal's view of `bench clusters`."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench import results
from bench.results import Row

# Narrower than this, the accuracy columns stay away.
WIDE = 96


def render(rows: list[Row], summary: dict[str, object], width: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    for title in ("thr", "TF ms", "XLA ms", "stitch", "TF/s", "XLA/s", "kernels"):
        table.add_column(title, justify="right", no_wrap=True)
    if width >= WIDE:
        table.add_column("error", justify="right", no_wrap=True)
        table.add_column("TF's", justify="right", no_wrap=True)
    for row in rows:
        cells = [
            row["workload"],
            row["shape"],
            str(row["threads"]),
            *(_ms(row[name]) for name in ("tf_ms", "xla_ms", "stitch_ms")),
            _ratio(row["tf_over_stitch"]),
            _ratio(row["xla_over_stitch"]),
            f"{_count(row['stitch_kernels'])}/{_count(row['xla_kernels'])}",
        ]
        if width >= WIDE:
            cells += [_error(row["max_err_f64"]), _error(row["tf_err_f64"])]
        table.add_row(*cells, style="red" if row["disagree"] else None)
    return Group(table, *_footer(rows, summary))


def _footer(rows: list[Row], summary: dict[str, object]) -> list[RenderableType]:
    lines = [
        Text("ms a step: CPU time on 1 thread, wall time on more · kernels: stitch/XLA · error: against float64"),
    ]
    for way, reason in sorted({(way, reason) for row in rows for way, reason in row["absent"].items()}):
        lines.append(Text(f"not measured, {way}: {reason}", style="yellow"))
    for note in sorted({f"{row['workload']} {row['shape']}: {note}" for row in rows for note in row["notes"]}):
        lines.append(Text(note, style="yellow"))
    for disagreement in summary["disagreeing"]:  # type: ignore[union-attr]
        lines.append(Text(f"wrong output: {disagreement}", style="red"))
    seconds = (f"{way} {_ms(summary[f'{way}_compile_cpu_s'])}" for way in ("tf", "xla", "stitch"))
    lines.append(Text(f"CPU seconds of first calls: {', '.join(seconds)}"))
    lines.append(Text(f"worst row, better of the two / stitch: {_ratio(summary['worst_over_better'])}"))
    lines.append(
        Text(
            f"geometric means: TF/stitch {_ratio(summary['geomean_tf_over_stitch'])}"
            f" · XLA/stitch {_ratio(summary['geomean_xla_over_stitch'])}"
            f" · TF/XLA {_ratio(summary['geomean_tf_over_xla'])}",
            style="bold",
        )
    )
    return list(lines)


def show(console: Console, rows: list[Row], summary: dict[str, object]) -> None:
    console.print(render(rows, summary, console.width))


def log_line(row: Row) -> str:
    times = ", ".join(f"{way} {_ms(row[f'{way}_ms'])}" for way in ("tf", "xla", "stitch"))
    better = results.better_over_stitch(row)
    return f"{row['workload']} {row['shape']}: {times} ms" + (f", {better:.2f} over the better" if better else "")


def _ms(value: object) -> str:
    if not isinstance(value, int | float):
        return "–"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _ratio(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _count(value: object) -> str:
    return "–" if value is None else str(value)


def _error(value: object) -> str:
    return f"{value:.0e}" if isinstance(value, int | float) else "–"
