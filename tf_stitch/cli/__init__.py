"""`tf-stitch`: the command line. Data goes to stdout, logs and progress to stderr; every command has --json.

Each command is a module of its own, which imports TensorFlow only when it runs.
"""

from __future__ import annotations

import importlib
import signal
import sys
from typing import Any, NoReturn

import click

from tf_stitch import __version__
from tf_stitch.cli.exit_codes import EPILOG, Exit
from tf_stitch.errors import EnvironmentProblem, StitchError, UsageError

_COMMANDS = ("convert", "explain", "compare", "doctor", "cache")


class _Commands(click.Group):
    """Loads a command when it is asked for, and turns exceptions into sentences and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(f"tf_stitch.cli.{cmd_name}"), cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EnvironmentProblem as error:
            _end(ctx, error, Exit.ENVIRONMENT)
        except UsageError as error:
            _end(ctx, error, Exit.USAGE)
        except StitchError as error:
            _end(ctx, error, Exit.FAILURE)
        except KeyboardInterrupt:
            _end(ctx, "interrupted; nothing was left half-written.", Exit.FAILURE)


def _end(ctx: click.Context, message: object, code: Exit) -> NoReturn:
    click.echo(f"tf-stitch: {message}", err=True)
    ctx.exit(code)


@click.group(
    cls=_Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, package_name="tf-stitch", message="tf-stitch %(version)s")
def cli() -> None:
    """Makes TensorFlow models faster: whole clusters of memory-intensive ops become one kernel each."""


def main() -> None:
    """The entry point."""
    signal.signal(signal.SIGTERM, _interrupt)  # so that it cleans up as Ctrl-C does
    cli(prog_name="tf-stitch")


def _interrupt(number: int, frame: object) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
