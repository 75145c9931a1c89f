"""What a report shows of `bench peers`."""

from __future__ import annotations

from collections.abc import Sequence

from bench import report_values as values
from bench.report_clusters import name, speedup
from bench.report_parts import Chart, Column, Entry, Kind, Line, Metric, Run, Section, Table, ratio_chart
from bench.report_values import number, text, texts
from bench.results import Row, geomean

RIVALS = (("tf", "TensorFlow"), ("ort", "ONNX Runtime"), ("torch", "torch.compile"))


def sections(run: Run) -> list[Section]:
    tiles = [
        (values.times(mean), f"over {title}, geometric mean")
        for way, title in RIVALS
        if (mean := geomean(number(row, f"{way}_over_stitch") for row in run.rows)) is not None
    ]
    alarms = [f"other output of {', '.join(texts(r, 'disagree'))}: {name(r)}" for r in run.rows if texts(r, "disagree")]
    skipped = dict.fromkeys(
        f"not measured, {title} on {text(row, 'workload')}: {reason}"
        for row in run.rows
        for way, title in RIVALS
        if (reason := text(row, "absent", way))
    )
    threads = dict.fromkeys(text(row, "threads") for row in run.rows)
    charts = tuple(_chart([row for row in run.rows if text(row, "threads") == count], count) for count in threads)
    return [Section("Peers", (), (*alarms, *skipped), tuple(tiles), charts, (_table(run.rows),))]


def _chart(rows: Sequence[Row], threads: str) -> Chart:
    lines = [
        Line(
            text(row, "workload"),
            text(row, "shape"),
            tuple(speedup(row, way, f"{title}: not measured") for way, title in RIVALS),
        )
        for row in rows
    ]
    return ratio_chart(
        f"peers-{threads}",
        f"Speed-up over peers, {'1 thread' if threads == '1' else f'{threads} threads'}",
        "times as fast (logarithmic)",
        lines,
        tuple((way, f"over {title}") for way, title in RIVALS),
    )


def _table(rows: Sequence[Row]) -> Table:
    columns = (
        Column("workload", is_text=True),
        Column("shape", is_text=True),
        *map(Column, ("T", "TF ms", "stitch", "ORT", "torch", "TF/s", "ORT/s", "torch/s")),
        *(Column(f"{way}'s error", is_wide=True) for way in ("stitch", "ort", "torch")),
    )
    entries = [
        Entry(
            (
                text(row, "workload"),
                text(row, "shape"),
                text(row, "threads"),
                *(values.ms(number(row, f"{way}_ms")) for way in ("tf", "stitch", "ort", "torch")),
                *(values.ratio(number(row, f"{way}_over_stitch")) for way, _ in RIVALS),
                *(values.error(number(row, "max_err", way)) for way in ("stitch", "ort", "torch")),
            ),
            "bad" if texts(row, "disagree") else "",
        )
        for row in rows
    ]
    notes = (
        "ms: a step, CPU time on 1 thread, wall time on more; ORT: ONNX Runtime; error: relative, to TensorFlow's",
    )
    return Table("A cluster beside peers, in milliseconds", columns, tuple(entries), notes)


KIND = Kind(
    command="peers",
    required=("workload", "shape", "threads", "ort_ms", "torch_ms"),
    key=("workload", "shape", "threads"),
    metrics=tuple(
        Metric(f"{title}/s", lambda row, way=way: number(row, f"{way}_over_stitch"), values.ratio, more_is_better=True)
        for way, title in (("tf", "TF"), ("ort", "ORT"), ("torch", "torch"))
    ),
    sections=sections,
)
