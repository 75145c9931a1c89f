"""What the inputs of workloads are drawn from, each a function of a generator and the workload's shape."""

from __future__ import annotations

import numpy as np

from bench.workloads.workload import Rng, Shape


def normal(rng: Rng, shape: Shape) -> np.ndarray:
    return rng.standard_normal(shape)


def channels(rng: Rng, shape: Shape) -> np.ndarray:
    """A parameter for each channel, around 0."""
    return 0.2 * rng.standard_normal(shape[-1])


def around_one(rng: Rng, shape: Shape) -> np.ndarray:
    """A parameter for each channel."""
    return 1 + channels(rng, shape)
