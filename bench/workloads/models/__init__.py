"""Real models as SavedModels, out of packages: `python -m bench.workloads.models list`.

Importing this needs neither TensorFlow nor any model's package.
"""

from __future__ import annotations

from bench.workloads.models.asr import ASR, ASR_TRAIN, ASR_TRAIN_TINY
from bench.workloads.models.basic_pitch import BASIC_PITCH
from bench.workloads.models.bert import BERT, BERT_TRAIN, BERT_TRAIN_TINY
from bench.workloads.models.crnn import CRNN, CRNN_TRAIN, CRNN_TRAIN_TINY
from bench.workloads.models.dien import DIEN, DIEN_TRAIN, DIEN_TRAIN_TINY
from bench.workloads.models.fer import FER
from bench.workloads.models.fetch import FetchError
from bench.workloads.models.guesslang import GUESSLANG
from bench.workloads.models.hed import HED
from bench.workloads.models.model import BuildError, Model
from bench.workloads.models.mtcnn import MTCNN
from bench.workloads.models.tfjs import TFJS
from bench.workloads.models.transformer import (
    TRANSFORMER,
    TRANSFORMER_FORCED,
    TRANSFORMER_TRAIN,
    TRANSFORMER_TRAIN_TINY,
)

MODELS: dict[str, Model] = {model.name: model for model in (BASIC_PITCH, BERT, MTCNN, HED, GUESSLANG, FER, *TFJS)}

# The five of the AStitch paper, untrained.
PAPER: dict[str, Model] = {model.name: model for model in (BERT, TRANSFORMER, ASR, CRNN, DIEN)}

# A step of training of each, and the same so small that a test can run it.
TRAINING: dict[str, Model] = {
    model.name: model for model in (BERT_TRAIN, TRANSFORMER_TRAIN, ASR_TRAIN, CRNN_TRAIN, DIEN_TRAIN)
}
TINY: dict[str, Model] = {
    model.name: model
    for model in (BERT_TRAIN_TINY, TRANSFORMER_TRAIN_TINY, ASR_TRAIN_TINY, CRNN_TRAIN_TINY, DIEN_TRAIN_TINY)
}

ALL: dict[str, Model] = MODELS | PAPER | {TRANSFORMER_FORCED.name: TRANSFORMER_FORCED} | TRAINING

__all__ = ["ALL", "MODELS", "PAPER", "TINY", "TRAINING", "BuildError", "FetchError", "Model"]
