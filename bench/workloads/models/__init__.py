"""Real models as SavedModels, out of packages: `python -m bench.workloads.models list`.

Importing this needs neither TensorFlow nor any model's package.
"""

from __future__ import annotations

from bench.workloads.models.asr import ASR
from bench.workloads.models.basic_pitch import BASIC_PITCH
from bench.workloads.models.bert import BERT
from bench.workloads.models.crnn import CRNN
from bench.workloads.models.dien import DIEN
from bench.workloads.models.fer import FER
from bench.workloads.models.fetch import FetchError
from bench.workloads.models.guesslang import GUESSLANG
from bench.workloads.models.hed import HED
from bench.workloads.models.model import BuildError, Model
from bench.workloads.models.mtcnn import MTCNN
from bench.workloads.models.tfjs import TFJS
from bench.workloads.models.transformer import TRANSFORMER, TRANSFORMER_FORCED

MODELS: dict[str, Model] = {model.name: model for model in (BASIC_PITCH, BERT, MTCNN, HED, GUESSLANG, FER, *TFJS)}

# The five of the AStitch paper, untrained.
PAPER: dict[str, Model] = {model.name: model for model in (BERT, TRANSFORMER, ASR, CRNN, DIEN)}

ALL: dict[str, Model] = MODELS | PAPER | {TRANSFORMER_FORCED.name: TRANSFORMER_FORCED}

__all__ = ["ALL", "MODELS", "PAPER", "BuildError", "FetchError", "Model"]
