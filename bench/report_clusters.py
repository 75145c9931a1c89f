"""What a report shows of `bench clusters`."""

from __future__ import annotations

from collections.abc import Sequence

from bench import report_values as values
from bench.report_parts import Bar, Chart, Column, Entry, Kind, Line, Metric, Run, Section, Segment, Table, ratio_chart
from bench.report_values import number, text, texts
from bench.results import Row, geomean

WAYS = ("tf", "xla", "stitch")


def sections(run: Run) -> list[Section]:
    alarms = [f"wrong output of {', '.join(texts(r, 'disagree'))}: {name(r)}" for r in run.rows if texts(r, "disagree")]
    tiles = [
        (values.times(geomean(number(row, key) for row in run.rows)), f"over {rival}, geometric mean")
        for key, rival in (("tf_over_stitch", "TensorFlow"), ("xla_over_stitch", "XLA"))
    ]
    charts = [_speedups(run.rows, threads) for threads in dict.fromkeys(text(row, "threads") for row in run.rows)]
    return [Section("Clusters", (), tuple(alarms), tuple(tiles), tuple(charts), (_table(run.rows),))]


def overview(rows: Sequence[Row]) -> Table:
    """Geometric means over all rows, a row for each number of threads."""
    entries = [Entry((threads, *_means(some))) for threads, some in _grouped(rows, "threads").items()]
    return Table("Clusters", (Column("threads"), *_MEANS), tuple(entries))


def by_workload(rows: Sequence[Row]) -> Table:
    """Geometric means over the shapes of each workload."""
    columns = (Column("workload", is_text=True), Column("T"), *_MEANS)
    entries = [
        Entry((workload, threads, *_means(some)))
        for workload, of_workload in _grouped(rows, "workload").items()
        for threads, some in _grouped(of_workload, "threads").items()
    ]
    return Table("Clusters, by workload", columns, tuple(entries))


_MEANS = tuple(map(Column, ("rows", "TF/stitch", "XLA/stitch", "lowest of either")))


def _grouped(rows: Sequence[Row], key: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(text(row, key), []).append(row)
    return found


def _means(rows: Sequence[Row]) -> tuple[str, ...]:
    ways = ("tf_over_stitch", "xla_over_stitch")
    lowest = [ratio for row in rows for way in ways if (ratio := number(row, way)) is not None]
    means = (values.times(geomean(number(row, way) for row in rows)) for way in ways)
    return str(len(rows)), *means, values.times(min(lowest, default=None))


def name(row: Row) -> str:
    return f"{text(row, 'workload')} {text(row, 'shape')} on {text(row, 'threads')}"


def _speedups(rows: Sequence[Row], threads: str) -> Chart:
    lines = [
        Line(text(row, "workload"), text(row, "shape"), tuple(_over(row, way) for way in ("tf", "xla")))
        for row in rows
        if text(row, "threads") == threads
    ]
    return ratio_chart(
        f"clusters-{threads}",
        f"Speed-up of a cluster, {'1 thread' if threads == '1' else f'{threads} threads'}",
        "times as fast (logarithmic)",
        lines,
        (("tf", "over TensorFlow"), ("xla", "over XLA")),
        "Whiskers: the middle half of the other's time over the median of tf_stitch's.",
    )


def _over(row: Row, way: str) -> Bar:
    reason = text(row, "absent", way) or text(row, "absent", "stitch")
    return speedup(row, way, values.shortened(reason) or "not measured")


def speedup(row: Row, way: str, absent: str) -> Bar:
    """Of tf_stitch over a way, with the middle half of the way's time; `absent` where it was not measured."""
    ratio, stitch_ms = number(row, f"{way}_over_stitch"), number(row, "stitch_ms")
    if ratio is None:
        return Bar(absent=absent)
    spread = values.quartiles(row.get("spread"), way)
    whisker = (spread[0] / stitch_ms, spread[1] / stitch_ms) if spread and stitch_ms else None
    return Bar((Segment(way, 1.0, ratio),), values.times(ratio), whisker)


def _table(rows: Sequence[Row]) -> Table:
    columns = (
        Column("workload", is_text=True),
        Column("shape", is_text=True),
        *map(Column, ("T", "TF ms", "XLA ms", "stitch", "TF/s", "XLA/s", "s/XLA")),
        Column("error", is_wide=True),
        Column("TF's error", is_wide=True),
    )
    notes = (
        "ms: a step, CPU time on 1 thread, wall time on more; s/XLA: kernels, + what was left to TensorFlow's ops",
    )
    return Table("A cluster, in milliseconds", columns, tuple(map(_entry, rows)), notes)


def _entry(row: Row) -> Entry:
    left = number(row, "stitch_left")
    kernels = f"{values.count(number(row, 'stitch_kernels'))}{f'+{left:.0f}' if left else ''}"
    cells = (
        text(row, "workload"),
        text(row, "shape"),
        text(row, "threads"),
        *(values.ms(number(row, f"{way}_ms")) for way in WAYS),
        values.ratio(number(row, "tf_over_stitch")),
        values.ratio(number(row, "xla_over_stitch")),
        f"{kernels}/{values.count(number(row, 'xla_kernels'))}",
        values.error(number(row, "max_err_f64")),
        values.error(number(row, "tf_err_f64")),
    )
    return Entry(cells, "bad" if texts(row, "disagree") else "")


KIND = Kind(
    command="clusters",
    required=("workload", "shape", "threads", "stitch_ms", "max_err_f64"),
    key=("workload", "shape", "threads"),
    metrics=(
        Metric(
            "stitch ms",
            lambda row: number(row, "stitch_ms"),
            values.ms,
            lambda row: values.quartiles(row.get("spread"), "stitch"),
        ),
        Metric("TF/s", lambda row: number(row, "tf_over_stitch"), values.ratio, more_is_better=True),
        Metric("kernels", lambda row: number(row, "stitch_kernels"), values.count, is_count=True),
    ),
    sections=sections,
)
