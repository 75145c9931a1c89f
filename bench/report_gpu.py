"""What a report shows of `bench gpu`."""

from __future__ import annotations

from collections.abc import Sequence

from bench import report_values as values
from bench.report_parts import Bar, Chart, Column, Entry, Kind, Line, Metric, Run, Section, Segment, Table, ratio_chart
from bench.report_values import number, text, texts
from bench.results import Row, geomean

_WHAT = (("kernels", "kernels"), ("bytes", "bytes"))


def sections(run: Run) -> list[Section]:
    short = [f"{text(row, 'cluster')} {text(row, 'arch')}: {what}" for row in run.rows for what in texts(row, "short")]
    tiles = [
        (values.times(geomean(_xla_over(row, what) for row in run.rows)), f"{title}: XLA's over ours, geometric mean")
        for what, title in _WHAT
    ]
    tiles.append(
        (values.times(geomean(number(row, "stitch_over_min") for row in run.rows)), "bytes over the least there are")
    )
    tiles.append(
        (f"{len(run.rows) - len({s.partition(':')[0] for s in short})} of {len(run.rows)}", "rows hold to the rule")
    )
    archs = list(dict.fromkeys(text(row, "arch") for row in run.rows))
    sentence = (
        "Counted from plans and from XLA's optimised programs; nothing was run on a GPU, and no time was measured. "
        "Microseconds are estimates from bytes, barriers and bandwidth."
    )
    charts = tuple(_chart([row for row in run.rows if text(row, "arch") == arch], arch) for arch in archs)
    return [
        Section("GPUs that need not be there", (sentence,), tuple(short), tuple(tiles), charts, (_table(run.rows),))
    ]


def by_arch(rows: Sequence[Row]) -> Table:
    """Geometric means over the clusters, a row for each GPU."""
    entries = [
        Entry(
            (
                arch.upper(),
                str(len(of_arch)),
                values.times(geomean(_xla_over(row, "kernels") for row in of_arch)),
                values.times(geomean(_xla_over(row, "bytes") for row in of_arch)),
                values.times(geomean(number(row, "stitch_over_min") for row in of_arch)),
            )
        )
        for arch in dict.fromkeys(text(row, "arch") for row in rows)
        for of_arch in ([row for row in rows if text(row, "arch") == arch],)
    ]
    columns = (
        Column("GPU", is_text=True),
        *map(Column, ("clusters", "kernels, XLA/stitch", "bytes, XLA/stitch", "bytes, stitch/least")),
    )
    return Table("Kernels and bytes on GPUs, beside XLA's", columns, tuple(entries))


def _xla_over(row: Row, what: str) -> float | None:
    return values.over(number(row, f"xla_{what}"), number(row, f"stitch_{what}")) or None


def _chart(rows: Sequence[Row], arch: str) -> Chart:
    lines = [Line(text(r, "cluster"), text(r, "shape"), (_least(r, "xla"), _least(r, "stitch"))) for r in rows]
    return ratio_chart(
        f"gpu-bytes-{arch}",
        f"Bytes over the least there are, {arch.upper()}",
        "times inputs and outputs once (logarithmic)",
        lines,
        (("xla", "XLA"), ("stitch", "tf_stitch")),
        "Beside each bar: kernels.",
    )


def _least(row: Row, way: str) -> Bar:
    ratio = values.over(number(row, f"{way}_bytes"), number(row, "min_bytes"))
    if ratio is None:
        return Bar(absent=values.shortened(text(row, "absent", way)) or "not counted")
    kernels = values.count(number(row, f"{way}_kernels"))
    return Bar((Segment(way, 1.0, max(ratio, 1.0)),), f"{values.times(ratio)}, {kernels}")


def _table(rows: Sequence[Row]) -> Table:
    columns = (
        Column("cluster", is_text=True),
        Column("shape", is_text=True, is_wide=True),
        Column("GPU", is_text=True),
        *map(Column, ("XLA", "stitch", "XLA MB", "stitch", "least", "× least", "est. µs")),
    )
    entries = [
        Entry(
            (
                text(row, "cluster"),
                text(row, "shape"),
                text(row, "arch"),
                values.count(number(row, "xla_kernels")),
                values.count(number(row, "stitch_kernels")),
                *(values.megabytes(number(row, f"{way}_bytes")) for way in ("xla", "stitch", "min")),
                values.ratio(number(row, "stitch_over_min")),
                values.ms(number(row, "stitch_us")),
            ),
            "bad" if texts(row, "short") else "",
        )
        for row in rows
    ]
    notes = (
        "XLA, stitch: kernels, then MB that they read and write; least: inputs and outputs once; red: over its bar",
    )
    return Table("Kernels and bytes on GPUs", columns, tuple(entries), notes)


KIND = Kind(
    command="gpu",
    required=("cluster", "arch", "stitch_kernels", "min_bytes"),
    key=("cluster", "shape", "arch"),
    metrics=(
        Metric("kernels", lambda row: number(row, "stitch_kernels"), values.count, is_count=True),
        Metric("MB", lambda row: number(row, "stitch_bytes"), values.megabytes, is_count=True),
        Metric("est. µs", lambda row: number(row, "stitch_us"), values.ms, is_count=True),
    ),
    sections=sections,
)
