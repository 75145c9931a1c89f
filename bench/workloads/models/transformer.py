"""The base Transformer of tf-models-official, 6 + 6 layers. Random weights.

TRANSFORMER searches for a target with 4 beams, one token a turn of a loop. TRANSFORMER_FORCED scores a target that is
given (teacher forcing). TRANSFORMER_TRAIN learns from such pairs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.source import stand_in
from bench.workloads.models.training import adam, save_step
from bench.workloads.models.weights import assign_random

SOURCE = (1, 16)  # batch, tokens
DECODED = 16  # tokens that the search finds at most
PACKAGES = ("tf-models-official==2.20.0", "gin-config==0.5.0", "tf-keras==2.21.0")


SMOOTHING = 0.1  # of labels, as in Vaswani et al. (2017)
LEARNING_RATE = 2e-5  # is one of their warm-up


@dataclass(frozen=True)
class Scale:
    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int


BASE = Scale(8000, 512, 6, 8, 2048)
TINY = Scale(40, 24, 1, 3, 40)


def _tokens(random: np.random.Generator, size: Size, scale: Scale = BASE) -> np.ndarray:
    return random.integers(2, scale.vocabulary, size).astype(np.int32)


def _decode_inputs(random: np.random.Generator, size: Size) -> Inputs:
    return {"source": _tokens(random, size)}


def _forced_inputs(random: np.random.Generator, size: Size, scale: Scale = BASE) -> Inputs:
    return {"source": _tokens(random, size, scale), "target": _tokens(random, size, scale)}


def _model(scale: Scale = BASE) -> Any:
    os.environ.update(TF_USE_LEGACY_KERAS="1")
    stand_in("scipy", "scipy.linalg")  # for Fourier layers
    import tensorflow as tf
    from official.nlp.modeling import models  # pyright: ignore[reportMissingImports]

    layers = {
        "num_layers": scale.layers,
        "num_attention_heads": scale.heads,
        "intermediate_size": scale.inner,
        "dropout_rate": 0.0,
        "attention_dropout_rate": 0.0,
        "intermediate_dropout": 0.0,
    }
    model = models.Seq2SeqTransformer(
        vocab_size=scale.vocabulary,
        embedding_width=scale.width,
        dropout_rate=0.0,
        padded_decode=True,
        decode_max_length=DECODED,
        beam_size=4,
        alpha=0.6,
        encoder_layer=models.TransformerEncoder(**layers),
        decoder_layer=models.TransformerDecoder(**layers),
        eos_id=1,
    )
    some = tf.fill([1, 4], 2)
    model({"inputs": some, "targets": some}, training=False)  # makes the variables
    return model


def _build_decode(destination: Path) -> None:
    model = _model()
    assign_random(model.variables)
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec(SOURCE, tf.int32)])
    def serve(source: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(model({"inputs": source}, training=False))

    tf.saved_model.save(model, str(destination), signatures=serve)


def _build_forced(destination: Path) -> None:
    model = _model()
    assign_random(model.variables)
    import tensorflow as tf

    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec])
    def serve(source: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": model({"inputs": source, "targets": target}, training=False)}

    tf.saved_model.save(model, str(destination), signatures=serve)


def _build_train(destination: Path, scale: Scale) -> None:
    model = _model(scale)
    assign_random(model.variables, scaled=True, before_relu=["intermediate/bias"])
    import tensorflow as tf
    from official.legacy.transformer.metrics import transformer_loss  # pyright: ignore[reportMissingImports]

    def loss(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        logits = model({"inputs": source, "targets": target}, training=True)
        return transformer_loss(logits, target, SMOOTHING, scale.vocabulary)

    batch = [tf.TensorSpec([None, None], tf.int32, name) for name in ("source", "target")]
    save_step(destination, loss, batch, model.variables, adam(LEARNING_RATE))


TRANSFORMER = Model(
    name="transformer",
    notes=f"6 + 6 layers of attention and layer norm, 4 beams, {DECODED} tokens in a loop; static; random weights",
    packages=PACKAGES,
    sizes=(SOURCE,),
    make_inputs=_decode_inputs,
    build=_build_decode,
)

TRANSFORMER_FORCED = Model(
    name="transformer-forced",
    notes="6 + 6 layers of attention and layer norm, target given; batch and length unknown; random weights",
    packages=PACKAGES,
    sizes=((2, 64), (1, 23)),
    make_inputs=_forced_inputs,
    build=_build_forced,
)

TRANSFORMER_TRAIN = Model(
    name="transformer-train",
    notes="a step of translation by Adam, 6 + 6 layers; batch and length unknown; random weights",
    packages=PACKAGES,
    mode="train",
    sizes=((2, 64), (1, 23)),
    make_inputs=partial(_forced_inputs, scale=BASE),
    build=partial(_build_train, scale=BASE),
    tolerance=5e-4,  # TensorFlow's own small gradients, of queries and keys, are 1e-4 from float64
)

TRANSFORMER_TRAIN_TINY = replace(
    TRANSFORMER_TRAIN,
    name="transformer-train-tiny",
    sizes=((2, 7),),
    make_inputs=partial(_forced_inputs, scale=TINY),
    build=partial(_build_train, scale=TINY),
    tolerance=1e-4,
)
