"""BERT-base of transformers (TFBertModel), 12 layers, any batch and length. Seeded random weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.pins import TRANSFORMERS
from bench.workloads.models.weights import assign_random

VOCABULARY = 30522


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    batch, length = size
    ends = random.integers(max(1, length // 2), length + 1, (batch, 1))
    return {
        "input_ids": random.integers(0, VOCABULARY, size).astype(np.int32),
        "attention_mask": (np.arange(length) < ends).astype(np.int32),
    }


def _build(destination: Path) -> None:
    os.environ.update(TF_USE_LEGACY_KERAS="1", USE_TORCH="0", HF_HUB_OFFLINE="1")
    import tensorflow as tf
    from transformers import BertConfig  # pyright: ignore[reportMissingImports]
    from transformers.models.bert.modeling_tf_bert import TFBertModel  # pyright: ignore[reportMissingImports]

    model = TFBertModel(BertConfig(vocab_size=VOCABULARY))
    model.build_in_name_scope()
    assign_random(model.variables)

    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec])
    def serve(input_ids: tf.Tensor, attention_mask: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = model(input_ids, attention_mask=attention_mask, training=False)
        return {"hidden": outputs.last_hidden_state, "pooled": outputs.pooler_output}

    tf.saved_model.save(model, str(destination), signatures=serve)


BERT = Model(
    name="bert-base",
    notes="12 layers of attention, GELU and layer norm; batch and length unknown; random weights",
    packages=TRANSFORMERS,
    sizes=((1, 128), (2, 17)),
    make_inputs=_inputs,
    build=_build,
)
