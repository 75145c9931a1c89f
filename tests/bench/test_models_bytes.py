"""What StitchOps move, and what the memory gives."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from bench import models_bytes
from bench.models_bytes import PlannedBytes


def test_the_planners_bytes_of_what_is_stitched_inside():
    function = tf_stitch.function(lambda x, y: tf.exp(x) * y + x, autograph=False)
    x, y = (tf.constant(np.ones((6, 40), np.float32)) for _ in range(2))
    with models_bytes.recorded() as planned:
        function(x, y)
    ((key, sizes),) = planned.by_key.items()
    assert sizes == [3 * 6 * 40 * 4]  # two inputs and an output
    assert planned.of_calls({key: 2}) == 2 * sizes[0]


def test_unknown_dims_have_no_number():
    spec = tf.TensorSpec([None, 40], tf.float32)
    function = tf_stitch.function(lambda x: tf.exp(x) * x, autograph=False, input_signature=[spec])
    with models_bytes.recorded() as planned:
        function(tf.ones([6, 40]))
    ((key, sizes),) = planned.by_key.items()
    assert sizes == [None]
    assert planned.of_calls({key: 1}) is None


def test_calls():
    planned = PlannedBytes({"a": [100], "b": [10, 30]})
    assert planned.of_calls({"a": 1, "b": 2}) == 140
    assert planned.of_calls({"a": 1, "other": 1}) is None
    assert planned.of_calls({}) is None


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_triad_is_computed_in_full(monkeypatch, tmp_path, threads):
    monkeypatch.setattr(models_bytes, "_ARRAY_BYTES", 64 * 1001)
    made = []
    aligned = models_bytes._aligned
    monkeypatch.setattr(models_bytes, "_aligned", lambda *a: made.append(aligned(*a)) or made[-1])
    rate = models_bytes.triad_gb_per_s(threads)
    assert rate is not None
    assert rate > 0.01
    a, b, c = made
    assert all(array.ctypes.data % 64 == 0 for array in made)
    np.testing.assert_array_equal(a, b + 3 * c)


def test_without_a_compiler_there_is_no_triad(monkeypatch):
    monkeypatch.setattr(models_bytes.compilers, "find_compilers", lambda target: iter(()))
    assert models_bytes.triad_gb_per_s(1) is None
