"""The command line as a whole: help, versions, errors, and that it starts fast."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.cli.conftest import tf_stitch
from tf_stitch import __version__

COMMANDS = ("convert", "explain", "compare", "doctor", "cache")


def test_help_lists_commands_and_exit_codes():
    found = tf_stitch("--help")
    assert found.code == 0
    for word in (*COMMANDS, "Exit status", "3  nothing to stitch", "5  the machine"):
        assert word in found.stdout


@pytest.mark.parametrize("command", [*COMMANDS, "cache info", "cache clear", "cache verify", ""])
def test_help_has_80_columns(command):
    found = tf_stitch(*command.split(), "-h")
    assert found.code == 0
    assert max(map(len, found.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "command", ["convert", "explain", "compare", "doctor", "cache info", "cache clear", "cache verify"]
)
def test_every_command_has_json(command):
    assert "--json" in tf_stitch(*command.split(), "--help").stdout


def test_version():
    assert tf_stitch("--version").stdout == f"tf-stitch {__version__}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["convert"], ["convert", "a"], ["explain", "--nonsense", "x"]])
def test_wrong_arguments(arguments):
    found = tf_stitch(*arguments)
    assert found.code == 2
    assert "Usage: tf-stitch" in found.stderr
    assert found.stdout == ""


def test_help_loads_little_and_takes_little():
    """CPU time, for the machine may be busy."""
    code = (
        "import sys; sys.argv = ['tf-stitch', '--help']\n"
        "from tf_stitch.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'tensorflow', 'numpy', 'rich', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.3
