"""The charts of `bench models`."""

from __future__ import annotations

from collections.abc import Sequence

from bench import report_values as values
from bench.report_parts import Bar, Chart, Line, Scale, Segment, Tick, ratio_scale
from bench.report_values import number, text
from bench.results import Row

WAYS = (("tf", "TensorFlow"), ("xla", "XLA"), ("stitch", "tf_stitch"))
PARTS = (("compute_ms", "compute-intensive"), ("memory_ms", "memory-intensive"), ("gap_ms", "gaps between ops"))
_NOT_COUNTED = "not counted"


def name(row: Row) -> str:
    return " ".join(filter(None, (text(row, "model"), detail(row))))


def detail(row: Row) -> str:
    threads = text(row, "threads")
    return ", ".join(
        filter(None, (text(row, "size"), f"{threads} {'thread' if threads == '1' else 'threads'}" if threads else ""))
    )


def speedups(mode: str, title: str, rows: Sequence[Row]) -> Chart:
    """Over TensorFlow, with what it would be at best, and over XLA; the highest first."""
    lines = [
        Line(text(row, "model"), detail(row), (_over(row, "tf"), _over(row, "xla")))
        for row in sorted(rows, key=lambda row: -(number(row, "tf_over_stitch") or 0.0))
    ]
    return Chart(
        f"speedup-{mode}",
        f"Speed-up of a step, {title}",
        ratio_scale(_reached(lines), "times as fast (logarithmic)"),
        tuple(lines),
        (("tf", "over TensorFlow"), ("xla", "over XLA")),
        reference=1.0,
        note="Bars are medians over processes, whiskers the middle half; the ticks of the first bar are its bounds: "
        "all but products and convolutions in a third of its time, and in none.",
    )


def _over(row: Row, way: str) -> Bar:
    ratio = number(row, f"{way}_over_stitch")
    if ratio is None:
        refused = text(row, f"{way}_refused")
        return Bar(absent=values.shortened(f"XLA refuses: {refused}") if refused else "not measured")
    bounds = [
        Tick(bound, meaning)
        for key, meaning in (("third", "all else in a third"), ("none", "all else in no time"))
        if way == "tf" and (bound := number(row, "ceiling_over_tf", key)) is not None
    ]
    whisker = values.quartiles(row.get("ratio_spread"), f"{way}_over_stitch")
    return Bar((Segment(way, 1.0, ratio),), values.times(ratio), whisker, tuple(bounds))


def _reached(lines: Sequence[Line]) -> list[float]:
    """All values that lines go to; bounds only where they are near, as some are far away."""
    bars = [bar for line in lines for bar in line.bars]
    ends = [v for bar in bars for s in bar.segments for v in (s.start, s.end)] + [
        v for b in bars for v in b.whisker or ()
    ]
    most = 2 * max(ends, default=1.0)
    return ends + [tick.value for bar in bars for tick in bar.ticks if tick.value <= most]


def kernels(rows: Sequence[Row]) -> tuple[Chart, ...]:
    """Of each way, beside TensorFlow's."""
    lines = []
    for row in _one_of_each(rows):
        whole = number(row, "kernels", "tf")
        if whole:
            bars = tuple(_part_of(way, number(row, "kernels", way), whole) for way, _ in WAYS)
            lines.append(Line(text(row, "model"), text(row, "size"), bars))
    return (kernel_chart(lines),) if lines else ()


def kernel_chart(lines: Sequence[Line], name: str = "kernels") -> Chart:
    most = max([1.0, *(segment.end for line in lines for bar in line.bars for segment in bar.segments)])
    return Chart(
        name,
        "Memory-intensive kernels a step",
        Scale(0.0, most, "of TensorFlow's kernels"),
        tuple(lines),
        WAYS,
        note="By one rule for all three: ops that TensorFlow's executor runs, instructions of XLA's program, "
        "StitchOps. Products, convolutions and views do not count.",
    )


def _part_of(way: str, kernels: float | None, whole: float) -> Bar:
    if kernels is None:
        return Bar(absent=_NOT_COUNTED)
    return Bar((Segment(way, 0.0, kernels / whole),), values.count(kernels))


def accuracy(rows: Sequence[Row]) -> tuple[Chart, ...]:
    lines = []
    for row in _one_of_each(rows):
        against = text(row, "reference")
        found = {way: number(row, "errors", way) for way, _ in WAYS}
        if found["stitch"] is None:
            found["stitch"] = number(row, "max_err")
        bars = [
            Bar((Segment(way, 0.0, error),), values.error(error), is_dot=True)
            for way, error in found.items()
            if error is not None and not (way == against and error == 0)
        ]
        if bars:
            lines.append(
                Line(text(row, "model"), f"{text(row, 'size')} against {against or 'TensorFlow'}", tuple(bars))
            )
    errors = [s.end for line in lines for bar in line.bars for s in bar.segments if s.end > 0]
    if not errors:
        return ()
    chart = Chart(
        "accuracy",
        "Largest difference from the reference",
        Scale(min(errors) / 2, max(errors) * 2, "relative to the output's largest value (logarithmic)", is_log=True),
        tuple(lines),
        WAYS,
        note="The reference is a float64 run of the same graph, or TensorFlow's where that takes too long.",
    )
    return (chart,)


def first_calls(rows: Sequence[Row]) -> tuple[Chart, ...]:
    lines, found = [], list[float]()
    for row in _one_of_each(rows):
        taken = [(way, seconds) for way, _ in WAYS if (seconds := number(row, "first_calls_s", way))]
        bars = tuple(Bar((Segment(way, 0.0, s),), f"{values.seconds(s)} s", is_dot=True) for way, s in taken)
        found += [seconds for _, seconds in taken]
        if bars:
            lines.append(Line(text(row, "model"), text(row, "size"), bars))
    if not lines:
        return ()
    scale = Scale(min(found) / 1.5, max(found) * 1.5, "seconds (logarithmic)", is_log=True)
    return (Chart("first-call", "First call, with all that is compiled for it", scale, tuple(lines), WAYS),)


def breakdowns(rows: Sequence[Row]) -> tuple[Chart, ...]:
    """TensorFlow and stitched, in parts of TensorFlow's time."""
    lines = []
    for row in rows:
        whole = sum(number(row, "breakdown", "tf", part) or 0.0 for part, _ in PARTS)
        if whole:
            bars = tuple(
                _stacked(row, way, whole) for way in ("tf", "stitch") if isinstance(row.get("breakdown"), dict)
            )
            lines.append(Line(text(row, "model"), detail(row), bars))
    if not lines:
        return ()
    ends = [s.end for line in lines for bar in line.bars for s in bar.segments]
    chart = Chart(
        "breakdown",
        "What a step is made of, TensorFlow above, stitched below",
        Scale(0.0, max([1.0, *ends]), "of TensorFlow's time"),
        tuple(lines),
        tuple((part.removesuffix("_ms"), meaning) for part, meaning in PARTS),
        reference=1.0,
        note="From one traced step, scaled to the time without tracing.",
    )
    return (chart,)


def _stacked(row: Row, way: str, whole: float) -> Bar:
    segments: list[Segment] = []
    at = 0.0
    for part, _ in PARTS:
        length = (number(row, "breakdown", way, part) or 0.0) / whole
        segments.append(Segment(part.removesuffix("_ms"), at, at + length))
        at += length
    return Bar(tuple(segments), f"{values.ms(at * whole)} ms") if at else Bar(absent="no trace")


def bandwidth(rows: Sequence[Row]) -> tuple[Chart, ...]:
    """What StitchOps move a second, by the planner's count, beside what the machine can."""
    known = [row for row in rows if number(row, "bytes", "gb_per_s") is not None]
    triads = [t for row in known if (t := number(row, "bytes", "triad_gb_per_s")) is not None]
    if not known:
        return ()
    lines = [Line(text(row, "model"), detail(row), (_moved(row),)) for row in known]
    most = max([*triads, *(number(row, "bytes", "gb_per_s") or 0.0 for row in known)])
    chart = Chart(
        "bandwidth",
        "Bytes that StitchOps move a second",
        Scale(0.0, most * 1.05, "GB/s"),
        tuple(lines),
        (("stitch", "StitchOps, by the planner's count of bytes"),),
        note="The tick, and 100 %, is what a STREAM triad reaches in the same process. What stays in the cache from "
        "one kernel to the next makes a kernel faster than that.",
    )
    return (chart,)


def _moved(row: Row) -> Bar:
    speed = number(row, "bytes", "gb_per_s") or 0.0
    triad = number(row, "bytes", "triad_gb_per_s")
    figure = f"{speed:.1f} GB/s{f', {speed / triad:.0%}' if triad else ''}"
    return Bar((Segment("stitch", 0.0, speed),), figure, ticks=(Tick(triad, "triad"),) if triad else ())


def _one_of_each(rows: Sequence[Row]) -> list[Row]:
    """The first row of each model and size: what does not depend on threads is shown once."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        found.setdefault((text(row, "model"), text(row, "size")), row)
    return list(found.values())
