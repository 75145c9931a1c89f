"""A report as one HTML file: inline style and SVG, no script, nothing fetched from anywhere.

Names in it come from files, so they are text to the template, never markup. A chart is a grid of HTML with an SVG for
each bar, whose places are percentages: so labels and figures keep their size on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from bench import report_values as values
from bench.report_parts import Run, Scale, Section, Segment


def render(sections: Sequence[Section], runs: Sequence[Run]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"percent": _percent, "across": _across, "mark": _mark, "anchor": _anchor}
    return environment.get_template("report.html").render(
        title=_title(runs),
        sections=sections,
        provenance=[
            (run.command, str(run.path), values.machine(run.summary), values.text(run.summary, "command_line"))
            for run in runs
        ],
    )


def _title(runs: Sequence[Run]) -> str:
    return f"tf_stitch: {', '.join(dict.fromkeys(run.command for run in runs))}"


def _percent(scale: Scale, value: float) -> str:
    return f"{100 * scale.at(value):.2f}%"


def _across(scale: Scale, segment: Segment) -> tuple[str, str]:
    """Where a segment begins, and how wide it is; wide enough to be seen."""
    start, end = sorted((100 * scale.at(segment.start), 100 * scale.at(segment.end)))
    return f"{start:.2f}%", f"{max(end - start, 0.15):.2f}%"


def _mark(value: float) -> str:
    return f"{value:.0e}" if not 1e-3 <= abs(value) < 1e5 and value else f"{value:g}"


def _anchor(scale: Scale, value: float) -> str:
    """So that a number at an edge stays inside."""
    at = scale.at(value)
    return "start" if at < 0.04 else "end" if at > 0.96 else "middle"
