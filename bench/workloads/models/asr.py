"""Speech2Text of transformers (TFSpeech2Text…): speech recognition, 6 encoder and 3 decoder layers. Random weights.

It traces with static shapes only, so one size is built.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.pins import TRANSFORMERS
from bench.workloads.models.training import save_step
from bench.workloads.models.weights import assign_random

VOCABULARY = 1000
FEATURES = 80
SIZE = (1, 400, 32)  # batch, frames of 10 ms, tokens decoded so far

LAYERS: dict[str, Any] = {"vocab_size": VOCABULARY, "encoder_layers": 6, "decoder_layers": 3}
TRAINED: dict[str, Any] = LAYERS | {
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
TINY: dict[str, Any] = TRAINED | {
    "vocab_size": 40,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "d_model": 24,
    "conv_channels": 20,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 28,
    "decoder_ffn_dim": 28,
}
TINY_SIZE = (2, 21, 5)


def _inputs(random: np.random.Generator, size: Size, vocabulary: int = VOCABULARY) -> Inputs:
    batch, frames, tokens = size
    return {
        "features": random.standard_normal((batch, frames, FEATURES)).astype(np.float32),
        "tokens": random.integers(3, vocabulary, (batch, tokens)).astype(np.int32),
    }


def _spoken(random: np.random.Generator, size: Size, vocabulary: int) -> Inputs:
    """The labels are the tokens one further on."""
    batch, frames, tokens = size
    given = _inputs(random, (batch, frames, tokens + 1), vocabulary)
    text = given["tokens"]
    return given | {"tokens": text[:, :-1], "labels": text[:, 1:]}


def _model(config: dict[str, Any]) -> Any:
    os.environ.update(TF_USE_LEGACY_KERAS="1", USE_TORCH="0", HF_HUB_OFFLINE="1")
    from transformers import Speech2TextConfig  # pyright: ignore[reportMissingImports]
    from transformers.models.speech_to_text.modeling_tf_speech_to_text import (  # pyright: ignore[reportMissingImports]
        TFSpeech2TextForConditionalGeneration,
    )

    return TFSpeech2TextForConditionalGeneration(Speech2TextConfig(**config))


def _specs(size: Size, *names: str) -> list[Any]:
    import tensorflow as tf

    batch, frames, tokens = size
    features = tf.TensorSpec([batch, frames, FEATURES], tf.float32, "features")
    return [features, *(tf.TensorSpec([batch, tokens], tf.int32, name) for name in names)]


def _build(destination: Path) -> None:
    model = _model(LAYERS)
    import tensorflow as tf

    @tf.function(input_signature=_specs(SIZE, "tokens"))
    def serve(features: tf.Tensor, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": model(input_features=features, decoder_input_ids=tokens, training=False).logits}

    serve.get_concrete_function()
    assign_random(model.variables)
    tf.saved_model.save(model, str(destination), signatures=serve)


def _build_train(destination: Path, config: dict[str, Any], size: Size) -> None:
    model = _model(config)
    import tensorflow as tf

    @tf.function(input_signature=(specs := _specs(size, "tokens", "labels")))
    def loss(features: tf.Tensor, tokens: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        outputs = model(input_features=features, decoder_input_ids=tokens, labels=labels, training=True)
        return tf.reshape(outputs.loss, [])

    loss.get_concrete_function()  # makes the variables
    assign_random(model.variables, scaled=True, before_relu=["fc1/bias"])
    save_step(destination, loss.python_function, specs, model.variables)


ASR = Model(
    name="asr",
    notes="convolutions, attention and layer norms of encoder and decoder; static; random weights",
    packages=TRANSFORMERS,
    sizes=(SIZE,),
    make_inputs=_inputs,
    build=_build,
)

ASR_TRAIN = Model(
    name="asr-train",
    notes="a step of speech recognition by Adam, 6 encoder and 3 decoder layers; static; random weights",
    packages=TRANSFORMERS,
    mode="train",
    sizes=(SIZE,),
    make_inputs=partial(_spoken, vocabulary=VOCABULARY),
    build=partial(_build_train, config=TRAINED, size=SIZE),
    tolerance=1e-4,
)

ASR_TRAIN_TINY = replace(
    ASR_TRAIN,
    name="asr-train-tiny",
    sizes=(TINY_SIZE,),
    make_inputs=partial(_spoken, vocabulary=TINY["vocab_size"]),
    build=partial(_build_train, config=TINY, size=TINY_SIZE),
)
