"""A report in the terminal, in 80 columns: sentences, alarms and tables; charts are for pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table as Drawn
from rich.text import Text

from bench.report_parts import Section, Table

_WIDE = 120  # columns: from there on, wide columns are shown too
_STYLES = {"bad": "red", "good": "green"}


def show(console: Console, sections: Sequence[Section]) -> None:
    for section in sections:
        for part in render(section, is_wide=console.width >= _WIDE):
            console.print(part)


def render(section: Section, *, is_wide: bool) -> Iterator[RenderableType]:
    if not (section.tables or section.sentences or section.alarms):
        return
    yield Text(f"\n{section.title}", style="bold underline")
    yield from (Text(sentence) for sentence in section.sentences)
    yield from (Text(alarm, style="yellow") for alarm in section.alarms)
    for table in section.tables:
        yield Text(f"\n{table.title}", style="bold")
        yield drawn(table, is_wide=is_wide)
        yield from (Text(note, style="dim") for note in table.notes)


def drawn(table: Table, *, is_wide: bool) -> Drawn:
    shown = [place for place, column in enumerate(table.columns) if is_wide or not column.is_wide]
    found = Drawn(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for place in shown:
        column = table.columns[place]
        if column.is_text:
            found.add_column(Text(column.title), overflow="fold")
        else:
            found.add_column(Text(column.title), justify="right", no_wrap=False)
    for entry in table.entries:
        cells = (Text(entry.cells[place]) for place in shown)
        found.add_row(*cells, style=_STYLES.get(entry.mark))
    return found
