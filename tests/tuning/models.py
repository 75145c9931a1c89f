"""A SavedModel with one cluster twice and another once, and races whose winner is chosen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tf_stitch.frontend import tuning

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tf_stitch.tuning.contest import Contest


def gelu(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x * (1.0 + tf.math.erf(x * 0.70710678))


class Layers(tf.Module):
    """x -> gelu -> matmul -> gelu -> matmul -> softmax"""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) * 0.1)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 64], tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        for _ in range(2):
            x = tf.einsum("bsi,ji->bsj", gelu(x), self.weights)
        return {"y": tf.nn.softmax(x * 0.5 + 0.1)}


def save(path: Path) -> Path:
    module = Layers()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path


def answer(path: Path, x: np.ndarray) -> np.ndarray:
    loaded = tf.saved_model.load(str(path))
    return loaded.signatures["serving_default"](x=tf.constant(x))["y"].numpy()


def rig(monkeypatch: pytest.MonkeyPatch, loses: Callable[[Contest], bool]) -> list[Contest]:
    """The kernels of contests for which `loses` holds sleep at each call. Returns the contests as they are raced."""
    raced: list[Contest] = []
    fair = tuning.competitors

    def rigged(artifact: Any, fallback: Any, contest: Contest) -> Any:
        raced.append(contest)
        made = fair(artifact, fallback, contest)
        if not loses(contest):
            return tuning.Competitors(made.stitched, lambda: time.sleep(0.02), made.nothing, made.copies)
        return tuning.Competitors(lambda: time.sleep(0.05), made.original, made.nothing, made.copies)

    monkeypatch.setattr(tuning, "competitors", rigged)
    return raced
