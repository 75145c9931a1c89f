"""Runs one command: with a time limit that covers its children, and with what it cost."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_NOT_STARTED = 127  # as a shell says it
_REQUESTS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)  # to end, by somebody else


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    exit_code: negative for a signal, as in `subprocess`.
    output: its stdout and stderr.
    cpu_seconds: user and system time of it and of all the children that it waited for.
    interrupted: whether it was kept from ending, by `Runner.stop` or by somebody else: then its end tells nothing.
    """

    exit_code: int
    timed_out: bool
    output: str
    cpu_seconds: float
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out and not self.interrupted


class Runner:
    """Runs commands, from any number of threads, and can kill all that are running."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def run(self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], timeout: float) -> Outcome:
        """Runs `command` to its end, or kills it and its children after `timeout` seconds.

        Never raises for what the command does; one that cannot be started has exit code 127.
        """
        # Into a file in memory: a pipe would be held open by a grandchild that outlives the command.
        with os.fdopen(os.memfd_create("compiler-output"), "w+b") as output:
            try:
                child = self._start(command, cwd, environment, output)
            except OSError as error:
                message = f"{command[0]}: {error.strerror or error}"
                return Outcome(_NOT_STARTED, False, message, 0.0, interrupted=self._stopped)
            try:
                _limit_cpu(child.pid, timeout)
                timed_out, cpu_seconds = _wait(child, timeout, self._forget)
            finally:
                self._forget(child.pid)
            interrupted = self._stopped or -child.returncode in _REQUESTS
            return Outcome(child.returncode, timed_out, _text(output), cpu_seconds, interrupted)

    def stop(self) -> None:
        """Kills what is running, and starts nothing more."""
        with self._lock:
            self._stopped = True
            for pid in self._running:
                _kill_group(pid)

    def _start(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise OSError(errno.ECANCELED, "interrupted")
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a process group to kill
            )
            self._running.add(child.pid)
            return child

    def _forget(self, pid: int) -> None:
        with self._lock:
            self._running.discard(pid)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _limit_cpu(pid: int, timeout: float) -> None:
    """Should this process be killed, nobody is left to stop a compiler that loops: then the kernel does."""
    seconds = int(timeout) * (os.cpu_count() or 1) + 2
    with suppress(OSError, ValueError):  # it has ended already, or its own limit is lower
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))


def _wait(child: subprocess.Popen[bytes], timeout: float, before_reaping: Callable[[int], None]) -> tuple[bool, float]:
    """Waits for `child`, sets its return code, and returns (whether it was killed, its CPU seconds)."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _kill_group(child.pid)

    timer = threading.Timer(timeout, expire)
    timer.daemon = True
    timer.start()
    try:
        # Two steps, so that the number of the group is not another's while someone may still kill it.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        timer.cancel()
        timer.join()
        before_reaping(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
    except ChildProcessError:  # the host process ignores SIGCHLD: nothing to learn but that it is over
        child.returncode = 0
        return expired.is_set(), 0.0
    except BaseException:  # KeyboardInterrupt
        _kill_group(child.pid)
        raise
    finally:
        timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return expired.is_set(), usage.ru_utime + usage.ru_stime


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read(1 << 20).decode("utf-8", errors="replace")
