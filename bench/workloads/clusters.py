"""The cluster workloads: what stands between the matmuls and convolutions of transformers, recurrent and
convolutional nets, forward and backward, and in an optimizer's step."""

from __future__ import annotations

from bench.workloads.norms import NORMS
from bench.workloads.optimizers import OPTIMIZERS
from bench.workloads.pointwise import POINTWISE
from bench.workloads.softmaxes import SOFTMAXES
from bench.workloads.training import TRAINING
from bench.workloads.workload import Workload

WORKLOADS: tuple[Workload, ...] = (*NORMS, *SOFTMAXES, *POINTWISE, *TRAINING, *OPTIMIZERS)


def find(name: str) -> Workload:
    return next(w for w in WORKLOADS if w.name == name)
