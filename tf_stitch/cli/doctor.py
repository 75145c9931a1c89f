"""`tf-stitch doctor`: whether this machine and this installation have what stitching needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tf_stitch.cli import output
from tf_stitch.cli.exit_codes import Exit

if TYPE_CHECKING:
    from tf_stitch.cli.checkup import Check

_STYLES = {"ok": "green", "warning": "yellow", "broken": "bold red", "": ""}


@click.command()
@output.json_option
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """Checks Python, TensorFlow, the op library, compilers, CPU and cache, and stitches something small.

    The exit status is 5 when something is broken; what to do about it is printed with it.
    """
    from tf_stitch.cli import checkup

    with output.quietly("looking around"):
        checks = checkup.examine()
    broken = [check for check in checks if check.status == "broken"]
    if as_json:
        output.print_json({"ok": not broken, "checks": [check.to_json() for check in checks]})
    else:
        _show(checks)
    if broken:
        output.log(f"tf-stitch: broken: {', '.join(check.name for check in broken)}.")
        ctx.exit(Exit.ENVIRONMENT)


def _show(checks: list[Check]) -> None:
    from rich.text import Text

    table = output.table("", "", "", wide="")
    table.show_header = False
    for column, name in zip(table.columns, ("name", "status", "found"), strict=True):
        column.header = name
        column.overflow = "fold"
    table.columns[2].no_wrap, table.columns[2].ratio = False, 1
    for check in checks:
        found = Text(check.found)
        if check.remedy:
            found.append(f"\n→ {check.remedy}", style="bold")
        table.add_row(check.name, Text(check.status, style=_STYLES[check.status]), found)
    output.console().print(table)
