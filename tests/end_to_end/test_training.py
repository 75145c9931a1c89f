"""Training steps under `stitching()`: losses, gradients and variables as TensorFlow's, after three steps."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import kernel_calls, normal

BATCH, SEQUENCE, WIDTH, HEADS, CLASSES = 6, 10, 32, 4, 5


def weights() -> dict[str, tf.Variable]:
    shapes = {
        "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH),
        "logits": (WIDTH, CLASSES),
    }  # fmt: skip
    found = {n: tf.Variable(normal(*s, seed=i) / np.float32(s[0] ** 0.5)) for i, (n, s) in enumerate(shapes.items())}
    for name, size in (("up", 4 * WIDTH), ("down", WIDTH), ("logits", CLASSES)):
        found[f"{name}_bias"] = tf.Variable(normal(size, seed=7) / 10)
    for name in ("first", "second"):
        found[f"{name}_gamma"] = tf.Variable(1 + normal(WIDTH, seed=8) / 10)
        found[f"{name}_beta"] = tf.Variable(normal(WIDTH, seed=9) / 10)
    return found


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * gamma + beta


def transformer(x: Any, w: dict[str, Any]) -> Any:
    """One layer of a transformer and a classifier."""
    y = layer_norm(x, w["first_gamma"], w["first_beta"])
    q, k, v = tf.split(tf.matmul(y, w["qkv"]), 3, -1)
    q, k, v = (tf.transpose(tf.reshape(t, [BATCH, SEQUENCE, HEADS, -1]), [0, 2, 1, 3]) for t in (q, k, v))
    attention = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * (WIDTH / HEADS) ** -0.5)
    y = tf.reshape(tf.transpose(tf.matmul(attention, v), [0, 2, 1, 3]), [BATCH, SEQUENCE, WIDTH])
    x = x + tf.matmul(y, w["out"])
    y = layer_norm(x, w["second_gamma"], w["second_beta"])
    y = tf.nn.gelu(tf.matmul(y, w["up"]) + w["up_bias"])
    x = x + tf.matmul(y, w["down"]) + w["down_bias"]
    return tf.matmul(tf.reduce_mean(x, 1), w["logits"]) + w["logits_bias"]


def train(*, stitched: bool) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Losses, the first step's gradients, and the variables in the end."""
    w = weights()
    momentum = {n: tf.Variable(tf.zeros_like(v)) for n, v in w.items()}

    @tf.function(autograph=False)
    def step(x: Any, labels: Any) -> tuple[Any, list[Any]]:
        with tf.GradientTape() as tape:
            logits = transformer(x, w)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            loss += 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in w.values()])
        gradients = tape.gradient(loss, list(w.values()))
        for (name, variable), gradient in zip(w.items(), gradients, strict=True):
            momentum[name].assign(0.9 * momentum[name] + gradient)
            variable.assign_sub(0.1 * momentum[name])
        return loss, gradients

    x = tf.constant(normal(BATCH, SEQUENCE, WIDTH, seed=11))
    labels = tf.constant(np.arange(BATCH) % CLASSES)
    losses: list[Any] = []
    first: list[Any] = []
    with tf_stitch.stitching() if stitched else contextlib.nullcontext():
        for _ in range(3):
            loss, gradients = step(x, labels)
            losses.append(loss.numpy())
            first = first or [g.numpy() for g in gradients]
    return losses, first, {n: v.numpy() for n, v in w.items()}


def test_a_transformer_learns_the_same() -> None:
    results: list[Any] = []
    assert kernel_calls(lambda: results.append(train(stitched=True))) > 0
    losses, gradients, variables = results[0]
    expected_losses, expected_gradients, expected_variables = train(stitched=False)
    assert expected_losses[2] < expected_losses[0]
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for mine, wanted in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    for name, wanted in expected_variables.items():
        np.testing.assert_allclose(variables[name], wanted, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.nn.softmax(x * 2.0),
        lambda x: tf.nn.log_softmax(x * 2.0),
        lambda x: tf.nn.gelu(x) * 2.0,
        lambda x: tf.nn.gelu(x, approximate=True) * 2.0,
        lambda x: layer_norm(x, 1.5, 0.5),
        lambda x: tf.math.l2_normalize(x, -1) * 3.0,
        lambda x: tf.nn.elu(x) + tf.nn.selu(x) + tf.nn.relu6(x) + tf.nn.leaky_relu(x) + tf.nn.softplus(x),
        lambda x: tf.tanh(x) * tf.sigmoid(x) / (1.0 + tf.exp(-x)) + tf.sqrt(tf.abs(x) + 1.0),
        lambda x: tf.reduce_max(x * 2.0, -1) + tf.reduce_sum(tf.square(x), -1),
        lambda x: tf.transpose(tf.reshape(tf.nn.relu(x), [3, 4, -1]), [1, 0, 2]) * 2.0,
        lambda x: tf.where(x > 0.0, x * x, -x) * tf.clip_by_value(x, -1.0, 1.0),
    ],
)
def test_gradients_are_the_same(function: Any) -> None:
    def gradients(make: Any, x: Any) -> Any:
        @make
        def both(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
                loss = tf.reduce_sum(y * tf.cos(tf.cast(tf.range(tf.shape(y)[-1]), y.dtype)))
            return loss, tape.gradient(loss, x)

        return both(x)

    x = normal(12, 28)
    exact = gradients(tf.function, tf.constant(x.astype(np.float64)))[1].numpy()
    plain = gradients(tf.function, tf.constant(x))[1].numpy()
    stitched = gradients(tf_stitch.function, tf.constant(x))[1].numpy()
    error, allowed = np.abs(stitched - exact).max(), np.abs(plain - exact).max()
    assert error <= max(2 * allowed, 4e-7 * np.abs(exact).max())


def test_a_gradient_through_a_stitched_function() -> None:
    """The tape is outside: the forward function runs stitched and is differentiated by TensorFlow."""
    function = lambda x: tf.nn.softmax(tf.nn.gelu(x) * 2.0)  # noqa: E731
    found: list[Any] = []
    for make in (tf.function, tf_stitch.function):
        x = tf.constant(normal(5, 33))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(make(function)(x)[:, :7])
        found.append(tape.gradient(y, x).numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_a_model_in_half_precision(dtype: str) -> None:
    """A Keras model under a mixed policy: predictions stitched, against the same in float32."""
    tf.keras.utils.set_random_seed(3)
    policy = tf.keras.mixed_precision.Policy(dtype)

    def model(policy: Any) -> Any:
        layers = tf.keras.layers
        return tf.keras.Sequential(
            [
                layers.Dense(64, dtype=policy), layers.Activation("gelu", dtype=policy),
                layers.LayerNormalization(dtype=policy),
                layers.Dense(8, dtype=policy), layers.Softmax(dtype=policy),
            ]
        )  # fmt: skip

    half, single = model(policy), model("float32")
    for made in (half, single):
        made.build([None, 32])
    half.set_weights(single.get_weights())
    x = tf.constant(normal(40, 32))
    plain, stitched = (make(half, autograph=False)(x) for make in (tf.function, tf_stitch.function))
    assert stitched.dtype == plain.dtype
    exact = single(x).numpy()
    error, allowed = (np.abs(np.asarray(y, np.float64) - exact).max() for y in (stitched, plain))
    assert error <= max(2 * allowed, 2**-9)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("signature", [None, [tf.TensorSpec([None] * 4), tf.TensorSpec([None, CLASSES])]])
def test_batch_normalisation_and_cross_entropy(layout: str, signature: Any) -> None:
    """The images, the running averages and the gradients of a step, as TensorFlow's fused kernels have them."""
    scale, offset, before = (tf.constant(normal(CLASSES, seed=i) / 4 + 1) for i in range(3))

    def step(x: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch((x, scale, offset))
            y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
                x, scale, offset, before, before, 1e-3, layout, is_training=True, exponential_avg_factor=0.1
            )
            logits = tf.reduce_mean(tf.nn.relu(y) * 2.0, [1, 2] if layout == "NHWC" else [2, 3])
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(labels), logits))
        return loss, y, mean, variance, tape.gradient(loss, (x, scale, offset))

    shape = (BATCH, 7, 9, CLASSES) if layout == "NHWC" else (BATCH, CLASSES, 7, 9)
    feeds = tf.constant(normal(*shape, seed=4)), tf.constant(normal(BATCH, CLASSES, seed=5))
    plain, stitched = (
        make(step, input_signature=signature, autograph=False) for make in (tf.function, tf_stitch.function)
    )
    results: list[Any] = []
    assert kernel_calls(lambda: results.extend(tf.nest.flatten(stitched(*feeds)))) > 0
    for mine, wanted in zip(results, tf.nest.flatten(plain(*feeds)), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
