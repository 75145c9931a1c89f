"""What a report shows of `bench compile`."""

from __future__ import annotations

from collections.abc import Sequence

from bench import report_values as values
from bench.report_model_charts import WAYS
from bench.report_parts import Bar, Chart, Column, Entry, Kind, Line, Metric, Run, Scale, Section, Segment, Table
from bench.report_values import number, text
from bench.results import Row


def sections(run: Run) -> list[Section]:
    rows = [row for row in run.rows if not row.get("absent")]
    alarms = [f"not measured: {text(row, 'name')}, {text(row, 'absent')}" for row in run.rows if row.get("absent")]
    charts = (_chart(rows),) if rows else ()
    return [
        Section("Compile time", tuple(_sentences(rows)), tuple(alarms), (), charts, (_table(rows),) if rows else ())
    ]


def _sentences(rows: Sequence[Row]) -> list[str]:
    found = []
    for row in rows:
        xla, stitch = (number(row, "compile_cpu_s", way) for way in ("xla", "stitch"))
        if xla is not None and stitch is not None:
            beside = f"tf_stitch {values.seconds(stitch)} ({values.times(values.over(xla, stitch))})"
            found.append(f"{_name(row)}: XLA takes {values.seconds(xla)} CPU seconds, {beside}.")
    return found


def _name(row: Row) -> str:
    shapes = text(row, "shapes")
    return f"{text(row, 'name')}, {shapes} {'shape' if shapes == '1' else 'shapes'}"


def _chart(rows: Sequence[Row]) -> Chart:
    known = [v for row in rows for way, _ in WAYS if (v := number(row, "compile_cpu_s", way))]
    lines = []
    for row in rows:
        shapes = text(row, "shapes")
        bars = tuple(_dot(row, way) for way, _ in WAYS)
        lines.append(Line(text(row, "name"), f"{shapes} {'shape' if shapes == '1' else 'shapes'}", bars))
    scale = Scale(
        min(known, default=0.1) / 1.5, max(known, default=1.0) * 1.5, "CPU seconds (logarithmic)", is_log=True
    )
    return Chart("compile", "CPU seconds of the first calls, compilers with them", scale, tuple(lines), WAYS)


def _dot(row: Row, way: str) -> Bar:
    cpu = number(row, "compile_cpu_s", way)
    if not cpu:
        return Bar(absent=values.shortened(text(row, "refused", way)) or "not measured")
    return Bar((Segment(way, 0.0, cpu),), f"{values.seconds(cpu)} s", is_dot=True)


def _table(rows: Sequence[Row]) -> Table:
    columns = (
        Column("what", is_text=True),
        Column("shapes"),
        *(Column(f"{title} {unit}", is_wide=unit == "s") for unit in ("CPU s", "s") for _, title in WAYS),
    )
    entries = [
        Entry(
            (
                text(row, "name"),
                text(row, "shapes"),
                *(
                    values.seconds(number(row, field, way))
                    for field in ("compile_cpu_s", "first_calls_s")
                    for way, _ in WAYS
                ),
            )
        )
        for row in rows
    ]
    notes = (
        "CPU s: of the process and of the compilers that it runs, for a first call at each shape; s: by the clock",
    )
    return Table("First calls, and what they compile", columns, tuple(entries), notes)


KIND = Kind(
    command="compile",
    required=("name", "shapes", "compile_cpu_s"),
    key=("name", "shapes", "threads"),
    metrics=tuple(
        Metric(f"{title} CPU s", lambda row, way=way: number(row, "compile_cpu_s", way), values.seconds)
        for way, title in WAYS
    ),
    sections=sections,
)
