from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tf_stitch.toolchain.process import Outcome, Runner


def run(command: list[str], timeout: float = 10.0) -> Outcome:
    return Runner().run(command, cwd=Path("/"), environment=dict(os.environ), timeout=timeout)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"  # a zombie waits for whoever adopted it


def test_output_exit_code_and_cpu_time() -> None:
    outcome = run(["sh", "-c", "echo out; echo err >&2; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 3"])
    assert (outcome.exit_code, outcome.timed_out, outcome.output) == (3, False, "out\nerr\n")
    assert 0.01 < outcome.cpu_seconds < 5


def test_cpu_time_of_grandchildren_counts() -> None:
    spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    assert run(["sh", "-c", f"sh -c '{spin}'; true"]).cpu_seconds > 0.01


def test_what_cannot_be_started_is_an_outcome(tmp_path: Path) -> None:
    assert run(["/nonexistent/compiler"]).exit_code == 127
    (tmp_path / "not-executable").write_text("x")
    outcome = run([str(tmp_path / "not-executable")])
    assert not outcome.ok
    assert "Permission denied" in outcome.output


def test_a_hanging_command_dies_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    start = time.monotonic()
    outcome = run(["sh", "-c", f"echo $$ > {pids}; sleep 60 & echo $! >> {pids}; wait"], timeout=0.3)
    assert outcome.timed_out
    assert not outcome.ok
    assert time.monotonic() - start < 5
    deadline = time.monotonic() + 5
    while any(map(is_alive, map(int, pids.read_text().split()))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, map(int, pids.read_text().split())))


def test_an_outliving_grandchild_does_not_hold_us_up() -> None:
    start = time.monotonic()
    assert run(["sh", "-c", "sleep 5 & exit 0"]).ok
    assert time.monotonic() - start < 4


def test_stop_kills_what_runs_and_starts_nothing_more() -> None:
    runner = Runner()
    threading.Timer(0.2, runner.stop).start()
    start = time.monotonic()
    outcome = runner.run(["sleep", "60"], cwd=Path("/"), environment=dict(os.environ), timeout=60)
    assert outcome.exit_code == -9
    assert outcome.interrupted
    assert time.monotonic() - start < 5
    outcome = runner.run(["true"], cwd=Path("/"), environment=dict(os.environ), timeout=60)
    assert (outcome.exit_code, outcome.interrupted) == (127, True)


@pytest.mark.parametrize(("signal", "interrupted"), [("TERM", True), ("INT", True), ("SEGV", False), ("KILL", False)])
def test_a_signal_that_asks_to_end_is_an_interrupt(signal: str, interrupted: bool) -> None:
    outcome = run(["sh", "-c", f"kill -{signal} $$"])
    assert not outcome.ok
    assert outcome.interrupted == interrupted


@pytest.mark.parametrize("count", [20])
def test_no_descriptor_is_leaked(count: int) -> None:
    def open_descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = open_descriptors()
    for _ in range(count):
        run(["true"])
    assert open_descriptors() <= before


def test_a_process_that_ignores_its_children() -> None:
    code = (
        "import signal, os; from pathlib import Path; from tf_stitch.toolchain.process import Runner\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "outcome = Runner().run(['echo', 'hi'], cwd=Path('/'), environment=dict(os.environ), timeout=5)\n"
        "assert outcome.ok and outcome.output == 'hi\\n', outcome\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
