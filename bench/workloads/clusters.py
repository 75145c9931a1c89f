"""The cluster workloads: what stands between the matmuls and convolutions of transformers, recurrent and
convolutional nets, each a function that one kernel can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from bench.workloads.workload import Arrays, Rng, Shape, Workload

# ---- normalisations ------------------------------------------------------------------------------


def residual_layernorm(x: Any, residual: Any, gamma: Any, beta: Any) -> Any:
    h = x + residual
    centred = h - tf.reduce_mean(h, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-6) * gamma + beta


def rms_norm(x: Any, gamma: Any) -> Any:
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + 1e-6) * gamma


def l2_normalise(x: Any) -> Any:
    return tf.math.l2_normalize(x, axis=-1)


def batchnorm_relu(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    y, *_ = tf.raw_ops.FusedBatchNormV3(
        x=x, scale=scale, offset=offset, mean=mean, variance=variance, epsilon=1e-3, is_training=False
    )
    return tf.nn.relu(y)


def batchnorm_relu_reference(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    return tf.nn.relu((x - mean) * (scale * tf.math.rsqrt(variance + 1e-3)) + offset)


# ---- softmaxes -----------------------------------------------------------------------------------


def masked_softmax(x: Any, mask: Any) -> Any:
    """As in attention: `mask` is 0 where a key counts, and -1e9 where it does not."""
    return tf.nn.softmax(x * 0.125 + mask)


def log_softmax(x: Any) -> Any:
    return tf.nn.log_softmax(x * 0.5)


# ---- activations ---------------------------------------------------------------------------------


def bias_gelu_erf(x: Any, bias: Any) -> Any:
    return tf.nn.gelu(tf.nn.bias_add(x, bias), approximate=False)


def bias_gelu_tanh(x: Any, bias: Any) -> Any:
    return tf.nn.gelu(tf.nn.bias_add(x, bias), approximate=True)


def bias_relu_residual(x: Any, bias: Any, residual: Any) -> Any:
    return tf.nn.relu(tf.nn.bias_add(x, bias)) + residual


def prelu(x: Any, alpha: Any) -> Any:
    """As exported models spell it."""
    return tf.nn.relu(x) - alpha * tf.nn.relu(-x)


def lstm_pointwise(cell: Any, gates: Any, bias: Any) -> Any:
    """What an LSTM cell does after its matmuls; gates are [batch, 4·units]."""
    i, f, g, o = tf.split(tf.nn.bias_add(gates, bias), 4, axis=-1)
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
    return cell, tf.sigmoid(o) * tf.tanh(cell)


# ---- chains of element-wise ops ------------------------------------------------------------------


def mixed_ops_32(x: Any, slope: Any) -> Any:
    """32 ops, 12 of them transcendental."""
    for shift in (0.5, 0.75, 1.0, 1.25):
        t = tf.tanh(x * slope)
        u = tf.exp(t - shift)
        v = tf.math.log(u + 1.5)
        x = v * t - u
    return x


def small_ops_200(x: Any, slope: Any, bias: Any) -> Any:
    """200 cheap ops."""
    for k in range(40):
        x = tf.abs(tf.minimum(tf.maximum(x * slope + bias, -1.0 - k / 64), 1.0 + k / 64))
    return x


# ---- inputs --------------------------------------------------------------------------------------


def _normal(rng: Rng, shape: Shape) -> np.ndarray:
    return rng.standard_normal(shape)


def _channels(rng: Rng, shape: Shape) -> np.ndarray:
    return 0.2 * rng.standard_normal(shape[-1])


def _around_one(rng: Rng, shape: Shape) -> np.ndarray:
    return 1 + _channels(rng, shape)


def _mask(rng: Rng, shape: Shape) -> Arrays:
    """A quarter of the keys masked, the same for every query of a batch element."""
    keep_leading = 1 if len(shape) > 2 else 0
    mask_shape = shape[:keep_leading] + (1,) * (len(shape) - keep_leading - 1) + shape[-1:]
    return (np.where(rng.uniform(size=mask_shape) < 0.25, -1e9, 0.0),)


def _batchnorm_parameters(rng: Rng, shape: Shape) -> Arrays:
    """Scale below deviation, so that a chain settles. Each layer has its own, or what they alone decide (a square root
    and a division per channel) would be done once for the chain."""
    scale, offset, mean = rng.uniform(0.5, 0.9, shape[-1]), 0.5 + _channels(rng, shape), _channels(rng, shape)
    return scale, offset, mean, rng.uniform(0.9, 1.2, shape[-1])


def _gates(rng: Rng, shape: Shape) -> Arrays:
    batch, units = shape
    return (rng.standard_normal((batch, 4 * units)),)


ROWS = ((512, 768), (4096, 1024))
SMALL = ((512, 768),)

WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "residual_layernorm",
        residual_layernorm,
        start=_normal,
        given=lambda rng, s: (_normal(rng, s), _around_one(rng, s), _channels(rng, s)),
        quick=ROWS,
        full=(*ROWS, (750_000, 32), (64, 30_000), (1, 1_000_000)),
    ),
    Workload(
        "rms_norm",
        rms_norm,
        start=_normal,
        given=lambda rng, s: (_around_one(rng, s),),
        quick=SMALL,
        full=ROWS,
    ),
    Workload("masked_softmax", masked_softmax, start=_normal, given=_mask, quick=SMALL, full=(*ROWS, (16384, 1024))),
    Workload(
        "attention_softmax",
        masked_softmax,
        start=_normal,
        given=_mask,
        quick=((1, 12, 128, 128),),
        full=((1, 12, 128, 128), (8, 12, 128, 128)),
    ),
    Workload("log_softmax", log_softmax, start=_normal, quick=SMALL, full=(*ROWS, (64, 30_000))),
    Workload(
        "bias_gelu_erf",
        bias_gelu_erf,
        start=_normal,
        given=lambda rng, s: (_channels(rng, s),),
        quick=SMALL,
        full=(*ROWS, (750_000, 32)),
    ),
    Workload(
        "bias_gelu_tanh",
        bias_gelu_tanh,
        start=_normal,
        given=lambda rng, s: (_channels(rng, s),),
        quick=SMALL,
        full=ROWS,
    ),
    Workload(
        "bias_relu_residual",
        bias_relu_residual,
        start=_normal,
        given=lambda rng, s: (_channels(rng, s), 0.1 * _normal(rng, s)),
        quick=SMALL,
        full=ROWS,
    ),
    Workload("l2_normalise", l2_normalise, start=_normal, quick=SMALL, full=ROWS),
    Workload(
        "lstm_pointwise",
        lstm_pointwise,
        start=_normal,
        fresh=_gates,
        given=lambda rng, s: (0.2 * rng.standard_normal(4 * s[-1]),),
        quick=((64, 1024),),
        full=((64, 1024), (512, 1024)),
    ),
    Workload(
        "mixed_ops_32",
        mixed_ops_32,
        start=_normal,
        given=lambda rng, s: (_around_one(rng, s),),
        weight=10,
        quick=((64, 768), (512, 768)),
        full=((64, 768), *ROWS),
    ),
    Workload(
        "prelu",
        prelu,
        start=_normal,
        given=lambda rng, s: (rng.uniform(0.99, 1.01, s[-1]),),
        quick=((1, 64, 64, 32),),
        full=((1, 64, 64, 32), (8, 64, 64, 32)),
    ),
    Workload(
        "batchnorm_relu",
        batchnorm_relu,
        start=_normal,
        fresh=_batchnorm_parameters,
        quick=((1, 56, 56, 64),),
        full=((1, 56, 56, 64), (8, 56, 56, 64)),
        reference_step=batchnorm_relu_reference,
    ),
    Workload(
        "small_ops_200",
        small_ops_200,
        start=_normal,
        # A slope above 1 would make this a tent map, and float32 a matter of luck.
        given=lambda rng, s: (rng.uniform(0.5, 0.95, s[-1]), _channels(rng, s)),
        quick=((32, 16),),
        full=((32, 16),),
    ),
)


def find(name: str) -> Workload:
    return next(w for w in WORKLOADS if w.name == name)
