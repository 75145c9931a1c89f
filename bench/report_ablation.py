"""What a report shows of `bench ablation`."""

from __future__ import annotations

from collections.abc import Sequence

from bench import report_values as values
from bench.ablation_steps import ABLATIONS
from bench.report_parts import Bar, Chart, Column, Entry, Kind, Line, Metric, Run, Scale, Section, Segment, Table
from bench.report_values import number, text, texts
from bench.results import Row, geomean

STEPS = tuple(step.name for step in ABLATIONS)
MEANINGS = {"tf": "TensorFlow"} | {step.name: step.meaning for step in ABLATIONS}
_MEASURES = (("kernels", "kernels"), ("bytes", "bytes"), ("ms", "time"))
_MOST_UNSIZED = 0.1  # of the launches


def sections(run: Run) -> list[Section]:
    rows = [row for row in run.rows if not row.get("absent")]
    alarms = [f"not measured: {text(r, 'model')}, {text(r, 'absent')}" for r in run.rows if r.get("absent")]
    alarms += [
        f"wrong output of {', '.join(texts(r, 'disagree'))}: {text(r, 'model')}" for r in rows if texts(r, "disagree")
    ]
    charts = (_chart(rows, "kernels", "kernels"), _chart(rows, "ms", "time")) if rows else ()
    return [
        Section("Ideas taken away", tuple(_sentences(rows)), tuple(alarms), (), charts, (table(rows),) if rows else ())
    ]


def measure(row: Row, step: str, what: str) -> float | None:
    """The kernels, bytes or ms of a step. No bytes where many launches are of unknown size: the rest tells nothing."""
    unsized, kernels = number(row, "ways", step, "unsized"), number(row, "ways", step, "kernels")
    if what == "bytes" and unsized and unsized > _MOST_UNSIZED * (kernels or 0.0):
        return None
    return number(row, "ways", step, what)


def _sentences(rows: Sequence[Row]) -> list[str]:
    means = {what: geomean(_over_fusion(row, "full", what) for row in rows) for what, _ in _MEASURES}
    if any(mean is None for mean in means.values()):
        return []
    told = " and ".join(f"{values.share(means[what])} of its {title}" for what, title in _MEASURES)
    return [f"Beside fusion that ends behind a reduction, the full method has {told} (geometric means)."]


def _over_fusion(row: Row, step: str, what: str) -> float | None:
    return values.over(measure(row, step, what), measure(row, "fusion", what)) or None


def _chart(rows: Sequence[Row], what: str, title: str) -> Chart:
    lines = [
        Line(text(r, "model"), text(r, "size"), tuple(_bar(r, step, what) for step in ("tf", *STEPS))) for r in rows
    ]
    ends = [segment.end for line in lines for bar in line.bars for segment in bar.segments]
    return Chart(
        f"ablation-{what}",
        f"{title.capitalize()} of a step, idea by idea",
        Scale(0.0, max([1.0, *ends]), f"of TensorFlow's {title}"),
        tuple(lines),
        tuple(MEANINGS.items()),
        reference=1.0,
    )


def _bar(row: Row, step: str, what: str) -> Bar:
    value, whole = number(row, "ways", step, what), number(row, "ways", "tf", what)
    ratio = values.over(value, whole)
    if ratio is None or whole is None:
        return Bar(absent="not measured")
    low, high = (number(row, "ways", step, quartile) for quartile in ("q1", "q3"))
    whisker = (low / whole, high / whole) if what == "ms" and low is not None and high is not None else None
    figure = f"{values.ms(value)} ms" if what == "ms" else values.count(value)
    return Bar((Segment(step, 0.0, ratio),), figure, whisker)


def table(rows: Sequence[Row]) -> Table:
    columns = (
        Column("model", is_text=True),
        Column("step", is_text=True),
        *map(Column, ("kernels", "StitchOps", "MB", "ms", "TF/this")),
        Column("middle half", is_wide=True),
    )
    entries = [_entry(row, step) for row in rows for step in ("tf", *STEPS) if number(row, "ways", step, "ms")]
    clocks = sorted({text(row, "clock") for row in rows})
    notes = (
        *(f"{step}: {MEANINGS[step]}" for step in STEPS),
        f"kernels: launches of memory-intensive kernels in a step; ms: {' and '.join(clocks)} time; MB: what they "
        "read and write, in the planner's model, + where it does not know a few sizes, – where many",
    )
    return Table("Ideas of the method, taken away", columns, tuple(entries), notes)


def _entry(row: Row, step: str) -> Entry:
    way, moved = row["ways"][step], measure(row, step, "bytes")
    low, high = number(way, "q1"), number(way, "q3")
    cells = (
        f"{text(row, 'model')} {text(row, 'size')}",
        "TensorFlow" if step == "tf" else step,
        values.count(number(way, "kernels")),
        "" if step == "tf" else values.count(number(way, "stitch_ops")),
        values.megabytes(moved) + ("+" if moved is not None and number(way, "unsized") else ""),
        values.ms(number(way, "ms")),
        values.ratio(values.over(number(row, "ways", "tf", "ms"), number(way, "ms"))),
        f"{low:.4g}–{high:.4g}" if low is not None and high is not None else values.NONE,
    )
    return Entry(cells, "bad" if step in texts(row, "disagree") else "")


KIND = Kind(
    command="ablation",
    required=("model", "size", "ways"),
    key=("model", "size", "threads"),
    metrics=(
        Metric("kernels", lambda row: number(row, "ways", "full", "kernels"), values.count, is_count=True),
        Metric("MB", lambda row: measure(row, "full", "bytes"), values.megabytes, is_count=True),
        Metric(
            "ms",
            lambda row: number(row, "ways", "full", "ms"),
            values.ms,
            lambda row: values.quartiles(row.get("ways"), "full"),
        ),
    ),
    sections=sections,
)
