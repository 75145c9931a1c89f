"""Small SavedModels for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf


class Block(tf.Module):
    """A layer norm, a matmul that is left to TensorFlow and a softmax; `gain` makes another model of its signature."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.gamma = tf.Variable(np.linspace(0.5, 1.5, 64, dtype=np.float32) * gain)
        self.weights = tf.Variable(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) * 0.1)

    @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32, name="x")])
    def serve(self, x):
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
        y = centred * tf.math.rsqrt(variance + 1e-3) * self.gamma
        return {"normal": y, "probabilities": tf.nn.softmax(tf.matmul(y, self.weights, transpose_b=True) * 0.5)}


class Reader(tf.Module):
    """Words and their places, normalised; the words of a step that is not known."""

    def __init__(self) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.words = tf.Variable(random.standard_normal((100, 64)).astype(np.float32))
        self.places = tf.constant(random.standard_normal((8, 64)).astype(np.float32))

    @tf.function(
        input_signature=[tf.TensorSpec([None, 8], tf.int32, name="ids"), tf.TensorSpec([], tf.int32, name="step")]
    )
    def serve(self, ids, step):
        x = tf.gather(self.words.read_value(), ids) + self.places
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        y = (x - mean) * tf.math.rsqrt(variance + 1e-3)
        return {"normal": y, "step": tf.tanh(tf.exp(-x[:, step]))}


class Product(tf.Module):
    """Nothing to stitch."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serve(self, x):
        return {"y": tf.matmul(x, x, transpose_b=True)}


class Words(tf.Module):
    """Inputs of several dtypes, one of them strings; integer and string outputs."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="words"),
            tf.TensorSpec([None], tf.int64, name="ids"),
            tf.TensorSpec([], tf.bool, name="upper"),
        ]
    )
    def serve(self, words, ids, upper):
        changed = tf.cond(upper, lambda: tf.strings.upper(words), lambda: tf.strings.lower(words))
        return {"words": changed, "double": ids * 2}


def save(module: tf.Module, path: Path) -> Path:
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path
