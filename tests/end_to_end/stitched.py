"""A function three ways: as TensorFlow runs it, stitched, and in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tf_stitch
from tests.lower.comparison import assert_near
from tf_stitch.runtime import stitch_op

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[..., Any]


def arrays(tensors: Any) -> list[Array]:
    return [np.asarray(t.numpy()) for t in tf.nest.flatten(tensors, expand_composites=True)]  # a scalar of bf16, too


def kernel_calls(call: Callable[[], Any]) -> int:
    """How many StitchOps ran in `call`."""
    before = stitch_op.counters()["total"]["calls"]
    call()
    return stitch_op.counters()["total"]["calls"] - before


def unknown(*arguments: Any) -> list[Any]:
    """A signature with every dim of the arguments unknown."""
    return [tf.TensorSpec([None] * np.ndim(a), np.asarray(a).dtype) for a in arguments]


def check(
    function: Function,
    *argument_lists: Sequence[Any],
    signature: Sequence[Any] | None = None,
    kernels: int | None = 1,
    ulps: float = 4.0,
    exact: bool = True,
) -> None:
    """Asserts that the stitched function is as good as TensorFlow's at each list of arguments.

    kernels: how many StitchOps run in a call; None for any number.
    exact: float32 arguments may be float64 as well, so that errors can be measured.
    """
    plain = tf.function(function, input_signature=signature, autograph=False)
    stitched = tf_stitch.function(function, input_signature=signature, autograph=False)
    for arguments in argument_lists:
        tensors = [tf.constant(a) for a in arguments]
        before = stitch_op.counters()["total"]["calls"]
        ours = arrays(stitched(*tensors))
        ran = stitch_op.counters()["total"]["calls"] - before
        what = f"at {[a.shape for a in tensors]}"
        if kernels is not None:
            assert ran == kernels, f"{ran} StitchOps ran, {what}"
        theirs = arrays(plain(*tensors))
        wanted: list[Array | None] = [None] * len(theirs)
        if exact and any(t.dtype == tf.float32 for t in tensors):
            wide = [tf.cast(t, tf.float64) if t.dtype == tf.float32 else t for t in tensors]
            wanted = list(arrays(tf.function(function, autograph=False)(*wide)))
        for mine, other, reference in zip(ours, theirs, wanted, strict=True):
            assert_near(mine, other, reference, ulps=ulps, what=what)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
