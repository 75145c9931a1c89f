"""The cluster workloads: what stands between the matmuls and convolutions of transformers, recurrent and
convolutional nets, forward and backward, and in an optimizer's step."""

from __future__ import annotations

from bench.workloads.norms import NORMS
from bench.workloads.optimizers import OPTIMIZERS
from bench.workloads.pointwise import POINTWISE
from bench.workloads.products import PRODUCTS
from bench.workloads.softmaxes import SOFTMAXES
from bench.workloads.training import TRAINING
from bench.workloads.workload import Workload

WORKLOADS: tuple[Workload, ...] = (*NORMS, *SOFTMAXES, *POINTWISE, *TRAINING, *OPTIMIZERS)
# With those that are limited by arithmetic as well: kernels for GPUs, and other compilers' ways, leave products alone.
ON_CPUS: tuple[Workload, ...] = (*WORKLOADS, *PRODUCTS)


def find(name: str) -> Workload:
    return next(w for w in ON_CPUS if w.name == name)
