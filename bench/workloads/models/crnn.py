"""CRNN of keras-ocr reads text: convolutions, a spatial transformer, four LSTMs in loops. Random weights.

CRNN_TRAIN is the package's own training model: its loss is connectionist temporal classification (CTC), of labels that
aren't aligned with the image, and its optimizer RMSprop.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models.fetch import wheel
from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.source import load_source, stand_in
from bench.workloads.models.training import LEARNING_RATE, save_step
from bench.workloads.models.weights import assign_random

PACKAGE = "keras-ocr==0.9.3"
PACKAGES = (PACKAGE, "tf-keras==2.21.0")
HEIGHT, WIDTH = 31, 200
CHARACTERS = 36

# What differs from the package's default.
FULL: dict[str, Any] = {"height": HEIGHT, "width": WIDTH}
TRAINED: dict[str, Any] = FULL | {"dropout": 0.0}
TINY: dict[str, Any] = {
    "height": 9,
    "width": 30,
    "dropout": 0.0,
    "filters": (3, 4, 5, 5, 6, 6, 7),
    "rnn_units": (6, 5),
}


def _inputs(random: np.random.Generator, size: Size, height: int = HEIGHT, width: int = WIDTH) -> Inputs:
    return {"images": random.random((*size, height, width, 1)).astype(np.float32)}


def _labelled(random: np.random.Generator, size: Size, parameters: dict[str, Any]) -> Inputs:
    """Labels fill the first columns, and the package wants all of them as floats."""
    (batch,) = size
    columns = _columns(parameters["width"])
    lengths = random.integers(1, columns // 2, (batch, 1))
    labels = random.integers(0, CHARACTERS, (batch, columns))
    return _inputs(random, size, parameters["height"], parameters["width"]) | {
        "labels": np.where(np.arange(columns) < lengths, labels, -1).astype(np.float32),
        "input_length": np.full((batch, 1), columns, np.float32),
        "label_length": lengths.astype(np.float32),
    }


def _columns(width: int) -> int:
    """What is read of an image: it is pooled to a quarter, and two steps are discarded."""
    return width // 4 - 2


def _models(parameters: dict[str, Any]) -> tuple[Any, Any]:
    """The model that reads, and the one that computes its loss; they share their variables."""
    os.environ.update(TF_USE_LEGACY_KERAS="1")
    stand_in("cv2", "keras_ocr", "keras_ocr.tools")  # they read and draw images
    recognition = load_source(wheel(PACKAGE) / "keras_ocr" / "recognition.py", package="keras_ocr")
    _, model, training_model, _ = recognition.build_model(
        recognition.DEFAULT_ALPHABET, **{**recognition.DEFAULT_BUILD_PARAMS, **parameters}
    )
    return model, training_model


def _build(destination: Path) -> None:
    model, _ = _models(FULL)
    assign_random(model.variables)
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, HEIGHT, WIDTH, 1], tf.float32)])
    def serve(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"characters": model(images, training=False)}

    tf.saved_model.save(model, str(destination), signatures=serve)


def _build_train(destination: Path, parameters: dict[str, Any]) -> None:
    model, training_model = _models(parameters)
    import tensorflow as tf
    import tf_keras  # pyright: ignore[reportMissingImports]

    def loss(*batch: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(training_model(batch, training=True))

    batch = [
        tf.TensorSpec([None, parameters["height"], parameters["width"], 1], tf.float32, "images"),
        tf.TensorSpec([None, _columns(parameters["width"])], tf.float32, "labels"),
        tf.TensorSpec([None, 1], tf.float32, "input_length"),
        tf.TensorSpec([None, 1], tf.float32, "label_length"),
    ]
    assign_random(model.variables, scaled=True, before_relu=[f"conv_{n}/bias" for n in range(1, 8)])
    optimizer = tf_keras.optimizers.RMSprop(LEARNING_RATE, jit_compile=False)
    save_step(destination, loss, batch, model.variables, optimizer)


CRNN = Model(
    name="crnn",
    notes="convolutions, a spatial transformer, four LSTMs of 48 steps; batch unknown; random weights",
    packages=PACKAGES,
    sizes=((1,), (3,)),
    bench_sizes=((8,),),
    make_inputs=_inputs,
    build=_build,
)

CRNN_TRAIN = Model(
    name="crnn-train",
    notes="a step of CTC by RMSprop: convolutions, batch norms, a spatial transformer, four LSTMs; batch unknown",
    packages=PACKAGES,
    mode="train",
    sizes=((1,), (3,)),
    make_inputs=partial(_labelled, parameters=TRAINED),
    build=partial(_build_train, parameters=TRAINED),
    # Rounding decides which of two equal pixels a pool takes, and a gradient goes there: so TensorFlow itself is 1e-2
    # from float64.
    tolerance=2e-2,
)

CRNN_TRAIN_TINY = replace(
    CRNN_TRAIN,
    name="crnn-train-tiny",
    sizes=((3,),),
    make_inputs=partial(_labelled, parameters=TINY),
    build=partial(_build_train, parameters=TINY),
    tolerance=1e-4,
)
