"""A report's tables as Markdown, for documents."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report_parts import Section, Table

_ESCAPED = str.maketrans({c: f"\\{c}" for c in "\\`*_|<>[]"} | {"\n": " "})


def render(sections: Sequence[Section]) -> str:
    parts: list[str] = []
    for section in sections:
        if not (section.sentences or section.alarms or section.tables):
            continue
        parts.append(f"## {plain(section.title)}")
        parts += [plain(sentence) for sentence in section.sentences]
        if section.alarms:
            parts.append("\n".join(f"- {plain(alarm)}" for alarm in section.alarms))
        for shown in section.tables:
            parts += [f"### {plain(shown.title)}", table(shown), *(plain(note) for note in shown.notes)]
    return "\n\n".join(parts) + "\n"


def table(shown: Table, *, is_wide: bool = True) -> str:
    """Text to the left, figures to the right."""
    places = [place for place, column in enumerate(shown.columns) if is_wide or not column.is_wide]
    rows = [[plain(shown.columns[p].title) for p in places]]
    rows.append(["---" if shown.columns[p].is_text else "---:" for p in places])
    rows += [[plain(entry.cells[p]) for p in places] for entry in shown.entries]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plain(text: str) -> str:
    """Text that Markdown takes for nothing else."""
    return text.translate(_ESCAPED)
