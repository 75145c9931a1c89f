"""BERT of transformers (TFBert…), any batch and length. Seeded random weights.

BERT is BERT-base with its 12 layers. BERT_TRAIN learns to fill in masked tokens (MLM), with 2 layers.
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

VOCABULARY = 30522
MASK, SHARE_MASKED = 103, 0.15
NO_LABEL = -100

TRAINED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "num_hidden_layers": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
TINY: dict[str, Any] = TRAINED | {
    "vocab_size": 150,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}


def _inputs(random: np.random.Generator, size: Size, vocabulary: int = VOCABULARY) -> Inputs:
    batch, length = size
    ends = random.integers(max(1, length // 2), length + 1, (batch, 1))
    return {
        "input_ids": random.integers(0, vocabulary, size).astype(np.int32),
        "attention_mask": (np.arange(length) < ends).astype(np.int32),
    }


def _masked(random: np.random.Generator, size: Size, vocabulary: int) -> Inputs:
    """Some tokens are masked, of each text the first one at least, and are the labels."""
    given = _inputs(random, size, vocabulary)
    masked = (random.random(size) < SHARE_MASKED) & (given["attention_mask"] == 1)
    masked[:, 0] = True
    tokens = given["input_ids"]
    labels = np.where(masked, tokens, NO_LABEL).astype(np.int32)
    return given | {"input_ids": np.where(masked, MASK, tokens).astype(np.int32), "labels": labels}


def _model(name: str, **config: Any) -> Any:
    """A model of transformers; config: what differs from BERT-base."""
    os.environ.update(TF_USE_LEGACY_KERAS="1", USE_TORCH="0", HF_HUB_OFFLINE="1")
    from transformers import BertConfig  # pyright: ignore[reportMissingImports]
    from transformers.models.bert import modeling_tf_bert  # pyright: ignore[reportMissingImports]

    model = getattr(modeling_tf_bert, name)(BertConfig(**config))
    model.build_in_name_scope()
    return model


def _build(destination: Path) -> None:
    model = _model("TFBertModel", vocab_size=VOCABULARY)
    assign_random(model.variables)
    import tensorflow as tf

    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec])
    def serve(input_ids: tf.Tensor, attention_mask: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = model(input_ids, attention_mask=attention_mask, training=False)
        return {"hidden": outputs.last_hidden_state, "pooled": outputs.pooler_output}

    tf.saved_model.save(model, str(destination), signatures=serve)


def _build_train(destination: Path, config: dict[str, Any]) -> None:
    model = _model("TFBertForMaskedLM", **config)
    assign_random(model.variables, scaled=True)
    import tensorflow as tf

    def loss(input_ids: tf.Tensor, attention_mask: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        outputs = model(input_ids, attention_mask=attention_mask, labels=labels, training=True)
        return tf.reshape(outputs.loss, [])

    names = ("input_ids", "attention_mask", "labels")
    save_step(destination, loss, [tf.TensorSpec([None, None], tf.int32, name) for name in names], model.variables)


BERT = Model(
    name="bert-base",
    notes="12 layers of attention, GELU and layer norm; batch and length unknown; random weights",
    packages=TRANSFORMERS,
    sizes=((1, 128), (2, 17)),
    bench_sizes=((8, 128),),
    make_inputs=_inputs,
    build=_build,
)

BERT_TRAIN = Model(
    name="bert-train",
    notes="a step of masked language modelling by Adam, 2 layers; batch and length unknown; random weights",
    packages=TRANSFORMERS,
    mode="train",
    sizes=((4, 64), (3, 17)),
    make_inputs=partial(_masked, vocabulary=VOCABULARY),
    build=partial(_build_train, config=TRAINED),
    tolerance=1e-4,
)

BERT_TRAIN_TINY = replace(
    BERT_TRAIN,
    name="bert-train-tiny",
    sizes=((2, 9),),
    make_inputs=partial(_masked, vocabulary=TINY["vocab_size"]),
    build=partial(_build_train, config=TINY),
)
