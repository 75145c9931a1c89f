"""A race: two calls in turns, and which of them is to be kept.

    round 1   stitched  original  nothing
    round 2   original  nothing   stitched        until it is clear, or the time is up
    round 3   nothing   stitched  original

A call may run its side several times, if all three do. `nothing` has the same operands and computes nothing: what it
takes is the cost of any call, and is taken off both.
Turns, so that a busy moment of the machine falls on all alike; medians, so that the odd long call does not count.

What is decided on is the *excess*: what the kernel takes beyond what the nodes take and a margin of that. It is
uncertain by the *doubt*. A median of n rounds is known, 19 times of 20, within its notch (as of a box plot: 1.57 times
the interquartile range over the root of n), and the doubt is both notches together, as independent errors add up. A
kernel loses only when its excess is above the doubt: else it stays, since by the bytes that it moves it should win.
A race ends early when it is clear, and may take five times as long while it is not decided.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Call = Callable[[], object]

Samples = np.ndarray[Any, np.dtype[np.float64]]

_NOTCH = 1.57
_CLEAR = 2.0  # doubts: one looks several times, and so asks for more than one


@dataclass(frozen=True)
class Competitors:
    """The calls of a race, each of which runs its side `copies` times."""

    stitched: Call
    original: Call
    nothing: Call
    copies: int = 1


@dataclass(frozen=True)
class Clock:
    """Seconds, of the wall clock and of all of this process's threads."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class Rules:
    """seconds: for one race; `patience` times as many while the excess is within the doubt. At least `fewest` rounds.

    margin: the part of the nodes' time by which a kernel may be slower.
    """

    seconds: float = 0.05
    patience: float = 5.0
    fewest: int = 5
    most: int = 4096
    margin: float = 0.03


@dataclass(frozen=True)
class Outcome:
    """Microseconds: medians over the rounds, the call's own cost taken off; see the head of this module."""

    stitch_us: float
    original_us: float
    stitch_cpu_us: float
    original_cpu_us: float
    excess_us: float
    doubt_us: float
    rounds: int

    @property
    def kept(self) -> bool:
        """Whether the kernel stays: it is not slower, as far as one can tell."""
        return self.excess_us <= self.doubt_us

    def __str__(self) -> str:
        return f"stitched {microseconds(self.stitch_us)}, apart {microseconds(self.original_us)}"


def microseconds(number: float) -> str:
    """Three digits or so; nothing that is below what a race can tell."""
    if number < 0.1:
        return "< 0.1 µs"
    return f"{number:.2f} µs" if number < 10 else f"{number:.1f} µs" if number < 100 else f"{number:.0f} µs"


def race(competitors: Competitors, rules: Rules, clock: Clock) -> Outcome:
    """Runs the calls in turns. An exception of theirs is passed on."""
    calls = (competitors.stitched, competitors.original, competitors.nothing)
    for call in (*calls, *calls):  # the first call of a function is another matter
        call()
    wall: list[list[float]] = []
    cpu: list[list[float]] = []
    start = clock.wall()
    look = 4 * rules.fewest
    collecting = gc.isenabled()
    gc.disable()
    try:
        while True:
            _round(calls, clock, wall, cpu)
            rounds, seconds = len(wall), clock.wall() - start
            if rounds < look and not (rounds >= rules.fewest and seconds >= rules.seconds):
                continue
            look = max(look, rounds + rounds // 4)
            outcome = _outcome(np.asarray(wall), np.asarray(cpu), rules.margin, competitors.copies)
            needed = _CLEAR if seconds < rules.seconds else 1.0
            late = seconds >= rules.patience * rules.seconds or rounds >= rules.most
            if late or abs(outcome.excess_us) > needed * outcome.doubt_us:
                return outcome
    finally:
        if collecting:
            gc.enable()


def _round(calls: tuple[Call, ...], clock: Clock, wall: list[list[float]], cpu: list[list[float]]) -> None:
    """Every call once; adds a row to each of `wall` and `cpu`."""
    wall.append([0.0] * len(calls))
    cpu.append([0.0] * len(calls))
    first = len(wall) % len(calls)
    for number in (*range(first, len(calls)), *range(first)):
        cpu_before, before = clock.cpu(), clock.wall()
        calls[number]()
        wall[-1][number] = clock.wall() - before
        cpu[-1][number] = clock.cpu() - cpu_before


def _outcome(wall: Samples, cpu: Samples, margin: float, copies: int) -> Outcome:
    """Of seconds, a row for each round and a column for each call."""
    low, medians, high = np.quantile(wall * (1e6 / copies), (0.25, 0.5, 0.75), axis=0)
    cpu_medians = np.median(cpu * (1e6 / copies), axis=0)
    notches = _NOTCH * (high - low) / math.sqrt(len(wall))
    stitch, original = medians[:2] - medians[2]
    stitch_cpu, original_cpu = cpu_medians[:2] - cpu_medians[2]
    return Outcome(
        stitch_us=_rounded(max(0.0, stitch)),
        original_us=_rounded(max(0.0, original)),
        stitch_cpu_us=_rounded(max(0.0, stitch_cpu)),
        original_cpu_us=_rounded(max(0.0, original_cpu)),
        excess_us=_rounded(stitch - (1 + margin) * original),
        doubt_us=_rounded(math.hypot(notches[0], (1 + margin) * notches[1])),
        rounds=len(wall),
    )


def _rounded(microseconds: float) -> float:
    return round(float(microseconds), 3)
