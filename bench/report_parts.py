"""What a report is made of, as data: tables and charts, in sections. Terminal, HTML, Markdown and PNG draw the same.

Run (a file)  ──►  Kind: which command wrote it  ──►  Sections  ──►  Tables and Charts  ──►  report_terminal,
                   (report_models, report_gpu, …)                                            report_html, …

chart     ┌ line ────────────┐       scale
bert 1x128│ ████████▒▒▒▒  bar│──────►  a bar has segments, perhaps a whisker (the middle half of what was
          │ ███─┼─ ┆      bar│         measured), and ticks (what it could be at best)
          └──────────────────┘
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.results import Row, Summary

# -- files -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One file. name: of the file, to tell runs of one command apart."""

    path: Path
    command: str
    rows: tuple[Row, ...]
    summary: Summary

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class Metric:
    """One figure of a row, for comparing runs.

    spread: the middle half of what was measured, or None. is_count: exact, so that any difference is one.
    more_is_better: else less is.
    """

    title: str
    value: Callable[[Row], float | None]
    written: Callable[[float | None], str]
    spread: Callable[[Row], tuple[float, float] | None] = lambda _: None
    is_count: bool = False
    more_is_better: bool = False


@dataclass(frozen=True)
class Kind:
    """What a report knows of one command's files.

    required: fields of each row; a file that names no command is this one's where its rows have them all.
    key: what makes a row the same row in another run. sections: what is shown of one run.
    """

    command: str
    required: tuple[str, ...]
    key: tuple[str, ...]
    metrics: tuple[Metric, ...]
    sections: Callable[[Run], list[Section]]


# -- tables ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """is_text: to the left, and folded where there is no room. is_wide: left out where there are 80 columns."""

    title: str
    is_text: bool = False
    is_wide: bool = False


@dataclass(frozen=True)
class Entry:
    """A row of a table. mark: "good", "bad" or nothing."""

    cells: tuple[str, ...]
    mark: str = ""


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.entries:
            if len(entry.cells) != len(self.columns):
                raise ValueError(
                    f"'{self.title}' has {len(self.columns)} columns, a row of it {len(entry.cells)} cells"
                )


# -- charts ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """A part of a bar, from one value to another, drawn in the colour of its kind."""

    kind: str
    start: float
    end: float


@dataclass(frozen=True)
class Tick:
    value: float
    meaning: str


@dataclass(frozen=True)
class Bar:
    """figure: written beside it. absent: why there is nothing to draw. is_dot: a dot at the end in place of a bar."""

    segments: tuple[Segment, ...] = ()
    figure: str = ""
    whisker: tuple[float, float] | None = None
    ticks: tuple[Tick, ...] = ()
    absent: str = ""
    is_dot: bool = False


@dataclass(frozen=True)
class Line:
    """The bars of one thing; `detail` is what tells it from others of the same label."""

    label: str
    detail: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Scale:
    """The values from the left edge to the right one. unit: of the values, for the axis."""

    low: float
    high: float
    unit: str
    is_log: bool = False

    def at(self, value: float) -> float:
        """Where a value is: 0 at the left edge, 1 at the right; what is beyond them is at them."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = (math.log(max(v, 1e-300)) for v in (value, low, high))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def marks(self) -> tuple[float, ...]:
        """Round values along the axis."""
        return _log_marks(self.low, self.high) if self.is_log else _even_marks(self.low, self.high)


@dataclass(frozen=True)
class Chart:
    """name: of its file. legend: kinds of segments, and what they mean. reference: a value that all compare with."""

    name: str
    title: str
    scale: Scale
    lines: tuple[Line, ...]
    legend: tuple[tuple[str, str], ...] = ()
    reference: float | None = None
    note: str = ""


def ratio_scale(values: list[float], unit: str) -> Scale:
    """Logarithmic, so that half and double are equally far from 1, which is always on it."""
    found = [v for v in values if v > 0]
    return Scale(min([0.9, *found]) / 1.05, max([1.25, *found]) * 1.05, unit, is_log=True)


def ratio_chart(
    name: str, title: str, unit: str, lines: Sequence[Line], legend: tuple[tuple[str, str], ...], note: str = ""
) -> Chart:
    """Bars of ratios, as far as they go, beside 1."""
    ends = [segment.end for line in lines for bar in line.bars for segment in bar.segments]
    return Chart(name, title, ratio_scale(ends, unit), tuple(lines), legend, reference=1.0, note=note)


def _even_marks(low: float, high: float) -> tuple[float, ...]:
    span = high - low
    if span <= 0:
        return (low,)
    magnitude = 10.0 ** math.floor(math.log10(span))
    step = next(magnitude * f for f in (0.2, 0.5, 1.0, 2.0) if span / (magnitude * f) <= 5)
    first = math.ceil(low / step - 1e-9)
    return tuple(step * n for n in range(first, math.floor(high / step + 1e-9) + 1))


def _log_marks(low: float, high: float) -> tuple[float, ...]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0), (1.0, 2.0, 5.0), (1.0,)):
        marks = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]
        if len(marks) <= 7:
            return tuple(marks)
    return tuple(marks[:: math.ceil(len(marks) / 7)])


# -- sections --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """sentences: what the figures say, in words made from them. alarms: what went wrong, to be seen first."""

    title: str
    sentences: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    tiles: tuple[tuple[str, str], ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = field(default=())
