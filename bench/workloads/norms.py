"""Normalisations, of rows and of channels, and the moments that they are made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from bench.workloads.inputs import around_one, channels, normal
from bench.workloads.workload import Arrays, Rng, Shape, Workload

EPSILON = 1e-3


def residual_layernorm(x: Any, residual: Any, gamma: Any, beta: Any) -> Any:
    h = x + residual
    centred = h - tf.reduce_mean(h, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-6) * gamma + beta


def rms_norm(x: Any, gamma: Any) -> Any:
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + 1e-6) * gamma


def l2_normalise(x: Any) -> Any:
    return tf.math.l2_normalize(x, axis=-1)


def group_norm(x: Any, gamma: Any, beta: Any) -> Any:
    """At most 32 groups of channels, each normalised over the image."""
    batch, height, width, of_all = x.shape
    groups = min(32, of_all // 2)
    grouped = tf.reshape(x, [batch, height, width, groups, of_all // groups])
    mean, variance = tf.nn.moments(grouped, [1, 2, 4], keepdims=True)
    return tf.reshape((grouped - mean) * tf.math.rsqrt(variance + 1e-5), x.shape) * gamma + beta


def instance_norm(x: Any, gamma: Any, beta: Any) -> Any:
    mean, variance = tf.nn.moments(x, [1, 2], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * gamma + beta


def batchnorm_relu(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    y, *_ = tf.raw_ops.FusedBatchNormV3(
        x=x, scale=scale, offset=offset, mean=mean, variance=variance, epsilon=EPSILON, is_training=False
    )
    return tf.nn.relu(y)


def batchnorm_relu_reference(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    return tf.nn.relu((x - mean) * (scale * tf.math.rsqrt(variance + EPSILON)) + offset)


def batchnorm_fused(x: Any, scale: Any, offset: Any) -> Any:
    """In training: with the mean and the variance of the batch, which it returns too."""
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=x, scale=scale, offset=offset, mean=[], variance=[], epsilon=EPSILON, is_training=True
    )
    return y, mean, variance


def batchnorm_fused_reference(x: Any, scale: Any, offset: Any) -> Any:
    """The op returns the variance as an estimate from a sample, and normalises by that of the batch."""
    y, mean, variance = batchnorm_plain(x, scale, offset)
    count = np.prod(x.shape[:-1])
    return y, mean, variance * (count / (count - 1))


def batchnorm_plain(x: Any, scale: Any, offset: Any) -> Any:
    """In training, in primitives."""
    mean, variance = tf.nn.moments(x, list(range(len(x.shape) - 1)))
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, EPSILON), mean, variance


def column_moments(bias: Any, x: Any) -> Any:
    """Of each channel, after a layer's bias: the next bias is the mean."""
    h = tf.nn.bias_add(x, bias)
    return tf.nn.moments(h, list(range(len(x.shape) - 1)))


def row_moments(offset: Any, x: Any) -> Any:
    """Of each row less an offset of its own: the next offset is the mean."""
    return tf.nn.moments(x + offset, [-1], keepdims=True)


def _batchnorm_parameters(rng: Rng, shape: Shape) -> Arrays:
    """Scale below deviation, so that a chain settles. Each layer has its own, or what they alone decide (a square root
    and a division per channel) would be done once for the chain."""
    scale, offset, mean = rng.uniform(0.5, 0.9, shape[-1]), 0.5 + channels(rng, shape), channels(rng, shape)
    return scale, offset, mean, rng.uniform(0.9, 1.2, shape[-1])


def _scale_and_offset(rng: Rng, shape: Shape) -> Arrays:
    return around_one(rng, shape), channels(rng, shape)


def _one(rng: Rng, shape: Shape) -> Arrays:
    return (normal(rng, shape),)


ROWS = ((512, 768), (4096, 1024))
ODD_ROWS = ((4097, 1023), (64, 30_000), (32, 750_000), (750_000, 32), (1, 1_000_000))
ODD_COLUMNS = ((4097, 1023), (64, 30_000), (750_000, 32))
IMAGES = ((4, 28, 28, 128), (32, 28, 28, 256))

NORMS: tuple[Workload, ...] = (
    Workload(
        "residual_layernorm",
        residual_layernorm,
        start=normal,
        given=lambda rng, s: (normal(rng, s), around_one(rng, s), channels(rng, s)),
        quick=ROWS,
        full=(*ROWS, *ODD_ROWS),
    ),
    Workload("rms_norm", rms_norm, start=normal, given=lambda rng, s: (around_one(rng, s),), quick=ROWS[:1], full=ROWS),
    Workload("l2_normalise", l2_normalise, start=normal, quick=ROWS[:1], full=ROWS),
    Workload(
        "row_moments",
        row_moments,
        start=lambda rng, s: normal(rng, (s[0], 1)),
        fresh=_one,
        emits=1,
        quick=((4097, 1023),),
        full=(*ROWS, *ODD_ROWS),
    ),
    Workload(
        "group_norm",
        group_norm,
        start=normal,
        given=_scale_and_offset,
        quick=((1, 32, 32, 320),),
        full=((1, 32, 32, 320), (4, 64, 64, 128)),
    ),
    Workload(
        "instance_norm",
        instance_norm,
        start=normal,
        given=_scale_and_offset,
        quick=((1, 64, 64, 128),),
        full=((1, 64, 64, 128), (8, 64, 64, 64)),
    ),
    Workload(
        "batchnorm_relu",
        batchnorm_relu,
        start=normal,
        fresh=_batchnorm_parameters,
        quick=((1, 56, 56, 64),),
        full=((1, 56, 56, 64), (8, 56, 56, 64)),
        reference_step=batchnorm_relu_reference,
    ),
    Workload(
        "batchnorm_fused",
        batchnorm_fused,
        start=normal,
        given=_scale_and_offset,
        emits=2,
        quick=IMAGES[:1],
        full=IMAGES,
        reference_step=batchnorm_fused_reference,
    ),
    Workload(
        "batchnorm_plain",
        batchnorm_plain,
        start=normal,
        given=_scale_and_offset,
        emits=2,
        quick=IMAGES[:1],
        full=IMAGES,
    ),
    Workload(
        "column_moments",
        column_moments,
        start=channels,
        fresh=_one,
        emits=1,
        quick=IMAGES[:1],
        full=(*IMAGES, *ROWS, *ODD_COLUMNS),
    ),
)
