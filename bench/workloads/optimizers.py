"""A step of an optimizer over all variables of a model: hundreds of small ops on tensors of very different sizes.

A shape is (layers, width) of a small transformer; what a step hands on as `x` is the powers of Adam's betas.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from bench.workloads.workload import Arrays, Prepared, Rival, Rng, Shape, Workload

BETAS = (0.9, 0.999)
LEARNING_RATE = 1e-3
DECAY = 0.01
EPSILON = 1e-7
LARGEST_NORM = 1.0


def variable_shapes(shape: Shape) -> tuple[Shape, ...]:
    """Of a transformer with a head for masked tokens: 16 a layer, and 12."""
    layers, width = shape
    vocabulary, longest = 32 * width, 2 * width
    vector, square = (width,), (width, width)
    norm = (vector, vector)
    dense = (square, vector)
    layer = (*dense * 4, *norm, (width, 4 * width), (4 * width,), (4 * width, width), vector, *norm)
    embeddings = ((vocabulary, width), (longest, width), (2, width), *norm)
    return (*embeddings, *layer * layers, *dense, *dense, *norm, (vocabulary,))


def adamw(powers: Any, *tensors: Any) -> Any:
    """AdamW after a clip by the global norm, in plain ops; returns variables, first moments and second moments."""
    variables, firsts, seconds, gradients = _quarters(tensors)
    clipped, _ = tf.clip_by_global_norm(gradients, LARGEST_NORM)
    rate = LEARNING_RATE * tf.sqrt(1.0 - powers[1]) / (1.0 - powers[0])
    new: list[tuple[Any, Any, Any]] = []
    for variable, first, second, gradient in zip(variables, firsts, seconds, clipped, strict=True):
        first += (gradient - first) * (1.0 - BETAS[0])
        second += (tf.square(gradient) - second) * (1.0 - BETAS[1])
        update = rate * first / (tf.sqrt(second) + EPSILON)
        new.append((variable - LEARNING_RATE * DECAY * variable - update, first, second))
    return (powers * BETAS, *(tensor for kind in zip(*new, strict=True) for tensor in kind))


def resource_apply_adam(powers: Any, *tensors: Any) -> Prepared:
    """The same on variables, by TensorFlow's own op, in place: it allocates nothing for its results."""
    *kinds, gradients = _quarters(tensors)
    variables, firsts, seconds = ([tf.Variable(t) for t in kind] for kind in kinds)

    def update(powers: Any, *gradients: Any) -> None:
        clipped, _ = tf.clip_by_global_norm(gradients, LARGEST_NORM)
        for variable, first, second, gradient in zip(variables, firsts, seconds, clipped, strict=True):
            variable.assign_sub(LEARNING_RATE * DECAY * variable)
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=LEARNING_RATE,
                beta1=BETAS[0],
                beta2=BETAS[1],
                epsilon=EPSILON,
                grad=gradient,
            )

    return Prepared(
        update,
        (powers, *gradients),
        outputs=lambda: (powers * BETAS, *(v.read_value() for v in (*variables, *firsts, *seconds))),
    )


def _quarters(tensors: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """Variables, first moments, second moments and gradients."""
    n = len(tensors) // 4
    return tuple(tensors[i * n : (i + 1) * n] for i in range(4))


def _tensors(rng: Rng, shape: Shape) -> Arrays:
    shapes = variable_shapes(shape)
    variables = (0.05 * rng.standard_normal(s) for s in shapes)
    firsts = (0.01 * rng.standard_normal(s) for s in shapes)
    seconds = (rng.uniform(0.5e-4, 2e-4, s) for s in shapes)
    gradients = (0.02 * rng.standard_normal(s) for s in shapes)
    return (*variables, *firsts, *seconds, *gradients)


LAYERS = 3
MODEL, SMALL_MODEL = (LAYERS, 256), (LAYERS, 32)  # 60 variables, of 4.7 million elements and of 80 thousand

OPTIMIZERS: tuple[Workload, ...] = (
    Workload(
        "adamw",
        adamw,
        start=lambda _rng, _shape: np.array(BETAS),
        given=_tensors,
        emits=3 * len(variable_shapes(MODEL)),
        alone=True,
        quick=(MODEL,),
        full=(MODEL, SMALL_MODEL),
        rival=Rival("ResourceApplyAdam", resource_apply_adam),
    ),
)
