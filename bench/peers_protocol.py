"""Processes that measure in turns: one asks, the others answer, a JSON object a line.

    parent                                   worker
      {"ask": "slice", "name": "ort", "times": 8}   →
                                                  ←   {"cpu": 1.2e-4, "wall": 1.3e-4}

Two runtimes in one process would share its allocator and its CPU clock: a pool of threads that spins after its work is
billed to whoever comes next. In processes of their own they don't meet; and as only the one that is asked runs, slice
by slice, a busy minute of the machine still falls on all alike.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from bench import timing
from bench.elsewhere import ROOT

Answer = dict[str, Any]
Calls = dict[str, Callable[[], object]]

_REFUSED = "refused"
_LONGEST_REASON = 200  # characters


class Refused(Exception):
    """A worker cannot do what it was asked for, or has ended; the reason, for people."""


class Lost(Refused):
    """A worker has failed while it was measured."""

    def __init__(self, worker: str, why: object) -> None:
        super().__init__(str(why))
        self.worker = worker


def serve(answers: Mapping[str, Callable[..., Answer]]) -> None:
    """Answers what stands on stdin until it is closed, which it is when the parent is gone. An error is an answer."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print as they like
    sys.stdout = sys.stderr
    for line in sys.stdin:
        details = json.loads(line)
        try:
            answer = answers[details.pop("ask")](**details)
        except Exception as error:  # noqa: BLE001 - a row without one of the runtimes is worth more than none
            answer = {_REFUSED: reason(error)}
        print(json.dumps(answer, allow_nan=False), file=out, flush=True)


def reason(error: Exception) -> str:
    """An error in one line. One of ours needs no type before it."""
    said = next(filter(None, map(str.strip, str(error).splitlines())), "")
    return said[:_LONGEST_REASON] if isinstance(error, Refused) else f"{type(error).__name__}: {said}"[:_LONGEST_REASON]


def timed(calls: Calls, name: str, times: int) -> Answer:
    """Seconds a call. The first is not timed: since the last slice others had the caches, and threads fell asleep."""
    call = calls[name]
    gc.disable()
    try:
        call()
        cpu, wall = timing.seconds_per_call(call, times)
    finally:
        gc.enable()
    return {"cpu": cpu, "wall": wall}


class Worker:
    """The parent's end of a worker. It is started when it is asked first, and again after it has ended."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()

    def ask(self, what: str, /, *, limit_s: float, **details: Any) -> Answer:
        """Raises:
        Refused: where the worker says so, has crashed, or has not answered in time; then it is killed.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        overdue = threading.Event()
        timer = threading.Timer(limit_s, lambda: (overdue.set(), process.kill()))
        timer.start()
        try:
            print(json.dumps({"ask": what, **details}), file=process.stdin, flush=True)
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            process.wait()  # or the next question would go to who is dying
            raise Refused(f"no answer after {limit_s:.0f} s" if overdue.is_set() else self._last_words(process))
        answer: Answer = json.loads(line)
        if _REFUSED in answer:
            raise Refused(answer[_REFUSED])
        return answer

    def slices(self, names: Sequence[str], limit_s: float) -> dict[str, timing.Slice]:
        """What `timing.in_turns` takes. A slice raises Lost where the worker does."""
        return {name: partial(self._slice, name, limit_s) for name in names}

    def stop(self) -> None:
        """Gives back what the process holds; the next question starts another."""
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def close(self) -> None:
        self.stop()
        self._errors.close()

    def _slice(self, name: str, limit_s: float, times: int) -> tuple[float, float]:
        try:
            answer = self.ask("slice", limit_s=limit_s, name=name, times=times)
        except Refused as refused:
            raise Lost(self.name, refused) from refused
        return answer["cpu"], answer["wall"]

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        return self._process

    def _last_words(self, process: subprocess.Popen[str]) -> str:
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if line.strip()]
        return f"the process ended with {process.returncode}: {said[-1] if said else 'it said nothing'}"[
            :_LONGEST_REASON
        ]
