"""A workload: one cluster of memory-intensive ops, its shapes, and how its inputs are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
class Workload:
    """One cluster, as a Python function of tensors.

    `step(x, *fresh, *given)` returns the next `x`, of the same shape, or a tuple `(x, *emitted)`. A chain of
    copies hands `x` from one to the next; every copy has its own `fresh` tensors (the gates of an LSTM's time
    step) and all share the `given` ones (a bias, a mask). Nothing in `step` may depend on `given` alone, or a
    chain would do it only once.
    """

    name: str
    step: Callable[..., Any]
    start: Callable[[Rng, Shape], np.ndarray]
    given: Callable[[Rng, Shape], Arrays] = no_arrays
    fresh: Callable[[Rng, Shape], Arrays] = no_arrays
    quick: tuple[Shape, ...] = ()
    full: tuple[Shape, ...] = ()
    weight: float = 1.0  # cost of an element
    # The same function where TensorFlow has no float64 kernel for an op of `step`.
    reference_step: Callable[..., Any] | None = None

    def shapes(self, quick: bool) -> tuple[Shape, ...]:
        return self.quick if quick else self.full

    def copies(self, shape: Shape) -> int:
        """How many copies a measured call chains."""
        elements = float(np.prod(shape))
        if elements > LARGE:
            return 1
        rows = CHAIN_WORK / (elements * self.weight * UNROLLED)
        if rows < 1 or self.fresh_count:
            return max(1, min(UNROLLED, round(rows * UNROLLED)))
        return min(MOST_COPIES, round(rows) * UNROLLED)

    def arrays(self, shape: Shape, copies: int, seed: int = 0) -> Arrays:
        """The float32 arguments of a chain: x, then the fresh ones copy by copy, then the given ones."""
        rng = Rng(seed)
        start = self.start(rng, shape)
        given = self.given(rng, shape)
        fresh = tuple(a for _ in range(copies) for a in self.fresh(rng, shape))
        return tuple(np.ascontiguousarray(a, np.float32) for a in (start, *fresh, *given))

    @property
    def fresh_count(self) -> int:
        return len(self.fresh(Rng(0), self.quick[0]))
