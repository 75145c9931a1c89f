"""Speech2Text of transformers (TFSpeech2Text…): speech recognition, 6 encoder and 3 decoder layers. Random weights.

It traces with static shapes only, so one size is built.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.pins import TRANSFORMERS
from bench.workloads.models.weights import assign_random

VOCABULARY = 1000
FEATURES = 80
SIZE = (1, 400, 32)  # batch, frames of 10 ms, tokens decoded so far


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    batch, frames, tokens = size
    return {
        "features": random.standard_normal((batch, frames, FEATURES)).astype(np.float32),
        "tokens": random.integers(3, VOCABULARY, (batch, tokens)).astype(np.int32),
    }


def _build(destination: Path) -> None:
    os.environ.update(TF_USE_LEGACY_KERAS="1", USE_TORCH="0", HF_HUB_OFFLINE="1")
    import tensorflow as tf
    from transformers import Speech2TextConfig  # pyright: ignore[reportMissingImports]
    from transformers.models.speech_to_text.modeling_tf_speech_to_text import (  # pyright: ignore[reportMissingImports]
        TFSpeech2TextForConditionalGeneration,
    )

    config = Speech2TextConfig(vocab_size=VOCABULARY, encoder_layers=6, decoder_layers=3)
    model = TFSpeech2TextForConditionalGeneration(config)
    batch, frames, tokens = SIZE
    specs = [
        tf.TensorSpec([batch, frames, FEATURES], tf.float32, "features"),
        tf.TensorSpec([batch, tokens], tf.int32, "tokens"),
    ]

    @tf.function(input_signature=specs)
    def serve(features: tf.Tensor, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": model(input_features=features, decoder_input_ids=tokens, training=False).logits}

    serve.get_concrete_function()
    assign_random(model.variables)
    tf.saved_model.save(model, str(destination), signatures=serve)


ASR = Model(
    name="asr",
    notes="convolutions, attention and layer norms of encoder and decoder; static; random weights",
    packages=TRANSFORMERS,
    sizes=(SIZE,),
    make_inputs=_inputs,
    build=_build,
)
