"""A race: two calls in turns, and which of them is to be kept.

    round 1   stitched  original  nothing
    round 2   original  nothing   stitched        until it is clear, or the time is up
    round 3   nothing   stitched  original

A call may run its side several times, if all three do. `nothing` has the same operands and computes nothing: what it
takes is the cost of any call, and is taken off both.
Turns, so that a busy moment of the machine falls on all alike; medians, so that the odd long call does not count.

What is decided on is the *excess* of each round: what the kernel took beyond what the nodes took and a margin of
that. Its median is uncertain by `doubt`: half the interval that holds the true median 19 times of 20 (the notch of a
box plot, 1.57 times the interquartile range over the root of the number of rounds). A kernel loses only when the
excess is above that: in doubt it stays, since by the bytes that it moves it should win.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Call = Callable[[], object]

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
    """seconds: for one race, after which it ends as soon as it has had `fewest` rounds.

    margin: the part of the nodes' time by which a kernel may be slower.
    """

    seconds: float = 0.05
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

    @property
    def is_clear(self) -> bool:
        return abs(self.excess_us) > _CLEAR * self.doubt_us

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
    end = clock.wall() + rules.seconds
    look = 4 * rules.fewest
    collecting = gc.isenabled()
    gc.disable()
    try:
        while True:
            _round(calls, clock, wall, cpu)
            rounds = len(wall)
            late = rounds >= rules.most or (rounds >= rules.fewest and clock.wall() >= end)
            if late or rounds == look:
                look *= 2
                microseconds_each = 1e6 / competitors.copies
                outcome = _outcome(
                    np.asarray(wall) * microseconds_each, np.asarray(cpu) * microseconds_each, rules.margin
                )
                if late or outcome.is_clear:
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


def _outcome(wall: np.ndarray, cpu: np.ndarray, margin: float) -> Outcome:
    medians, cpu_medians = np.median(wall, axis=0), np.median(cpu, axis=0)
    call, cpu_call = medians[2], cpu_medians[2]
    excess = wall[:, 0] - (1 + margin) * wall[:, 1] + margin * call
    low, middle, high = np.quantile(excess, (0.25, 0.5, 0.75))
    return Outcome(
        stitch_us=_net(medians[0], call),
        original_us=_net(medians[1], call),
        stitch_cpu_us=_net(cpu_medians[0], cpu_call),
        original_cpu_us=_net(cpu_medians[1], cpu_call),
        excess_us=round(float(middle), 3),
        doubt_us=round(float(_NOTCH * (high - low) / math.sqrt(len(wall))), 3),
        rounds=len(wall),
    )


def _net(total: float, call: float) -> float:
    return round(max(0.0, float(total - call)), 3)
