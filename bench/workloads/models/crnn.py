"""CRNN of keras-ocr reads text: convolutions, a spatial transformer, four LSTMs in loops. Random weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bench.workloads.models.fetch import wheel
from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.source import load_source, stand_in
from bench.workloads.models.weights import assign_random

PACKAGE = "keras-ocr==0.9.3"
HEIGHT, WIDTH = 31, 200


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    return {"images": random.random((*size, HEIGHT, WIDTH, 1)).astype(np.float32)}


def _build(destination: Path) -> None:
    os.environ.update(TF_USE_LEGACY_KERAS="1")
    stand_in("cv2", "keras_ocr", "keras_ocr.tools")  # they read and draw images
    import tensorflow as tf

    recognition = load_source(wheel(PACKAGE) / "keras_ocr" / "recognition.py", package="keras_ocr")
    parameters = {**recognition.DEFAULT_BUILD_PARAMS, "height": HEIGHT, "width": WIDTH}
    _, model, _, _ = recognition.build_model(recognition.DEFAULT_ALPHABET, **parameters)
    assign_random(model.variables)

    @tf.function(input_signature=[tf.TensorSpec([None, HEIGHT, WIDTH, 1], tf.float32)])
    def serve(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"characters": model(images, training=False)}

    tf.saved_model.save(model, str(destination), signatures=serve)


CRNN = Model(
    name="crnn",
    notes="convolutions, a spatial transformer, four LSTMs of 48 steps; batch unknown; random weights",
    packages=(PACKAGE, "tf-keras==2.21.0"),
    sizes=((1,), (3,)),
    make_inputs=_inputs,
    build=_build,
)
