"""Failures of emulated kernels, as exceptions that name kernel, block, thread and source line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path


class Failure(AssertionError):
    """A kernel went wrong. `lines`: places in its source, `file:line`, innermost first."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = tuple(lines)


class Deadlock(Failure):
    """Threads wait, or spin, for what will never happen."""


class Divergence(Failure):
    """Threads that must meet at one place do not: a barrier that some miss, a mask that is not so."""


class BadAccess(Failure):
    """An access outside of every buffer or variable."""


class Race(Failure):
    """Two accesses to one place, one of them a store, that nothing orders."""


class Trap(Failure):
    """The kernel gave up: __trap, an integer division by zero, a launch that cannot be."""


_KINDS = {"deadlock": Deadlock, "divergence": Divergence, "access": BadAccess, "trap": Trap}


def failure(report: dict, module: Path) -> Failure:
    """The exception for what the runtime reported as JSON; `module` tells the lines of its addresses."""
    places = _places(report.get("trace", []), module)
    lines = [place for place, _ in places] or [report["site"] for _ in range("site" in report)]
    text = f"{report['kernel']}: {report['message']}"
    if places:
        text += "".join(f"\n  at {place} in {function}" for place, function in places)
    elif lines:
        text += f"\n  at {lines[0]}"
    return _KINDS[report["kind"]](text, lines)


def _places(offsets: Sequence[int], module: Path) -> list[tuple[str, str]]:
    """(file:line, function) of addresses in `module`, with the functions that were inlined, innermost first."""
    if not offsets:
        return []
    command = ["addr2line", "-i", "-f", "-C", "-e", str(module), *(hex(offset) for offset in offsets)]
    output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.splitlines()
    places = []
    for function, place in zip(output[::2], output[1::2], strict=False):
        if known := _place(place):
            places.append((known, function.split("(")[0]))
    return places


def _place(text: str) -> str | None:
    """`file:line`, the path cut short; None for the emulator's own lines and for unknown ones."""
    match = re.match(r"(.*?):(\d+)", text)
    if match is None or "/emulator/" in match[1] or match[2] == "0" or match[1].endswith(("kernels of kernel.cu", "?")):
        return None
    return f"{_short(match[1])}:{match[2]}"


def _short(path: str) -> str:
    inside = path.rfind("prelude/")
    return path[inside:] if inside >= 0 else Path(path).name


# ---- ThreadSanitizer and AddressSanitizer ----------------------------------------------------------------------

_ACCESS = re.compile(
    r"\s+((?:(?:previous|atomic) )*(?:read|write)) of size (\d+) at \w+(?: by (?:main )?thread(?: T(\d+))?)?",
    re.IGNORECASE,
)
_FRAME = re.compile(r"\s+#\d+ (?:0x[0-9a-f]+ in )?(.*?) (\S+:\d+)")


def of_sanitizer(kernel: str, output: str) -> Failure | None:
    """What a sanitizer has printed, or None if it has printed no report."""
    found = re.search(r"(WARNING|ERROR): (Thread|Address)Sanitizer: (.*?)(?:\nSUMMARY|\Z)", output, re.DOTALL)
    if found is None:
        return None
    report = found[3]
    kind = Race if found[1] == "WARNING" else BadAccess
    names = dict(re.findall(r"Thread T(\d+) '(.*?)'", report))
    described = re.search(r"^in the kernel: (.*)$", output, re.MULTILINE)
    title = described[1] if described else re.sub(r" \(pid=\d+\)| (?:on address|\(pc).*", "", report.splitlines()[0])
    lines: list[str] = []
    text = f"{kernel}: {title}"
    for line in report.split("Thread T", 1)[0].splitlines() if kind is Race else report.splitlines():
        if access := _ACCESS.match(line):
            text += f"\n  {access[1].lower()} of {access[2]} bytes"
            text += f" by {names[access[3]]}" if access[3] in names else ""
        elif (frame := _FRAME.match(line)) and (place := _place(frame[2])) and "stitch_emulator::" not in frame[1]:
            lines.append(place)
            text += f"\n    at {place} in {frame[1].split('(')[0]}"
    return kind(text, lines)
