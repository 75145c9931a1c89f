"""A report's charts as PNG files, for a paper or a README: readable in grey, as kinds differ in tone and hatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.report_parts import Bar, Chart, Scale, Section

_TONES = {
    "tf": ("0.75", ""), "xla": ("0.55", "///"), "stitch": ("0.15", ""),
    "ort": ("0.55", "///"), "torch": ("0.93", "..."),
    "compute": ("0.35", ""), "memory": ("0.7", "///"), "gap": ("0.93", "..."),
    "fusion": ("0.85", "..."), "mapping": ("0.65", "\\\\\\"), "stitching": ("0.45", "///"), "full": ("0.15", ""),
}  # fmt: skip
_WIDTH, _BAR, _GAP, _FRAME = 7.2, 0.16, 0.12, 1.3  # inches
_LINES_OF_A_PAGE = 40
_LONGEST_LABEL = 34


class NoMatplotlib(Exception):
    """It is an extra."""

    def __init__(self) -> None:
        super().__init__("--png needs matplotlib; pip install 'tf-stitch[bench]' brings it")


def write(directory: Path, sections: Sequence[Section]) -> list[Path]:
    """The files that were written, one for each chart, several where it is longer than a page.

    Raises:
      NoMatplotlib: where it is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise NoMatplotlib from None
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for chart in (chart for section in sections for chart in section.charts):
        for number, page in enumerate(_pages(chart)):
            name = chart.name if number == 0 else f"{chart.name}-{number + 1}"
            path = _unused(directory, name, written)
            drawn(page).savefig(path, dpi=200)
            written.append(path)
    return written


def _unused(directory: Path, name: str, written: Sequence[Path]) -> Path:
    """Two runs of one command have charts of one name."""
    path, again = directory / f"{name}.png", 1
    while path in written:
        again += 1
        path = directory / f"{name}-run{again}.png"
    return path


def _pages(chart: Chart) -> Iterator[Chart]:
    from dataclasses import replace

    for start in range(0, max(1, len(chart.lines)), _LINES_OF_A_PAGE):
        yield replace(chart, lines=chart.lines[start : start + _LINES_OF_A_PAGE])


def drawn(chart: Chart) -> Any:
    """A matplotlib Figure, of no window."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    bars = sum(len(line.bars) for line in chart.lines)
    figure = Figure(figsize=(_WIDTH, bars * _BAR + len(chart.lines) * _GAP + _FRAME), layout="constrained")
    axes = figure.add_subplot()
    y, places, labels = 0.0, list[float](), list[str]()
    for line in chart.lines:
        places.append(y + _BAR * (len(line.bars) - 1) / 2)
        labels.append(_label(line.label, line.detail))
        for bar in line.bars:
            _draw(axes, bar, y, chart.scale)
            y += _BAR
        y += _GAP
    _frame(axes, chart, y)
    axes.set_yticks(places, labels, fontsize=7, parse_math=False)
    handles = [
        Patch(facecolor=_TONES[k][0], hatch=_TONES[k][1], edgecolor="black", label=text) for k, text in chart.legend
    ]
    if handles:
        columns = 2 if len(handles) > 3 else len(handles)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=7, frameon=False)
    return figure


def _label(label: str, detail: str) -> str:
    shown = label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"
    return f"{shown}\n{detail[:_LONGEST_LABEL]}" if detail else shown


def _draw(axes: Any, bar: Bar, y: float, scale: Scale) -> None:
    if bar.absent:
        axes.text(scale.low, y, f" {bar.absent[:60]}", fontsize=5.5, va="center", style="italic", parse_math=False)
        return
    ends = [scale.low]
    for segment in bar.segments:
        tone, hatch = _TONES[segment.kind]
        if bar.is_dot:
            axes.plot([max(segment.end, scale.low)], [y], "o", color=tone, mec="black", mew=0.5, ms=5)
        else:
            width = segment.end - segment.start
            axes.barh(y, width, _BAR * 0.85, segment.start, color=tone, hatch=hatch, edgecolor="black", linewidth=0.4)
        ends += [segment.start, segment.end]
    if bar.whisker:
        axes.plot(bar.whisker, [y, y], "|-", color="black", linewidth=0.8, markersize=3, zorder=3)
        ends += bar.whisker
    for tick in bar.ticks:
        axes.plot(
            [tick.value] * 2, [y - _BAR / 2, y + _BAR / 2], ":", color="black", linewidth=1.2, clip_on=True, zorder=3
        )
    offset = (5 if bar.is_dot else 3, 0)
    axes.annotate(
        bar.figure, (max(ends), y), offset, textcoords="offset points", fontsize=5.5, va="center", parse_math=False
    )


def _frame(axes: Any, chart: Chart, bottom: float) -> None:
    scale = chart.scale
    if scale.is_log:
        axes.set_xscale("log")
        axes.set_xlim(scale.low, scale.high * (scale.high / scale.low) ** 0.14)
    else:
        axes.set_xlim(scale.low, scale.low + (scale.high - scale.low) * 1.16)
    axes.set_xticks(scale.marks(), [f"{v:g}" for v in scale.marks()], fontsize=7)
    axes.minorticks_off()
    axes.set_ylim(bottom, -_BAR)
    if chart.reference is not None:
        axes.axvline(chart.reference, color="black", linewidth=0.6, zorder=0)
    axes.set_xlabel(scale.unit, fontsize=7)
    axes.set_title(chart.title, fontsize=9, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
