"""What a report shows of `bench models`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench import report_model_charts as charts
from bench import report_values as values
from bench.report_parts import Column, Entry, Kind, Metric, Run, Section, Table
from bench.report_values import number, text, texts
from bench.results import Row, geomean

MODES = {"infer": "inference", "train": "training"}
WRONG = ("mismatch", "fallback", "nothing stitched")
_LONGEST_NOTE = 240  # characters; the file has it whole
_FASTER = "tf_over_stitch", "xla_over_stitch", "better_over_stitch"


_ROW = (Column("model", is_text=True), Column("size", is_text=True), Column("T"))


def _row(row: Row) -> tuple[str, str, str]:
    return text(row, "model"), text(row, "size"), text(row, "threads")


def sections(run: Run) -> list[Section]:
    rows = measured(run.rows)
    absent = [f"not measured: {text(r, 'model')}, {text(r, 'absent')}" for r in run.rows if r.get("absent")]
    flagged = [f"{charts.name(r)}: {', '.join(texts(r, 'flags'))}" for r in rows if texts(r, "flags")]
    found = [
        Section(
            "Models",
            sentences=(*overview(rows), *_where_xla_is_ahead(rows)),
            alarms=(*flagged, *absent),
            tiles=_tiles(rows),
            tables=(times(rows), *_notes(rows)) if rows else (),
        )
    ]
    for mode, title in MODES.items():
        if of_mode := [row for row in rows if row.get("mode") == mode]:
            found.append(Section(f"Speed-up, {title}", charts=(charts.speedups(mode, title, of_mode),)))
    if rows:
        found += [
            Section("Where the time goes", _ceilings(rows), charts=charts.breakdowns(rows), tables=(_bounds(rows),)),
            Section("Kernels", charts=charts.kernels(rows)),
            Section("Accuracy", charts=charts.accuracy(rows)),
            Section("First calls", charts=charts.first_calls(rows), tables=(_first_calls(rows),)),
            Section("Bandwidth", charts=charts.bandwidth(rows)),
        ]
    return [section for section in found if section.sentences or section.alarms or section.charts or section.tables]


def measured(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not values.is_absent(row)]


def means(rows: Iterable[Row], mode: str) -> dict[str, float | None]:
    """Geometric means over the rows of a mode that have the ratio."""
    of_mode = [row for row in measured(rows) if row.get("mode") == mode]
    return {name: geomean(number(row, name) for row in of_mode) for name in _FASTER}


def overview(rows: Sequence[Row]) -> Iterable[str]:
    for mode, title in MODES.items():
        of_mode = [row for row in rows if row.get("mode") == mode]
        found = means(rows, mode)
        if not of_mode or found["tf_over_stitch"] is None:
            continue
        with_xla = sum(number(row, "xla_over_stitch") is not None for row in of_mode)
        slower = sum((number(row, "better_over_stitch") or 1.0) < 1 for row in of_mode)
        of_them = "" if with_xla == len(of_mode) else f" ({with_xla} of them)"
        xla = f", XLA's {values.times(found['xla_over_stitch'])}{of_them}" if with_xla else ""
        ahead = f"one of the two is ahead in {_rows(slower)}" if slower else "neither is ahead in any"
        yield (
            f"{title.capitalize()}, {_rows(len(of_mode))}: TensorFlow's time over that of tf_stitch is "
            f"{values.times(found['tf_over_stitch'])}{xla}, that of the better of the two "
            f"{values.times(found['better_over_stitch'])} (geometric means); {ahead}."
        )


def _rows(count: int) -> str:
    return f"{count} {'row' if count == 1 else 'rows'}"


def _where_xla_is_ahead(rows: Sequence[Row]) -> Iterable[str]:
    """Where it is ahead, and whether by its products, which tf_stitch leaves to TensorFlow."""
    for row in rows:
        lead = number(row, "xla_over_stitch")
        if lead is not None and lead < 1:
            yield f"XLA is ahead on {charts.name(row)}, {values.times(1 / lead)}: {_products(row)}."


def _products(row: Row) -> str:
    tf_ms, xla_ms, stitch_ms = (number(row, f"{way}_ms") for way in ("tf", "xla", "stitch"))
    tf_share, xla_share = number(row, "gemm_share", "tf"), number(row, "gemm_share", "xla")
    if tf_ms is None or xla_ms is None or stitch_ms is None or tf_share is None or xla_share is None:
        return "what share of its step is matrix products and convolutions was not measured"
    ours, theirs = tf_share * tf_ms, xla_share * xla_ms
    told = (
        f"matrix products and convolutions take {values.ms(theirs)} ms there ({values.share(xla_share)} of the step), "
        f"{values.ms(ours)} ms under TensorFlow ({values.share(tf_share)}), whose kernels tf_stitch runs too"
    )
    gained, lead = ours - theirs, stitch_ms - xla_ms
    if gained <= 0:
        return f"{told}; so its lead of {values.ms(lead)} ms is in the memory-intensive rest"
    if gained >= lead:
        return f"{told}; that is the whole of its lead of {values.ms(lead)} ms"
    return f"{told}; that is {values.share(gained / lead)} of its lead of {values.ms(lead)} ms"


def _tiles(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    found = []
    for mode, title in MODES.items():
        mean = means(rows, mode)
        for key, over in (("tf_over_stitch", "TensorFlow"), ("xla_over_stitch", "XLA")):
            if mean[key] is not None:
                found.append((values.times(mean[key]), f"over {over}, {title}"))
    worst = min(rows, key=lambda row: number(row, "better_over_stitch") or 1e9, default=None)
    if worst is not None and number(worst, "better_over_stitch") is not None:
        found.append((values.times(number(worst, "better_over_stitch")), f"the worst: {charts.name(worst)}"))
    wrong = sum(any(flag in WRONG for flag in texts(row, "flags")) for row in rows)
    return (*found, (f"{len(rows) - wrong} of {len(rows)}", "rows right, stitched and without fallback"))


def times(rows: Sequence[Row]) -> Table:
    columns = (
        *_ROW,
        *map(Column, ("TF ms", "XLA ms", "stitch", "TF/s", "XLA/s")),
        Column("middle half of TF/s", is_wide=True),
        Column("XLA auto ms", is_wide=True),
        Column("ops", is_wide=True),
        Column("StitchOps", is_wide=True),
        Column("error"),
        Column("against", is_text=True, is_wide=True),
    )
    refused = (f"XLA refuses {text(r, 'model')}: {text(r, 'xla_refused')}" for r in rows if r.get("xla_refused"))
    notes = (
        "ms: a step, CPU time on 1 thread, wall time on more; TF/s, XLA/s: over stitch; error: largest difference, "
        "relative to the largest value of the output",
        *dict.fromkeys(values.shortened(reason) for reason in refused),
    )
    return Table("A step, in milliseconds", columns, tuple(map(_times_entry, rows)), notes)


def _times_entry(row: Row) -> Entry:
    spread = values.quartiles(row.get("ratio_spread"), "tf_over_stitch")
    cells = (
        *_row(row),
        *(values.ms(number(row, f"{way}_ms")) for way in ("tf", "xla", "stitch")),
        values.ratio(number(row, "tf_over_stitch")),
        values.ratio(number(row, "xla_over_stitch")),
        f"{spread[0]:.2f}–{spread[1]:.2f}" if spread else values.NONE,
        values.ms(number(row, "xla_auto_ms")),
        f"{values.count(number(row, 'ops', 'tf'))} → {values.count(number(row, 'ops', 'stitch'))}",
        values.count(number(row, "stitch_ops")),
        values.error(number(row, "max_err")),
        text(row, "reference"),
    )
    return Entry(cells, "bad" if texts(row, "flags") else "")


def _notes(rows: Sequence[Row]) -> tuple[Table, ...]:
    entries = [
        Entry((*_row(row), values.shortened(note, _LONGEST_NOTE))) for row in rows for note in texts(row, "notes")
    ]
    columns = (*_ROW, Column("note", is_text=True))
    return (Table("Notes of rows", columns, tuple(entries)),) if entries else ()


def _ceilings(rows: Sequence[Row]) -> tuple[str, ...]:
    pairs = [(r, number(r, "tf_over_stitch"), number(r, "ceiling_over_tf", "third")) for r in rows]
    known = [(r, got, bound) for r, got, bound in pairs if got is not None and bound is not None]
    if not known:
        return ()
    reached = sum(got >= bound for _, got, bound in known)
    return (
        "What a step takes apart from matrix products and convolutions is all that stitching memory-intensive ops can "
        "shorten; small products, which kernels compute as well, come on top. If it took "
        f"a third of its time, TensorFlow's time over ours would be {values.times(geomean(b for _, _, b in known))} "
        f"(geometric mean of {_rows(len(known))}); it is {values.times(geomean(g for _, g, _ in known))}. Past that "
        f"bound: {reached}.",
    )


def _bounds(rows: Sequence[Row]) -> Table:
    columns = (
        *_ROW,
        *map(Column, ("TF/s", "at 1/3", "at 0", "TF comp.", "memory", "gaps")),
        Column("s. comp.", is_wide=True),
        *map(Column, ("s. mem.", "gaps")),
        Column("products TF", is_wide=True),
        Column("products XLA", is_wide=True),
    )
    entries = [
        Entry(
            (
                *_row(row),
                values.ratio(number(row, "tf_over_stitch")),
                values.ratio(number(row, "ceiling_over_tf", "third")),
                values.ratio(number(row, "ceiling_over_tf", "none")),
                *(
                    values.ms(number(row, "breakdown", way, part))
                    for way in ("tf", "stitch")
                    for part, _ in charts.PARTS
                ),
                values.share(number(row, "gemm_share", "tf")),
                values.share(number(row, "gemm_share", "xla")),
            )
        )
        for row in rows
    ]
    notes = (
        "at 1/3, at 0: what TF/s would be if all but compute took a third, or nothing; the rest in ms, from one traced "
        "step: TensorFlow, then stitched, where a StitchOp counts as memory with the products in it; products: share "
        "of the step that is matrix products and convolutions",
    )
    return Table("Bounds, and what a step is made of", columns, tuple(entries), notes)


def _first_calls(rows: Sequence[Row]) -> Table:
    ways = [way for way, _ in charts.WAYS]
    columns = (
        *_ROW,
        *(Column(f"{way} s") for way in ways),
        *(Column(f"{way} CPU s", is_wide=True) for way in ways),
        *(Column(f"{way} MB") for way in ways),
    )
    entries = [
        Entry(
            (
                *_row(row),
                *(values.seconds(number(row, "first_calls_s", way)) for way in ways),
                *(values.seconds(number(row, "compile_cpu_s", way)) for way in ways),
                *(values.count(number(row, "peaks_mb", way)) for way in ways),
            )
        )
        for row in rows
    ]
    notes = ("s: the first call, with all that is compiled for it; MB: the most memory that the process ever held",)
    return Table("First call, and memory", columns, tuple(entries), notes)


def _ratio_spread(name: str):
    return lambda row: values.quartiles(row.get("ratio_spread"), name)


KIND = Kind(
    command="models",
    required=("model", "mode"),
    key=("model", "mode", "size", "threads"),
    metrics=(
        Metric(
            "stitch ms",
            lambda r: number(r, "stitch_ms"),
            values.ms,
            lambda r: values.quartiles(r.get("spread"), "stitch"),
        ),
        Metric(
            "TF/s",
            lambda r: number(r, "tf_over_stitch"),
            values.ratio,
            _ratio_spread("tf_over_stitch"),
            more_is_better=True,
        ),
        Metric(
            "XLA/s",
            lambda r: number(r, "xla_over_stitch"),
            values.ratio,
            _ratio_spread("xla_over_stitch"),
            more_is_better=True,
        ),
        Metric("kernels", lambda r: number(r, "kernels", "stitch"), values.count, is_count=True),
    ),
    sections=sections,
)
