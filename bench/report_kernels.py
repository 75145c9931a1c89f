"""What a report shows of `bench kernels`."""

from __future__ import annotations

from collections.abc import Sequence

from bench import report_values as values
from bench.report_model_charts import WAYS, kernel_chart
from bench.report_parts import Bar, Column, Entry, Kind, Line, Metric, Run, Section, Segment, Table
from bench.report_values import number, text
from bench.results import Row, geomean


def sections(run: Run) -> list[Section]:
    tiles = [
        (values.share(None if mean is None else 1 - mean), f"fewer kernels than {rival}, geometric mean")
        for key, rival in (("stitch_over_xla", "XLA"), ("stitch_over_tf", "TensorFlow"))
        for mean in (geomean(number(row, key) for row in run.rows),)
    ]
    alarms = [
        f"not counted, {text(row, 'model')} under {way}: {text(row, 'absent', way)}"
        for row in run.rows
        for way, _ in WAYS
        if text(row, "absent", way)
    ]
    return [
        Section(
            "Kernels of models",
            (),
            tuple(alarms),
            tuple(tiles),
            (kernel_chart([_line(row) for row in run.rows], "kernels-of-models"),),
            (table(run.rows),),
        )
    ]


def _line(row: Row) -> Line:
    whole = number(row, "tf_kernels")
    return Line(text(row, "model"), text(row, "size"), tuple(_bar(row, way, whole) for way, _ in WAYS))


def _bar(row: Row, way: str, whole: float | None) -> Bar:
    count = number(row, f"{way}_kernels")
    if count is None or not whole:
        return Bar(absent=values.shortened(text(row, "absent", way)) or "not counted")
    return Bar((Segment(way, 0.0, count / whole),), values.count(count))


def table(rows: Sequence[Row]) -> Table:
    columns = (
        Column("model", is_text=True),
        Column("size", is_text=True),
        *map(Column, ("TF", "XLA", "stitch", "StitchOps", "fewer than XLA", "than TF")),
    )
    entries = [
        Entry(
            (
                text(row, "model"),
                text(row, "size"),
                *(values.count(number(row, f"{way}_kernels")) for way, _ in WAYS),
                values.count(number(row, "stitch_ops")),
                *(_fewer(number(row, key)) for key in ("stitch_over_xla", "stitch_over_tf")),
            )
        )
        for row in rows
    ]
    notes = ("launches of memory-intensive kernels in one step, by one rule for all three; see bench/kernels.py",)
    return Table("Kernels of models", columns, tuple(entries), notes)


def _fewer(ratio: float | None) -> str:
    return values.NONE if ratio is None else f"{1 - ratio:.1%}"


KIND = Kind(
    command="kernels",
    required=("model", "size", "xla_kernels", "stitch_kernels", "stitch_by_op"),
    key=("model", "size"),
    metrics=tuple(
        Metric(title, lambda row, way=way: number(row, f"{way}_kernels"), values.count, is_count=True)
        for way, title in WAYS
    ),
    sections=sections,
)
