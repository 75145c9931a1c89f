"""Launches in a process of their own, under ThreadSanitizer or AddressSanitizer: `kernels/emulator/runner.cc`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.emulator import building, reports

if TYPE_CHECKING:
    from tests.emulator.emulated import Argument

_OPTIONS = {
    # One report is enough; fibers are no threads that could leak.
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:report_thread_leaks=0:report_signal_unsafe=0:history_size=4",
    "ASAN_OPTIONS": "detect_leaks=0:exitcode=66:detect_stack_use_after_return=0:allow_user_poisoning=1",
}


def launch(
    module: Path,
    flavour: str,
    kernel: str,
    sizes: Sequence[int],
    shared_bytes: int,
    args: Sequence[Argument],
    schedule: tuple[int, int],
    alignment: int,
    timeout: float = 300,
) -> dict:
    """The runtime's report. Arrays are passed in files, and read back.

    Raises what the sanitizer found, or Deadlock if the launch is not through after `timeout` seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        request = [
            f"kernel {kernel}",
            "sizes " + " ".join(map(str, [*sizes, shared_bytes])),
            f"schedule {schedule[0]} {schedule[1]}",
        ]
        files: list[tuple[np.ndarray, Path]] = []
        for number, argument in enumerate(args):
            if isinstance(argument, int):
                request.append(f"integer {argument}")
            elif isinstance(argument, float):
                request.append(f"real {argument!r}")
            else:
                path = Path(folder) / str(number)
                request.append(f"buffer {alignment} {_size(argument)} {path}")
                if isinstance(argument, np.ndarray):
                    path.write_bytes(argument.tobytes())
                    files.append((argument, path))
        asked = Path(folder) / "request"
        asked.write_text("\n".join(request) + "\n")
        report = _report(kernel, [str(building.runner(flavour)), str(module), str(asked)], timeout)
        for array, path in files:
            if array.flags.writeable:
                array[...] = np.frombuffer(path.read_bytes(), array.dtype).reshape(array.shape)
    return report


def _size(argument: Argument) -> int:
    return argument.nbytes if isinstance(argument, np.ndarray) else argument.bytes  # type: ignore[union-attr]


def _report(kernel: str, command: list[str], timeout: float) -> dict:
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout, env={**os.environ, **_OPTIONS}
        )
    except subprocess.TimeoutExpired:
        raise reports.Deadlock(f"{kernel}: not through after {timeout} s") from None
    found = reports.of_sanitizer(kernel, finished.stderr)
    if found is not None:
        raise found
    if finished.returncode != 0:
        raise RuntimeError(f"{kernel}: {' '.join(command)} ended with {finished.returncode}: {finished.stderr[-2000:]}")
    return json.loads(finished.stdout)
