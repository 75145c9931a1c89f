"""Two runs of one command, row by row: what is better, what is worse, what only one of them has.

    A  |-----●-----|              the middle halves of what was measured
    B        |----●----|          overlap: the difference is noise
    B                 |--●--|     do not: it is marked

Counts have no noise: each difference is marked. Where a file has no spread, nothing is marked, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import report_values as values
from bench.report_kinds import KINDS
from bench.report_parts import Column, Entry, Kind, Metric, Run, Section, Table
from bench.report_values import is_absent, text
from bench.results import Row, geomean

Key = tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """Of one metric of one row. ratio: B over A. verdict: "good", "bad", or nothing where it is within the spread."""

    metric: Metric
    before: float | None
    after: float | None
    ratio: float | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """only_before, only_after: keys of rows that only one has. changes: of the rows that both have."""

    before: Run
    after: Run
    changes: tuple[tuple[Key, tuple[Change, ...]], ...]
    only_before: tuple[Key, ...]
    only_after: tuple[Key, ...]
    has_spread: bool


def compared(before: Run, after: Run) -> Comparison:
    """`after` beside `before`, two runs of one command. Of several rows with one key, the last counts."""
    kind = KINDS[before.command]
    ours, theirs = (_by_key(kind, run) for run in (before, after))
    both = [key for key in ours if key in theirs]
    measured = [metric for metric in kind.metrics if not metric.is_count]
    return Comparison(
        before,
        after,
        tuple((key, tuple(_change(metric, ours[key], theirs[key]) for metric in kind.metrics)) for key in both),
        tuple(key for key in ours if key not in theirs),
        tuple(key for key in theirs if key not in ours),
        any(m.spread(ours[key]) and m.spread(theirs[key]) for key in both for m in measured) or not measured,
    )


def section(found: Comparison) -> Section:
    marked = [change.verdict for _, changes in found.changes for change in changes]
    sentence = (
        f"{found.after.path} (B) beside {found.before.path} (A), {len(found.changes)} rows in both: "
        f"{marked.count('good')} figures better and {marked.count('bad')} worse beyond the spread."
    )
    missing = [f"only in A: {' '.join(key)}" for key in found.only_before]
    missing += [f"only in B: {' '.join(key)}" for key in found.only_after]
    if not found.has_spread and found.changes:
        missing.append("times have no spread in these files: none of their differences is marked")
    return Section(
        f"{found.before.command}: B over A", (sentence, *_machines(found)), tuple(missing), tables=(table(found),)
    )


def table(found: Comparison) -> Table:
    kind = KINDS[found.before.command]
    columns = [Column("row", is_text=True)]
    for metric in kind.metrics:
        columns += [Column(f"{metric.title} A", is_wide=True), Column(f"{metric.title} B", is_wide=True)]
        columns.append(Column(f"{metric.title} B/A"))
    entries = [Entry((" ".join(key), *_cells(changes)), _worst(changes)) for key, changes in found.changes]
    entries.append(Entry(("geometric mean", *_means(found, kind))))
    notes = ("+ better, − worse: by more than the spread of both, or a count that is another",)
    return Table(f"{kind.command}: B over A", tuple(columns), tuple(entries), notes)


def _machines(found: Comparison) -> Iterator[str]:
    """What makes two runs hard to compare."""
    for what in ("cpu", "cores", "versions", "malloc"):
        a, b = (run.summary.get(what) for run in (found.before, found.after))
        if a != b:
            yield f"Their {what} differ: {_told(a)} and {_told(b)}."


def _told(value: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _by_key(kind: Kind, run: Run) -> dict[Key, Row]:
    there = (row for row in run.rows if not is_absent(row))
    return {tuple(filter(None, (text(row, name) for name in kind.key))): row for row in there}


def _change(metric: Metric, before: Row, after: Row) -> Change:
    a, b = metric.value(before), metric.value(after)
    return Change(metric, a, b, values.over(b, a), _verdict(metric, before, after))


def _verdict(metric: Metric, before: Row, after: Row) -> str:
    a, b = metric.value(before), metric.value(after)
    if a is None or b is None or a == b:
        return ""
    if not metric.is_count:
        spreads = metric.spread(before), metric.spread(after)
        if spreads[0] is None or spreads[1] is None:
            return ""
        if spreads[0][0] <= spreads[1][1] and spreads[1][0] <= spreads[0][1]:
            return ""
    return "good" if (b > a) == metric.more_is_better else "bad"


def _cells(changes: Sequence[Change]) -> Iterator[str]:
    signs = {"good": "+", "bad": "−", "": " "}
    for change in changes:
        yield change.metric.written(change.before)
        yield change.metric.written(change.after)
        yield f"{values.ratio(change.ratio)}{signs[change.verdict]}"


def _worst(changes: Sequence[Change]) -> str:
    verdicts = {change.verdict for change in changes}
    return "bad" if "bad" in verdicts else "good" if "good" in verdicts else ""


def _means(found: Comparison, kind: Kind) -> Iterator[str]:
    for place in range(len(kind.metrics)):
        yield from ("", "")
        yield f"{values.ratio(geomean(changes[place].ratio or None for _, changes in found.changes))} "
