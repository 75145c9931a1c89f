"""Count the kernels that a compiled XLA program launches, from the text of its optimised HLO."""

from __future__ import annotations

import re
from functools import cache

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\(")
_CALLED = re.compile(r"(?:to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")

# Names and views of memory: nothing runs.
_FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all"}
# What runs is in the computations they call.
_CALLS = {"call", "while", "conditional"}


def kernels(hlo: str) -> int:
    """A fusion is one kernel, and so is every other instruction that does work; a loop's body counts once."""
    computations, entry = _computations(hlo)

    @cache
    def count(name: str) -> int:
        total = 0
        for line in computations.get(name, ()):
            match = _INSTRUCTION.match(line)
            if match is None or match[1] in _FREE:
                continue
            total += sum(map(count, _CALLED.findall(line))) if match[1] in _CALLS else 1
        return total

    return count(entry)


def _computations(hlo: str) -> tuple[dict[str, list[str]], str]:
    computations: dict[str, list[str]] = {}
    entry = name = ""
    for line in hlo.splitlines():
        header = _HEADER.match(line)
        if header is not None and not line.startswith("HloModule"):
            name = header[2]
            computations[name] = []
            entry = name if header[1] else entry
        elif line.startswith("}"):
            name = ""
        elif name:
            computations[name].append(line)
    return computations, entry
