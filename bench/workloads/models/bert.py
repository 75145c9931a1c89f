"""BERT-base of transformers (TFBertModel), 12 layers, any batch and length. Seeded random weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size

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
    random = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(_weights(random, variable.name, variable.shape))

    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec])
    def serve(input_ids: tf.Tensor, attention_mask: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = model(input_ids, attention_mask=attention_mask, training=False)
        return {"hidden": outputs.last_hidden_state, "pooled": outputs.pooler_output}

    tf.saved_model.save(model, str(destination), signatures=serve)


def _weights(random: np.random.Generator, name: str, shape: Size) -> np.ndarray:
    """BERT's own initial spread, but no bias is exactly 0 and no gain exactly 1: training moves them too."""
    values = random.normal(0, 0.02, shape)
    return (values + 1 if "gamma" in name else values).astype(np.float32)


BERT = Model(
    name="bert-base",
    notes="12 layers of attention, GELU and layer norm; batch and length unknown; random weights",
    packages=(
        "transformers==4.57.1",
        "tf-keras==2.21.0",
        "huggingface-hub==0.36.2",
        "tokenizers==0.22.2",
        "safetensors==0.8.0",
        "regex==2026.9.29",
        "tqdm==4.70.1",
        "pyyaml==6.0.4",
        "filelock==4.3.1",
        "fsspec==2026.9.0",
    ),
    sizes=((1, 128), (2, 17)),
    make_inputs=_inputs,
    build=_build,
)
