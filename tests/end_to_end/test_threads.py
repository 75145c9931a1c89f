"""Many threads at once, from the very first call on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import normal
from tf_stitch.frontend import grappler

THREADS = 32


def layer(x: Any) -> Any:
    return tf.nn.softmax(tf.nn.gelu(x) * 2.0) - tf.reduce_max(x, -1, keepdims=True)


def test_the_first_call_from_many_threads() -> None:
    """All of them wait for one compile, and get the same."""
    grappler.install().forget()
    tf_stitch.reset_stats()
    function = tf_stitch.function(layer, input_signature=[tf.TensorSpec([None, None])], autograph=False)
    start = threading.Barrier(THREADS)
    inputs = [tf.constant(normal(7 + n, 33 + n, seed=n)) for n in range(THREADS)]

    def call(number: int) -> Any:
        start.wait(60)
        return function(inputs[number]).numpy()

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(call, range(THREADS)))
    assert tf_stitch.stats()["fallbacks"] == {}
    assert tf_stitch.stats()["failed"] == 0
    assert tf_stitch.stats()["kernels"] == 1
    for x, result in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(result, function(x).numpy())
        np.testing.assert_allclose(result, tf.function(layer)(x), rtol=1e-4, atol=1e-5)


def test_results_do_not_depend_on_who_else_is_at_work() -> None:
    """Large rows, which are split among threads when these are free: the same bits at any load."""
    function = tf_stitch.function(layer, input_signature=[tf.TensorSpec([None, None])], autograph=False)
    x = tf.constant(normal(2, 50_000))
    alone = function(x).numpy()
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: function(x).numpy(), range(40)):
            np.testing.assert_array_equal(result, alone)
    wide = tf.concat([x] * 30, 0)
    for row in function(wide).numpy().reshape(30, 2, -1):
        np.testing.assert_array_equal(row, alone)
