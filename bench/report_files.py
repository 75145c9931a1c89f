"""Files of bench commands, read and told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from bench.report_kinds import KINDS
from bench.report_parts import Kind, Run
from bench.results import SCHEMA


class UnreadableFile(Exception):
    """A file that is no bench command's; one sentence that says why, and what would be one."""


def load(path: Path) -> Run:
    """The run that a file holds.

    Raises:
      UnreadableFile: where there is none.
    """
    document = _json(path)
    if not isinstance(document, dict) or not {"schema", "rows", "summary"} <= document.keys():
        raise UnreadableFile(
            f"{path} has no schema, rows and summary; give a file that `python -m bench … --json` wrote"
        )
    if document["schema"] != SCHEMA:
        raise UnreadableFile(
            f"{path} has schema {str(document['schema'])[:20]!r}, this reads {SCHEMA}; run its command again"
        )
    rows, summary = document["rows"], document["summary"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not isinstance(summary, dict):
        raise UnreadableFile(f"{path} should have a list of rows and a summary; run its command again")
    kind = _kind(path, document.get("command"), rows)
    for place, row in enumerate(rows, 1):
        if missing := [name for name in kind.required if name not in row and not row.get("absent")]:
            raise UnreadableFile(f"row {place} of {path} has no '{missing[0]}'; run `bench {kind.command}` again")
    return Run(path, kind.command, tuple(rows), summary)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is no JSON: {error}") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _kind(path: Path, command: object, rows: list[dict[str, Any]]) -> Kind:
    """By its command; files that name none, by the fields of their rows."""
    known = ", ".join(KINDS)
    if command is not None:
        if not isinstance(command, str) or command not in KINDS:
            raise UnreadableFile(f"{path} is of `bench {str(command)[:40]}`; there are reports of {known}")
        return KINDS[command]
    if not rows:
        raise UnreadableFile(f"{path} has no rows, and does not say which command wrote it")
    for kind in KINDS.values():
        if all(name in rows[0] for name in kind.required):
            return kind
    raise UnreadableFile(f"the rows of {path} are of no command that there are reports of ({known})")
