"""Seeded weights for models that are used untrained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

SPREAD = 0.02  # BERT's own
AROUND_ONE = ("gamma", "moving_variance")


def assign_random(variables: Iterable[Any]) -> None:
    """Sets each variable, in order, from one seed."""
    random = np.random.default_rng(0)
    for variable in variables:
        variable.assign(random_values(random, variable.name, variable.shape))


def random_values(random: np.random.Generator, name: str, shape: Sequence[int]) -> np.ndarray:
    """No bias is exactly 0 and no gain exactly 1: training moves them too."""
    values = random.normal(0, SPREAD, tuple(shape))
    centre = 1 if any(part in name for part in AROUND_ONE) else 0
    return (values + centre).astype(np.float32)
