"""Softmaxes over rows of ordinary and of odd lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from bench.workloads.inputs import normal
from bench.workloads.norms import ODD_ROWS, ROWS
from bench.workloads.workload import Arrays, Rng, Shape, Workload


def masked_softmax(x: Any, mask: Any) -> Any:
    """As in attention: `mask` is 0 where a key counts, and -1e9 where it does not."""
    return tf.nn.softmax(x * 0.125 + mask)


def log_softmax(x: Any) -> Any:
    return tf.nn.log_softmax(x * 0.5)


def _mask(rng: Rng, shape: Shape) -> Arrays:
    """A quarter of the keys masked, the same for every query of a batch element."""
    keep_leading = 1 if len(shape) > 2 else 0
    mask_shape = shape[:keep_leading] + (1,) * (len(shape) - keep_leading - 1) + shape[-1:]
    return (np.where(rng.uniform(size=mask_shape) < 0.25, -1e9, 0.0),)


SOFTMAXES: tuple[Workload, ...] = (
    Workload(
        "masked_softmax",
        masked_softmax,
        start=normal,
        given=_mask,
        quick=ROWS[:1],
        full=(*ROWS, (16384, 1024), *ODD_ROWS),
    ),
    Workload(
        "attention_softmax",
        masked_softmax,
        start=normal,
        given=_mask,
        quick=((1, 12, 128, 128),),
        full=((1, 12, 128, 128), (8, 12, 128, 128)),
    ),
    Workload("log_softmax", log_softmax, start=normal, quick=ROWS[:1], full=(*ROWS, (64, 30_000))),
)
