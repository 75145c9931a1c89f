"""What the AStitch paper reports (Zheng et al., ASPLOS 2022), as data: what our own figures are put beside.

All of it on an NVIDIA V100 (16 GB), with TensorFlow and XLA 1.15 and CUDA 10.0, means of 10 runs. Speed-ups are read
off the bars of a chart, so their last digit is the reader's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MACHINE = "a V100 with TensorFlow 1.15"


@dataclass(frozen=True)
class Kernels:
    """Launches a step: of memory-intensive kernels, and of copies and fills (memcpy, memset)."""

    xla: int
    astitch: int
    copies_xla: int
    copies_astitch: int


@dataclass(frozen=True)
class SpeedUp:
    """Over TensorFlow."""

    xla: float
    astitch: float

    @property
    def over_xla(self) -> float:
        return self.astitch / self.xla


@dataclass(frozen=True)
class PaperModel:
    """bench: the model's name here; a training step's has -train behind. batch, training_batch: as published; of the
    Transformer's training it is tokens."""

    name: str
    bench: str
    batch: int
    inference: SpeedUp
    kernels: Kernels
    training: SpeedUp | None = None
    training_batch: int | None = None


MODELS = (
    PaperModel("CRNN", "crnn", 1, SpeedUp(1.50, 2.04), Kernels(986, 297, 406, 388)),
    PaperModel("ASR", "asr", 1, SpeedUp(1.39, 2.45), Kernels(496, 218, 372, 203)),
    PaperModel("BERT", "bert", 200, SpeedUp(1.47, 1.65), Kernels(64, 26, 25, 10), SpeedUp(1.27, 1.28), 12),
    PaperModel(
        "Transformer", "transformer", 1, SpeedUp(1.48, 4.06), Kernels(10132, 2578, 5579, 1474),
        SpeedUp(1.23, 1.34), 4096,
    ),
    PaperModel("DIEN", "dien", 256, SpeedUp(0.74, 1.63), Kernels(2579, 811, 628, 422), SpeedUp(0.77, 1.41), 256),
)  # fmt: skip

# Means as the text of the paper gives them.
INFERENCE_OVER_TF, INFERENCE_OVER_XLA = 2.37, 1.84
TRAINING_OVER_TF, TRAINING_OVER_XLA = 1.34, 1.30
FEWER_KERNELS = 0.657

# CRNN, inference: milliseconds a step, under XLA and then idea by idea. The other keys are steps of `bench ablation`.
ABLATION_MS: Mapping[str, float] = {"xla": 23.95, "mapping": 21.98, "stitching": 20.45, "full": 17.64}


@dataclass(frozen=True)
class Traffic:
    """What a step reads from and writes to DRAM, in the units of the GPU's counters."""

    what: str
    rival: str
    rival_read: int
    rival_written: int
    read: int
    written: int


TRAFFIC = (
    Traffic("CRNN, inference", "XLA", 104_056_236, 63_793_690, 104_022_389, 16_302_582),
    Traffic("BERT", "Ansor", 49_826_724, 47_262_821, 33_038_694, 28_432_641),
)

# Seconds to compile a graph of 5,000 to 10,000 nodes.
COMPILE_S: Mapping[str, float] = {"xla": 30.0, "stitch": 90.0}
