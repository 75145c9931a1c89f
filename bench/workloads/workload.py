"""A workload: one cluster of memory-intensive ops, its shapes, and how its inputs are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Arrays = tuple[np.ndarray, ...]
Rng = np.random.RandomState

# How much a chain does in a call, in elements of ordinary cost: it takes some milliseconds then, where the
# call itself takes a few hundred µs. Larger tensors are not chained: one copy alone dwarfs the call.
CHAIN_WORK = 32_000_000
LARGE = 2_000_000
# So many copies stand in a row; where there are more, the row is in a loop.
UNROLLED = 16
MOST_COPIES = 512


def no_arrays(_rng: Rng, _shape: Shape) -> Arrays:
    return ()


@dataclass(frozen=True)
class Prepared:
    """A function with its arguments, and what it left behind: the outputs of a workload's `step` after one call."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    outputs: Callable[[], Any]


@dataclass(frozen=True)
class Rival:
    """The same answer by ops that TensorFlow has for just this work, on variables if they need some.

    `prepare(*arguments)` gets the arguments of one copy. It is measured beside the other ways of a workload that stands
    `alone`.
    """

    name: str
    prepare: Callable[..., Prepared]


@dataclass(frozen=True)
class Workload:
    """One cluster, as a Python function of tensors.

    `step(x, *fresh, *given)` returns the next `x`, of the same shape, or a tuple `(x, *emitted)` with `emits` tensors
    that no other copy reads (the gradient of a layer's bias). A chain of copies hands `x` from one to the next; every
    copy has its own `fresh` tensors (the gates of an LSTM's time step) and all share the `given` ones (a bias, a mask).
    Nothing in `step` may depend on `given` alone, or a chain would do it only once.
    """

    name: str
    step: Callable[..., Any]
    start: Callable[[Rng, Shape], np.ndarray]
    given: Callable[[Rng, Shape], Arrays] = no_arrays
    fresh: Callable[[Rng, Shape], Arrays] = no_arrays
    quick: tuple[Shape, ...] = ()
    full: tuple[Shape, ...] = ()
    emits: int = 0
    alone: bool = False  # one copy is work enough for a call, so there are no chains
    weight: float = 1.0  # cost of an element
    # The same function where TensorFlow has no float64 kernel for an op of `step`.
    reference_step: Callable[..., Any] | None = None
    rival: Rival | None = None

    def __post_init__(self) -> None:
        assert self.alone or self.rival is None, f"{self.name}: a rival does one copy's work, not a chain's"

    def shapes(self, quick: bool) -> tuple[Shape, ...]:
        return self.quick if quick else self.full

    def copies(self, shape: Shape) -> int:
        """How many copies a measured call chains."""
        elements = math.prod(shape)
        if self.alone or elements > LARGE:
            return 1
        rows = CHAIN_WORK / (elements * self.weight * UNROLLED)
        if rows < 1 or self.most_copies == UNROLLED:
            return max(1, min(UNROLLED, round(rows * UNROLLED)))
        return min(MOST_COPIES, round(rows) * UNROLLED)

    def arrays(self, shape: Shape, copies: int, seed: int = 0) -> Arrays:
        """The arguments of a chain, float32 and int32: x, then the fresh ones copy by copy, then the given ones."""
        rng = Rng(seed)
        start = self.start(rng, shape)
        given = self.given(rng, shape)
        fresh = tuple(a for _ in range(copies) for a in self.fresh(rng, shape))
        return tuple(map(_in_32_bits, (start, *fresh, *given)))

    @cached_property
    def fresh_count(self) -> int:
        return len(self.fresh(Rng(0), self.quick[0]))

    @property
    def most_copies(self) -> int:
        """Where copies have arguments or results of their own, they all stand in one row: a loop would have to cut them
        out of larger tensors, or paste them together."""
        return UNROLLED if self.fresh_count or self.emits else MOST_COPIES


def _in_32_bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int32 if array.dtype.kind == "i" else np.float32)
