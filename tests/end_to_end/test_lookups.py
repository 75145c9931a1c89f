"""Tables, one-hot vectors and steps of a loop in real functions; and TensorFlow's errors for indices out of range."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import check, normal

TABLE, ROWS = normal(50, 24), normal(35, 24, seed=1)
INDICES = np.array([3, 0, 49, 3, 7, 21, 48] * 5, np.int32)
WRONG = np.array([*INDICES[:-1], 50], np.int32)


def embedded(indices: Any) -> Any:
    return tf.tanh(tf.gather(TABLE, indices) + ROWS) * 2.0


def picked(indices: Any) -> Any:
    """Each row's own element, as a policy's gradient wants it."""
    pairs = tf.stack([tf.range(35), indices * 24 // 50], axis=1)
    return tf.exp(-tf.gather_nd(tf.constant(ROWS), tf.identity(pairs)))


def loss(indices: Any) -> Any:
    logits = tf.constant(normal(35, 50, seed=2)) * 3.0
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(indices, logits))


def label(indices: Any) -> Any:
    """Of a label out of range a one-hot vector is zero."""
    return tf.one_hot(indices, 50, on_value=0.9, off_value=0.1) * tf.constant(normal(35, 50, seed=2))


def loop(indices: Any) -> Any:
    """A step of the rows at a time."""
    rows = tf.constant(normal(5, 7, 24, seed=3))

    def step(t: Any, state: Any) -> Any:
        return t + 1, tf.tanh(state * rows[:, t]) + 0.5

    return tf.while_loop(lambda t, _: t < indices[4], step, (0, tf.ones([5, 24])))[1]


@pytest.mark.parametrize(
    ("function", "kernels"), [(embedded, 1), (picked, 2), (loss, 1), (label, 1), (loop, int(INDICES[4]))]
)
def test_is_what_tensorflow_computes(function: Callable[..., Any], kernels: int) -> None:
    check(function, [INDICES], kernels=kernels)


@pytest.mark.parametrize("function", [embedded, picked, loss])
@pytest.mark.parametrize("wrong", [WRONG, -WRONG])
def test_an_index_out_of_range_raises_as_ever(
    function: Callable[..., Any], wrong: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    texts: list[str] = []
    for made in (tf.function(function, autograph=False), tf_stitch.function(function, autograph=False)):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            made(tf.constant(wrong))
        found = re.search("(indices|Received)[^,\n]*", str(raised.value.message))
        assert found
        texts.append(found[0])
    assert texts[0] == texts[1]
