"""Clocks, and calls measured in turns, so that a busy minute on a shared machine falls on all alike."""

from __future__ import annotations

import gc
import random
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

LONGEST_SLICE = 64  # calls

Slice = Callable[[int], tuple[float, float]]  # so many calls -> seconds of CPU and of wall time, a call


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds in all, seconds for one slice of equal calls, and rounds."""

    budget_s: float
    slice_s: float
    fewest_rounds: int
    most_rounds: int


QUICK = Effort(budget_s=1.2, slice_s=0.012, fewest_rounds=5, most_rounds=25)
FULL = Effort(budget_s=3.0, slice_s=0.020, fewest_rounds=7, most_rounds=40)


@dataclass
class Samples:
    """Seconds per call, one entry a round. CPU is the whole process's, with TensorFlow's threads."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def cpu_with_children() -> float:
    """CPU seconds of this process and of the compilers that it ran and waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cpu_seconds_of(call: Callable[[], object]) -> float:
    before = cpu_with_children()
    call()
    return cpu_with_children() - before


def interleaved(calls: Mapping[str, Callable[[], object]], effort: Effort) -> dict[str, Samples]:
    """Calls of this process, in turns."""
    gc.collect()
    gc.disable()
    try:
        return in_turns({name: partial(seconds_per_call, call) for name, call in calls.items()}, effort)
    finally:
        gc.enable()


def in_turns(slices: Mapping[str, Slice], effort: Effort) -> dict[str, Samples]:
    """A B C, C A B, A C B, … until the budget is spent. A turn is a slice of some calls of one function.

    Each round is in an order of its own, the same ones every time: what ran before has filled the caches, and nobody is
    to come behind the same one always.
    """
    names = list(slices)
    slice_calls = {name: _calls_in_a_slice(slices[name], effort.slice_s) for name in names}
    samples = {name: Samples() for name in names}
    end = time.perf_counter() + effort.budget_s
    orders = random.Random(0)
    for done in range(effort.most_rounds):
        if done >= effort.fewest_rounds and time.perf_counter() > end:
            break
        for name in orders.sample(names, len(names)):
            cpu, wall = slices[name](slice_calls[name])
            samples[name].cpu.append(cpu)
            samples[name].wall.append(wall)
    return samples


def seconds_per_call(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Of CPU, and of wall time."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        call()
    taken = time.perf_counter() - wall
    return (time.process_time() - cpu) / times, taken / times


def _calls_in_a_slice(timed: Slice, slice_s: float) -> int:
    timed(1)
    _, wall = timed(1)
    return max(1, min(LONGEST_SLICE, round(slice_s / wall)))


@dataclass(frozen=True)
class Spread:
    """Milliseconds a step. The call's own cost, `call`, has been taken off the others."""

    median: float
    q1: float
    q3: float
    best: float
    call: float
    rounds: int

    @staticmethod
    def of(samples: list[float], empty_call: list[float], steps: int) -> Spread:
        # The least a call was seen to cost: to take off more than it did cost would flatter small kernels.
        call = min(empty_call)
        # A step cannot take no time: whatever is left after noise stays positive, so that ratios exist.
        net = np.maximum(np.array(samples) - call, 1e-9) * 1e3 / steps
        q1, median, q3 = np.quantile(net, (0.25, 0.5, 0.75))
        return Spread(float(median), float(q1), float(q3), float(net.min()), call * 1e3, len(samples))
