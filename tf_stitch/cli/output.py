"""How commands write: tables and JSON to stdout, progress to stderr, and no chatter of TensorFlow's."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    Progress = Callable[[str, int, int], None]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

_STAGES = {"import": "reading", "plan": "planning", "build": "compiling", "race": "racing", "write": "writing"}


def print_json(value: object) -> None:
    """One JSON value on stdout."""
    click.echo(json.dumps(value, indent=2))


def console() -> Console:
    """For data: stdout, 80 columns where nobody says otherwise."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=False)


def log(message: str) -> None:
    """A line for people, on stderr."""
    click.echo(message, err=True)


def table(*columns: str, right: Sequence[str] = (), wide: str = "") -> Table:
    """A borderless table. `right`: columns of numbers; `wide`: the column that takes what is left."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=bool(wide))
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold" if name == wide else "ellipsis",
            no_wrap=name != wide,
            ratio=1 if name == wide else None,
        )
    return made


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """A bar on stderr for each stage that reports; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield lambda *_: None
        return
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=terminal, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def tell(stage: str, done: int, of: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(_STAGES.get(stage, stage), total=of)
            bars.update(tasks[stage], completed=done, total=of)

        yield tell


@contextlib.contextmanager
def quietly(text: str) -> Iterator[None]:
    """Shows `text` with a spinner. What is written to stderr inside is shown only if it raises.

    Native code writes there, at any time; where TF_STITCH_LOGS asks for logs, all of it is let through.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if os.environ.get("TF_STITCH_LOGS"):
        yield
        return
    try:
        stderr = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # replaced by something that is no file
        yield
        return
    sys.stderr.flush()
    with os.fdopen(os.dup(stderr), "w", encoding="utf-8") as own, tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), stderr)
        try:
            with _spinner(text, own):
                yield
        except Exception:
            captured.seek(0)
            own.write(captured.read().decode(errors="replace"))
            raise
        finally:
            sys.stderr.flush()
            own.flush()
            os.dup2(own.fileno(), stderr)


def _spinner(text: str, file: IO[str]) -> contextlib.AbstractContextManager[object]:
    from rich.console import Console

    terminal = Console(file=file)
    return terminal.status(text) if terminal.is_terminal else contextlib.nullcontext()


def import_tensorflow() -> None:
    """Loads TensorFlow and the op library, without the lines that they write.

    Raises:
      EnvironmentProblem: where one of them is missing, or does not go with the other.
    """
    with quietly("starting TensorFlow"):
        import tf_stitch.api  # noqa: F401
