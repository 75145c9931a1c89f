"""basic-pitch: which notes sound when (Spotify, ICASSP 2022). Trained, and a SavedModel in its own wheel."""

from __future__ import annotations

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.signals import music

SAMPLES = 43844  # two seconds at 22,050 Hz: the model's window


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    (batch,) = size
    return {"input_2": music(random, batch, SAMPLES)[..., None].astype(np.float32)}


BASIC_PITCH = Model(
    name="basic-pitch",
    notes="harmonic constant-Q transform by strided convolutions, log, normalisation, a small CNN",
    packages=("basic-pitch==0.4.0",),
    shipped="basic_pitch/saved_models/icassp_2022/nmp",
    sizes=((1,), (3,)),
    bench_sizes=((4,),),
    make_inputs=_inputs,
)
