"""One compile for all sizes: a function is called at many, and the compiler runs once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import normal
from tests.lower.comparison import assert_near
from tf_stitch.frontend import grappler
from tf_stitch.frontend.engine import engine_for

SIZES = [
    1,
    2,
    3,
    5,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    100,
    127,
    128,
    129,
    255,
    256,
    257,
    1000,
    *range(34, 60),
]


@pytest.fixture(autouse=True)
def _cold_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kernel cache with nothing in it, and an optimizer that remembers nothing."""
    monkeypatch.setenv("TF_STITCH_CACHE_DIR", str(tmp_path))
    engine_for.cache_clear()
    grappler.install().forget()
    tf_stitch.reset_stats()
    yield
    engine_for.cache_clear()
    grappler.install().forget()


def layer(x: Any, gamma: Any) -> Any:
    x = x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * gamma
    return tf.nn.softmax(x), tf.nn.gelu(x)


@pytest.mark.parametrize("known", [True, False])
def test_fifty_batch_sizes_are_one_compile(known: bool) -> None:
    """With the batch unknown to TensorFlow, and with a trace for each size."""
    assert len(set(SIZES)) == 50
    signature = None if known else [tf.TensorSpec([None, 96]), tf.TensorSpec([96])]
    plain, stitched = (f(layer, input_signature=signature, autograph=False) for f in (tf.function, tf_stitch.function))
    gamma = tf.constant(normal(96, seed=1))
    for size in SIZES:
        x = tf.constant(normal(size, 96, seed=size))
        for mine, other in zip(stitched(x, gamma), plain(x, gamma), strict=True):
            assert_near(mine.numpy(), other.numpy(), ulps=8)
    stats = tf_stitch.stats()
    assert stitched.experimental_get_tracing_count() == (50 if known else 1)
    assert stats["compiles"] == (2 if known else 1)  # a batch that is known to be 1 has a kernel of its own
    assert stats["calls"] == 50
    assert stats["fallbacks"] == {}
    assert stats["failed"] == 0


def test_rows_of_any_length_are_one_compile() -> None:
    signature = [tf.TensorSpec([None, None]), tf.TensorSpec([None])]
    plain, stitched = (f(layer, input_signature=signature, autograph=False) for f in (tf.function, tf_stitch.function))
    for rows, length in ((1, 1), (3, 31), (3, 33), (31, 1023), (2, 4097), (1, 40_000), (0, 5), (700, 2), (5, 768)):
        x, gamma = tf.constant(normal(rows, length)), tf.constant(normal(length, seed=1))
        for mine, other in zip(stitched(x, gamma), plain(x, gamma), strict=True):
            assert_near(mine.numpy(), other.numpy(), ulps=8)
    assert tf_stitch.stats()["compiles"] == 1
    assert tf_stitch.stats()["fallbacks"] == {}


def test_equal_layers_are_one_compile() -> None:
    """Six blocks that differ in nothing but their weights, and in the order of some operands."""
    weights = [tf.constant(normal(96, 96, seed=n) / 10) for n in range(6)]

    @tf_stitch.function
    def model(x: Any) -> Any:
        for number, weight in enumerate(weights):
            y = tf.matmul(x, weight, transpose_b=True)
            y = tf.nn.gelu(y + 1.0)
            x = x + y if number % 2 else y + x
            x = x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6)
        return x

    assert np.isfinite(model(tf.constant(normal(5, 96)))).all()
    stats = tf_stitch.stats()
    assert stats["kernels"] == 6
    assert stats["compiles"] == 1
