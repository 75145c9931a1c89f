"""Mutants of a kernel: its text with one barrier, fence or check less. Each must be noticed, or nobody needs the thing.

    block barrier    __syncthreads();                    is deleted
    warp barrier     __syncwarp();                       is deleted
    fence            __threadfence();                    is deleted
    grid barrier     grid_barrier(...);                  is deleted
    check            if (i < n) ...                      is always true
    guard            if (lane == 0) ...                  is always true
    early return     if (row >= rows) return;            is deleted
    loop bound       for (i = thread; i < n; ...)        goes one too far
    clamp            end = a < n ? a : n;                is a

A word of a comment is no code. A thing within a function that is called often is one thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.emulator.dialect import without_comments
from tests.emulator.emulated import Module, compile_kernel
from tests.emulator.reports import Failure

_CALLS = {
    "block barrier": r"__syncthreads\s*\(\s*\)\s*;",
    "warp barrier": r"__syncwarp\s*\([^;]*?\)\s*;",
    "fence": r"__threadfence(?:_block)?\s*\(\s*\)\s*;",
    "grid barrier": r"(?<!void )(?<![\w:])(?:\w+::)?grid_barrier\s*\([^;{]*?\)\s*;",
    "early return": r"\bif\s*\([^;{}]*?\)\s*return\s*;",
}
_CHECK = re.compile(r"\bif\s*(?=\()")
_LOOP = re.compile(r"\bfor\s*\([^;]*;\s*[\w.]+\s*(<)\s*[^;]*;")
_CLAMP = re.compile(r"=\s*([^;?=<>]+?)\s*<\s*[^;?]+?\?\s*\1\s*:[^;]+;")


@dataclass(frozen=True)
class Mutant:
    """`text` is the kernel without the `kind` of thing that stood at `line`, which was `what`."""

    kind: str
    line: int
    what: str
    text: str


def mutants(text: str, kinds: Sequence[str] | None = None) -> Iterator[Mutant]:
    """Every mutant of a `.cu` text, in the order of the text; lines stay where they are."""
    code = without_comments(text)
    found = [*_deletions(code), *_checks(code), *_bounds(code), *_clamps(code)]
    for begin, end, kind, instead in sorted(found):
        if kinds is None or kind in kinds:
            what = " ".join(text[begin:end].split())
            lines = "\n" * text[begin:end].count("\n")
            yield Mutant(kind, text.count("\n", 0, begin) + 1, what, text[:begin] + instead + lines + text[end:])


def _deletions(code: str) -> Iterator[tuple[int, int, str, str]]:
    for kind, pattern in _CALLS.items():
        for match in re.finditer(pattern, code):
            yield match.start(), match.end(), kind, ";"


def _checks(code: str) -> Iterator[tuple[int, int, str, str]]:
    """Conditions `(...)` of ifs: those that compare sizes, and those that choose who does something."""
    for match in _CHECK.finditer(code):
        end = _closing(code, match.end()) - 1
        begin = max(match.end(), code.rfind(";", match.end(), end)) + 1  # behind `if (` or `if (const int n = ...;`
        if not re.match(r"\s*return\b", code[end + 1 :]):
            yield begin, end, "check" if re.search(r"[<>]", code[begin:end]) else "guard", " true"


def _bounds(code: str) -> Iterator[tuple[int, int, str, str]]:
    """Bounds of the loops that the threads of a block share out among them."""
    for match in _LOOP.finditer(code):
        if re.search(r"\b(?:threadIdx|thread|lane|down)\b", match[0].split(";")[0]):
            yield match.start(1), match.end(1), "loop bound", "<="


def _clamps(code: str) -> Iterator[tuple[int, int, str, str]]:
    for match in _CLAMP.finditer(code):
        yield match.start(), match.end(), "clamp", f"= {match[1]};"


def _closing(code: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at + 1
    raise ValueError(f"no parenthesis closes the one at {opening}")


# ---- Who notices -------------------------------------------------------------------------------------------------

Trial = Callable[[Module, int | None], object]  # launches a module with a seed, and raises if anything is wrong


@dataclass(frozen=True)
class Verdict:
    """Who noticed a mutant first, and what was said; None: nobody did."""

    mutant: Mutant
    by: str | None
    report: str

    def __str__(self) -> str:
        said = self.report.splitlines()[0][:90] if self.report else ""
        mutant = self.mutant
        return f"{mutant.kind:14} line {mutant.line:3}  {mutant.what[:44]:44}  {self.by or 'ESCAPED':12} {said}"


def judge(mutant: Mutant, trial: Trial, seeds: Sequence[int] = (1, 2)) -> Verdict:
    """Runs the mutant in order, then by `seeds`, then under AddressSanitizer, then under ThreadSanitizer."""
    plain = compile_kernel(mutant.text)
    for module, seed in [(plain, None), *((plain, seed) for seed in seeds)]:
        if (noticed := _noticed(trial, module, seed)) is not None:
            return Verdict(mutant, *noticed)
    for sanitizer in ("address", "thread"):
        if (noticed := _noticed(trial, compile_kernel(mutant.text, sanitizer), None)) is not None:
            return Verdict(mutant, *noticed)
    return Verdict(mutant, None, "")


def _noticed(trial: Trial, module: Module, seed: int | None) -> tuple[str, str] | None:
    try:
        trial(module, seed)
    except Failure as failure:
        return type(failure).__name__.lower(), str(failure)
    except AssertionError as failure:
        return "numbers", str(failure)
    return None


def judge_all(text: str, trial: Trial, kinds: Sequence[str] | None = None) -> list[Verdict]:
    return [judge(mutant, trial) for mutant in mutants(text, kinds)]


def table(verdicts: Sequence[Verdict]) -> str:
    return "\n".join(map(str, verdicts))
