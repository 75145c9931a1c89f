"""Element-wise clusters: activations and what surrounds them, and long chains of ops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bench.workloads.inputs import around_one, channels, normal
from bench.workloads.norms import ROWS
from bench.workloads.workload import Arrays, Rng, Shape, Workload

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


def _gates(rng: Rng, shape: Shape) -> Arrays:
    batch, units = shape
    return (rng.standard_normal((batch, 4 * units)),)


POINTWISE: tuple[Workload, ...] = (
    Workload(
        "bias_gelu_erf",
        bias_gelu_erf,
        start=normal,
        given=lambda rng, s: (channels(rng, s),),
        quick=ROWS[:1],
        full=(*ROWS, (750_000, 32)),
    ),
    Workload(
        "bias_gelu_tanh",
        bias_gelu_tanh,
        start=normal,
        given=lambda rng, s: (channels(rng, s),),
        quick=ROWS[:1],
        full=ROWS,
    ),
    Workload(
        "bias_relu_residual",
        bias_relu_residual,
        start=normal,
        given=lambda rng, s: (channels(rng, s), 0.1 * normal(rng, s)),
        quick=ROWS[:1],
        full=ROWS,
    ),
    Workload(
        "lstm_pointwise",
        lstm_pointwise,
        start=normal,
        fresh=_gates,
        emits=1,
        given=lambda rng, s: (0.2 * rng.standard_normal(4 * s[-1]),),
        quick=((64, 1024),),
        full=((64, 1024), (512, 1024)),
    ),
    Workload(
        "mixed_ops_32",
        mixed_ops_32,
        start=normal,
        given=lambda rng, s: (around_one(rng, s),),
        weight=10,
        quick=((64, 768), (512, 768)),
        full=((64, 768), *ROWS),
    ),
    Workload(
        "prelu",
        prelu,
        start=normal,
        given=lambda rng, s: (rng.uniform(0.99, 1.01, s[-1]),),
        quick=((1, 64, 64, 32),),
        full=((1, 64, 64, 32), (8, 64, 64, 32)),
    ),
    Workload(
        "small_ops_200",
        small_ops_200,
        start=normal,
        # A slope above 1 would make this a tent map, and float32 a matter of luck.
        given=lambda rng, s: (rng.uniform(0.5, 0.95, s[-1]), channels(rng, s)),
        quick=((32, 16),),
        full=((32, 16),),
    ),
)
