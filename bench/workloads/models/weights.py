"""Seeded weights for models that are used untrained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

SPREAD = 0.02  # BERT's own
AWAY = np.float32(6)  # from 0, where what is added to it is about 1
AROUND_ONE = ("gamma", "moving_variance")


def assign_random(variables: Iterable[Any], *, scaled: bool = False, before_relu: Sequence[str] = ()) -> None:
    """Sets each variable, in order, from one seed.

    before_relu: parts of names of biases that a ReLU comes after. They are so far from 0 that a unit is on or off
      whatever it is given. A gradient is not continuous at 0, and rounding sends a few of millions of sums across it.
    """
    random = np.random.default_rng(0)
    for variable in variables:
        values = random_values(random, variable.name, variable.shape, scaled=scaled)
        if any(part in variable.name for part in before_relu):
            values += np.where(values < 0, -AWAY, AWAY)
        variable.assign(values)


def random_values(random: np.random.Generator, name: str, shape: Sequence[int], *, scaled: bool = False) -> np.ndarray:
    """No bias is exactly 0 and no gain exactly 1: training moves them too.

    scaled: a layer of few inputs has larger weights, so that values stay of a size from layer to layer. Else gradients
      of narrow layers vanish on their way back.
    """
    spread = max(SPREAD, math.prod(shape[:-1]) ** -0.5) if scaled and len(shape) > 1 else SPREAD
    values = random.normal(0, spread, tuple(shape))
    centre = 1 if any(part in name for part in AROUND_ONE) else 0
    return (values + centre).astype(np.float32)
