"""Gradients: what stands between the matmuls and convolutions of a backward pass.

A chain hands the gradient down, as a backward pass does from layer to layer, and every layer has activations and
parameters of its own. What follows for a layer's parameters (a sum over the batch) is emitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from bench.workloads.inputs import around_one, channels, normal
from bench.workloads.norms import EPSILON, IMAGES, ODD_COLUMNS, ROWS, batchnorm_plain
from bench.workloads.workload import Arrays, Rng, Shape, Workload


def layernorm_grad(dy: Any, x: Any, gamma: Any, beta: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch((x, gamma, beta))
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        y = centred * tf.math.rsqrt(variance + 1e-6) * gamma + beta
    return tuple(tape.gradient(y, (x, gamma, beta), output_gradients=dy))


def residual_relu_grad(dy: Any, dskip: Any, y: Any) -> Any:
    """Of the ReLU in a residual net that made `y`: a skip connection brings a gradient, too. Without it there would be
    nothing to sum: what a batch norm hands down sums to 0."""
    return tf.raw_ops.ReluGrad(gradients=dy + dskip, features=y)


def batchnorm_fused_grad(dy: Any, dskip: Any, y: Any, x: Any, scale: Any, mean: Any, variance: Any) -> Any:
    """y = relu(batchnorm(x)), `mean` and `variance` are what the forward pass keeps."""
    dx, dscale, doffset, *_ = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=residual_relu_grad(dy, dskip, y),
        x=x,
        scale=scale,
        reserve_space_1=mean,
        reserve_space_2=variance,
        reserve_space_3=[],
        epsilon=EPSILON,
        is_training=True,
    )
    return dx, dscale, doffset


def batchnorm_fused_grad_reference(dy: Any, dskip: Any, y: Any, x: Any, scale: Any, mean: Any, variance: Any) -> Any:
    batch = list(range(len(x.shape) - 1))
    dh = residual_relu_grad(dy, dskip, y)
    inverse = tf.math.rsqrt(variance + EPSILON)
    normal_x = (x - mean) * inverse
    doffset, dscale = tf.reduce_sum(dh, batch), tf.reduce_sum(dh * normal_x, batch)
    count = float(np.prod(x.shape[:-1]))
    return scale * inverse * (dh - doffset / count - normal_x * (dscale / count)), dscale, doffset


def batchnorm_plain_grad(dy: Any, dskip: Any, y: Any, x: Any, scale: Any, offset: Any) -> Any:
    """y = relu(batchnorm(x)) is what the forward pass keeps; mean and variance are computed again."""
    with tf.GradientTape() as tape:
        tape.watch((x, scale, offset))
        before_relu, *_ = batchnorm_plain(x, scale, offset)
    dh = residual_relu_grad(dy, dskip, y)
    return tuple(tape.gradient(before_relu, (x, scale, offset), output_gradients=dh))


def softmax_grad(dy: Any, y: Any) -> Any:
    """From what the forward pass keeps. In place of attention's 1/√d stands the length of a row, since a softmax's
    gradients are smaller by that, and a chain of them would vanish."""
    return (dy - tf.reduce_sum(dy * y, axis=-1, keepdims=True)) * y * float(y.shape[-1])


def bias_relu_grad(dy: Any, y: Any) -> Any:
    """Of a layer's activation and bias; that of the bias is a sum of columns."""
    dh = tf.raw_ops.ReluGrad(gradients=dy, features=y)
    return dh, tf.raw_ops.BiasAddGrad(out_backprop=dh)


def softmax_xent(logits: Any, labels: Any) -> Any:
    """The mean loss and its gradient, which is the next copy's logits; `labels` are a teacher's probabilities."""
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return tape.gradient(loss, logits), loss


def sparse_softmax_xent(logits: Any, labels: Any) -> Any:
    """The same with the numbers of the right classes."""
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return tape.gradient(loss, logits), loss


def _activations_and_parameters(rng: Rng, shape: Shape) -> Arrays:
    return normal(rng, shape), around_one(rng, shape), channels(rng, shape)


def _around_batchnorm(rng: Rng, shape: Shape) -> tuple[np.ndarray, ...]:
    """The gradient by a skip connection; and y = relu(batchnorm(x)), x, scale, offset, mean, variance as they were."""
    x, scale, offset = normal(rng, shape), around_one(rng, shape), channels(rng, shape)
    batch = tuple(range(len(shape) - 1))
    mean, variance = x.mean(batch), x.var(batch)
    y = np.maximum((x - mean) / np.sqrt(variance + EPSILON) * scale + offset, 0)
    return normal(rng, shape) + 0.5, y, x, scale, offset, mean, variance


def _kept_by_fused(rng: Rng, shape: Shape) -> Arrays:
    dskip, y, x, scale, _, mean, variance = _around_batchnorm(rng, shape)
    return dskip, y, x, scale, mean, variance


def _kept_by_plain(rng: Rng, shape: Shape) -> Arrays:
    return _around_batchnorm(rng, shape)[:5]


def _probabilities(rng: Rng, shape: Shape) -> Arrays:
    """Rather even ones, so that no element of a chain grows or vanishes."""
    powers = np.exp(0.5 * normal(rng, shape))
    return (powers / powers.sum(-1, keepdims=True),)


def _mostly_positive(rng: Rng, shape: Shape) -> Arrays:
    """After a ReLU. Few zeros, or none of a chain's gradients would be left."""
    return (np.maximum(normal(rng, shape) + 2, 0),)


def _classes(rng: Rng, shape: Shape) -> Arrays:
    return (rng.randint(shape[-1], size=shape[0]),)


CLASSES = ((64, 8000), (64, 30_000), (4097, 1023))

TRAINING: tuple[Workload, ...] = (
    Workload(
        "layernorm_grad",
        layernorm_grad,
        start=normal,
        fresh=_activations_and_parameters,
        emits=2,
        quick=ROWS[:1],
        full=(*ROWS, *ODD_COLUMNS),
    ),
    Workload(
        "batchnorm_fused_grad",
        batchnorm_fused_grad,
        start=normal,
        fresh=_kept_by_fused,
        emits=2,
        quick=IMAGES[:1],
        full=IMAGES,
        reference_step=batchnorm_fused_grad_reference,
    ),
    Workload(
        "batchnorm_plain_grad",
        batchnorm_plain_grad,
        start=normal,
        fresh=_kept_by_plain,
        emits=2,
        quick=IMAGES[:1],
        full=IMAGES,
    ),
    Workload(
        "softmax_grad",
        softmax_grad,
        start=normal,
        fresh=_probabilities,
        quick=ROWS[:1],
        full=(*ROWS, (8, 12, 128, 128), (64, 30_000)),
    ),
    Workload(
        "bias_relu_grad",
        bias_relu_grad,
        start=normal,
        fresh=_mostly_positive,
        emits=1,
        quick=ROWS[:1],
        full=(*ROWS, *ODD_COLUMNS),
    ),
    Workload(
        "softmax_xent", softmax_xent, start=normal, fresh=_probabilities, emits=1, quick=CLASSES[:1], full=CLASSES
    ),
    Workload(
        "sparse_softmax_xent",
        sparse_softmax_xent,
        start=normal,
        fresh=_classes,
        emits=1,
        quick=CLASSES[:1],
        full=CLASSES,
    ),
)
