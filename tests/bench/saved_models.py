"""Small SavedModels for the tests of `bench models`, and the tasks of its processes run in this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bench import models_case, models_worker
from bench.models_case import Case
from bench.models_process import Failure

WIDTH = 24


class Layer(tf.Module):
    """A product, a layer norm and a softmax, of any batch."""

    def __init__(self):
        super().__init__()
        random = np.random.default_rng(0)
        self.weights = tf.Variable(random.standard_normal((WIDTH, WIDTH)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32)])
    def serve(self, x):
        y = tf.matmul(x, self.weights, transpose_b=True)  # left to TensorFlow
        centred = y - tf.reduce_mean(y, -1, keepdims=True)
        normal = centred * tf.math.rsqrt(tf.reduce_mean(centred * centred, -1, keepdims=True) + 1e-5)
        return {"probability": tf.nn.softmax(normal * 3.0), "normal": normal}


class Product(tf.Module):
    """Nothing to stitch."""

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32)])
    def serve(self, x):
        return {"y": tf.matmul(x, x, transpose_b=True)}


class Texts(tf.Module):
    """XLA has no strings."""

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32)])
    def serve(self, x):
        y = tf.exp(-x) * tf.tanh(x) + tf.sqrt(tf.abs(x))
        return {"y": y, "text": tf.strings.as_string(tf.cast(tf.round(x), tf.int32))}


def training(rate=0.1, attached=True, ignored=False):
    """A step of gradient descent. attached: whether the saved object has the variables. ignored: a variable without
    influence."""
    weights = [tf.Variable(tf.ones([WIDTH, 8]) * 0.1, name="w"), tf.Variable(tf.zeros([8]), name="b")]
    if ignored:
        weights.append(tf.Variable(tf.ones([1]) * 0.3, name="ignored"))

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32)])
    def serve(x):
        with tf.GradientTape() as tape:
            y = tf.nn.softmax(sum(weights[1:], tf.matmul(x, weights[0])))
            loss = tf.reduce_mean(tf.square(y - 0.5 * tf.tanh(x[:, :8])))
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(rate * gradient)
        return {"loss": loss} | {f"gradient/{i}": g for i, g in enumerate(gradients)}

    name = "variables" if attached else "others"
    return tf.train.Checkpoint(serve=serve, **{name: weights})


def saved(module: Any, path: Path) -> Path:
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return path


def case_of(path: Path, scratch: Path, mode: str = "infer", tolerance: float = 1e-5) -> Case:
    x = np.random.default_rng(1).standard_normal((5, WIDTH)).astype(np.float32)
    case = Case(path.name, mode, "5x24", str(path), "serving_default", "", tolerance, 2.0)
    return models_case.with_inputs(case, {"x": x}, scratch)


def in_this_process(task: str, asked: dict[str, Any], cache: Path, timeout_s: float) -> Any:
    """Stands for `models_process.run`: a test can patch what the tasks do."""
    try:
        return models_worker.TASKS[task](**asked)
    except Exception as error:  # noqa: BLE001
        return Failure(models_worker.sentence(error))
