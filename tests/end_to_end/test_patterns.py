"""What models have between their matmuls, stitched: one kernel each, as near to float64 as TensorFlow is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.end_to_end.stitched import check, normal

S = tf.TensorSpec
SIZES = ((1, 1), (3, 31), (0, 7), (65, 33), (5, 1023), (4097, 17), (2, 30_000))


def layer_norm(x: Any, residual: Any, gamma: Any, beta: Any) -> Any:
    t = x + residual
    mean = tf.reduce_mean(t, -1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(t, mean), -1, keepdims=True)
    return (t - mean) * tf.math.rsqrt(variance + 1e-5) * gamma + beta


def rms_norm(x: Any, gamma: Any) -> Any:
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * gamma


def gelu(x: Any, bias: Any) -> Any:
    x = tf.nn.bias_add(x, bias)
    return 0.5 * x * (1.0 + tf.math.erf(x / 2.0**0.5))


def lstm(z: Any, bias: Any, c: Any) -> Any:
    i, j, o, f = tf.split(z + bias, 4, axis=1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
    return tf.tanh(c) * tf.sigmoid(o), c


def chain(x: Any) -> Any:
    for _ in range(4):
        x = tf.tanh(x) * 1.5 + 0.1
        x = tf.math.log(tf.exp(-tf.abs(x)) + 1.0) - 0.3
        x = tf.maximum(x, -1.0) * x - 0.5
    return x


def split_heads(x: Any, bias: Any) -> Any:
    return tf.transpose(tf.reshape(x + bias, [-1, 16, 4, 8]), [0, 2, 1, 3]) * 2.0


def merge_heads(x: Any, residual: Any) -> Any:
    return tf.reshape(tf.transpose(x * 2.0, [0, 2, 1, 3]), [-1, 32]) + residual


PATTERNS: dict[str, tuple[Any, list[Any], list[list[tuple[int, ...]]]]] = {
    "layer norm": (
        layer_norm, [S([None, None]), S([None, None]), S([None]), S([None])],
        [[(n, k), (n, k), (k,), (k,)] for n, k in SIZES],
    ),
    "layer norm of a sequence": (
        layer_norm, [S([None, None, 96]), S([None, None, 96]), S([96]), S([96])],
        [[(n, s, 96), (n, s, 96), (96,), (96,)] for n, s in ((1, 1), (3, 31), (2, 0))],
    ),
    "rms norm": (rms_norm, [S([None, 100]), S([100])], [[(n, 100), (100,)] for n in (1, 7, 0)]),
    "masked softmax": (
        lambda x, mask: tf.nn.softmax(x * 0.125 + (1.0 - mask) * -1e4),
        [S([None, 3, None, None]), S([None, 1, 1, None])],
        [[(b, 3, q, k), (b, 1, 1, k)] for b, q, k in ((1, 128, 128), (2, 5, 7), (3, 16, 33), (1, 1, 1))],
    ),
    "log softmax": (lambda x: tf.nn.log_softmax(x * 2.0), [S([None, 1000])], [[(n, 1000)] for n in (1, 9)]),
    "gelu": (gelu, [S([None, 3072]), S([3072])], [[(n, 3072), (3072,)] for n in (1, 9)]),
    "gelu of short rows": (gelu, [S([None, 32]), S([32])], [[(n, 32), (32,)] for n in (1, 9, 1000)]),
    "gelu by tanh": (
        lambda x, b: tf.nn.gelu(x + b, approximate=True), [S([None, 300]), S([300])],
        [[(n, 300), (300,)] for n in (1, 9)],
    ),
    "l2 normalise": (lambda x: tf.math.l2_normalize(x, -1) * 3.0, [S([None, 128])], [[(n, 128)] for n in (1, 9)]),
    "lstm": (lstm, [S([None, 256]), S([256]), S([None, 64])], [[(n, 256), (256,), (n, 64)] for n in (1, 9, 64)]),
    "chain": (chain, [S([None, None])], [[s] for s in ((1, 1), (9, 77), (64, 768))]),
    "prelu": (
        lambda x, a: tf.nn.relu(x) - a * tf.nn.relu(-x), [S([1, 16, 16, 24]), S([24])], [[(1, 16, 16, 24), (24,)]],
    ),
    "prelu of odd channels": (
        lambda x, a: tf.nn.relu(x) - a * tf.nn.relu(-x), [S([None, 5, 5, 3]), S([3])],
        [[(n, 5, 5, 3), (3,)] for n in (1, 3, 40)],
    ),
    "split heads": (split_heads, [S([None, 32]), S([32])], [[(16 * n, 32), (32,)] for n in (1, 3)]),
    "merge heads": (
        merge_heads, [S([None, 4, 16, 8]), S([None, 32])], [[(n, 4, 16, 8), (16 * n, 32)] for n in (1, 3)],
    ),
    "transpose beside itself": (lambda x: x * 2.0 + tf.transpose(x * 3.0), [S([50, 50])], [[(50, 50)]]),
    "sum of all": (lambda x: tf.reduce_sum(x * x + 1.0), [S([None, 33])], [[(n, 33)] for n in (1, 9, 0, 4000)]),
    "row statistics": (
        lambda x: (tf.reduce_max(x * 2.0, -1), tf.nn.softmax(x * 2.0)), [S([None, 33])], [[(n, 33)] for n in (1, 9)],
    ),
    "row and its mean": (
        lambda x: (x - tf.reduce_mean(x, -1, keepdims=True)) / (tf.math.reduce_std(x, -1, keepdims=True) + 1.0),
        [S([None, None])], [[s] for s in SIZES if 0 not in s],
    ),
    "slices of a softmax": (
        lambda x: (tf.nn.softmax(x)[:, 1:3] * 2.0 + 1.0, -tf.sigmoid(-tf.nn.softmax(x))), [S([None, 7])],
        [[(n, 7)] for n in (1, 40)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(name: str) -> None:
    function, signature, shapes = PATTERNS[name]
    argument_lists = [[normal(*s, seed=i) for i, s in enumerate(one)] for one in shapes]
    some = None if name in ("slices of a softmax", "row statistics") else 1
    check(function, *argument_lists, signature=signature, kernels=some, ulps=8.0)


def test_batch_norm_in_inference() -> None:
    def function(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
        outputs = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=scale, offset=offset, mean=mean, variance=variance, is_training=False
        )
        return tf.nn.relu(outputs.y) * 2.0 + 0.5

    parameters = [normal(24, seed=1), normal(24, seed=2), normal(24, seed=3), np.abs(normal(24, seed=4))]
    signature = [S([None, 8, 8, 24]), *[S([24])] * 4]
    check(function, *([normal(n, 8, 8, 24), *parameters] for n in (1, 3)), signature=signature, exact=False, ulps=16.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, tf.bfloat16.as_numpy_dtype])
@pytest.mark.parametrize("name", ["layer norm", "masked softmax", "gelu", "lstm", "split heads"])
def test_pattern_in_other_dtypes(name: str, dtype: Any) -> None:
    function, signature, shapes = PATTERNS[name]
    signature = [S(s.shape, dtype) for s in signature]
    arguments = [normal(*s, seed=i).astype(dtype) for i, s in enumerate(shapes[1])]
    check(function, arguments, signature=signature, ulps=64.0 if dtype == np.float64 else 4.0)


def test_integers() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (9, 33))
    for dtype in (np.int32, np.int64):
        check(lambda x: tf.where(x > 3, x * x + 1, -x), [x.astype(dtype)], signature=[S([None, 33], dtype)])


def test_bools() -> None:
    check(
        lambda x, y: tf.logical_and(x > 0.0, y < x), [normal(9, 33), normal(9, 33, seed=1)],
        signature=[S([None, 33])] * 2, exact=False,
    )  # fmt: skip


def test_static_shapes_are_the_same() -> None:
    check(layer_norm, [normal(5, 96), normal(5, 96, seed=1), normal(96), normal(96, seed=2)])
    check(gelu, [normal(5, 96), normal(96)])
