"""What the compiler makes of some named clusters, word for word; and that these words compute the right thing.

A change that is meant shows in the diff of the files beside this one. To write them anew:

    TF_STITCH_UPDATE_GOLDENS=1 python -m pytest tests/golden
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden.clusters import BY_NAME, arguments_of, traced
from tests.lower.building import Lowered, lowered, toolchain
from tests.lower.comparison import assert_near
from tests.lower.compiled import Compiled, Host
from tests.lower.emulated import lowered_for_gpu
from tf_stitch.errors import BuildError
from tf_stitch.lower.printer import print_kernel, print_schedules
from tf_stitch.plan.printer import print_plan
from tf_stitch.plan.target import Target
from tf_stitch.toolchain.artifact import Source

BASELINE = "x86-64-v3"  # schedules depend on the machine
HERE = Path(__file__).parent
GOLDEN = (
    "layer_norm", "masked_softmax", "gelu_erf", "lstm", "split_heads", "merge_heads", "batch_norm", "max_and_softmax",
)  # fmt: skip
GOLDEN_FOR_GPU = (
    "layer_norm", "rms_norm", "masked_softmax", "log_softmax", "gelu_erf", "bias_activation", "lstm", "batch_norm",
    "l2_normalise", "chain",
)  # fmt: skip

runs_here = pytest.mark.skipif(
    not Target.baseline(BASELINE).features <= Target.this_cpu().features, reason=f"this CPU is no {BASELINE}"
)


def _lowered(name: str) -> Lowered:
    (cluster,) = traced(name).clustering.clusters
    return lowered(cluster.body, name, Target.baseline(BASELINE))


def _texts(name: str) -> dict[str, str]:
    """The golden files of a cluster, by suffix."""
    made = _lowered(name)
    decisions = f"{print_plan(made.plan)}\n{print_kernel(made.kernel)}\n{print_schedules(made.schedules)}"
    return {".txt": decisions, ".cc": made.source.text}


@pytest.mark.parametrize("name", GOLDEN)
def test_texts_are_as_they_were(name: str) -> None:
    for suffix, text in _texts(name).items():
        path = HERE / f"{name}{suffix}"
        if os.environ.get("TF_STITCH_UPDATE_GOLDENS") == "1":
            path.write_text(text)
        assert path.read_text() == text, f"{path.name} differs; see the head of this file"


@pytest.mark.parametrize("name", GOLDEN_FOR_GPU)
def test_texts_for_gpus_are_as_they_were(name: str) -> None:
    """For dims as a test gives them; tests/render/test_cuda.py runs kernels of these clusters."""
    (cluster,) = traced(name, static=True).clustering.clusters
    text = lowered_for_gpu(cluster.body, name).text
    path = HERE / f"{name}.cu"
    if os.environ.get("TF_STITCH_UPDATE_GOLDENS") == "1":
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} differs; see the head of this file"


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    """The golden sources, compiled."""
    sources = [Source(name, (HERE / f"{name}.cc").read_text()) for name in GOLDEN]
    return dict(zip(GOLDEN, toolchain(BASELINE).build(sources), strict=True))


@runs_here
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_sources_compute_what_tensorflow_does(name: str, kernels: dict[str, Any]) -> None:
    artifact = kernels[name]
    assert not isinstance(artifact, BuildError), artifact.report()
    named, found = BY_NAME[name], traced(name)
    (cluster,) = found.clustering.clusters
    kernel = Compiled(artifact.path, _lowered(name).kernel)
    for sizes in (named.static, *named.sizes):
        arguments = arguments_of(named, sizes, named.dtypes[0])
        by_name = {t.op.name: a for t, a in zip(found.concrete.inputs, arguments, strict=True)}
        ours = kernel([by_name[value.node] for value in cluster.inputs], Host(threads=2))
        results = tf.nest.flatten(found.concrete(*(tf.constant(a) for a in arguments)))
        of = {t.op.inputs[0].op.name: r.numpy() for t, r in zip(found.concrete.outputs, results, strict=True)}
        for value, mine in zip(cluster.outputs, ours, strict=True):
            assert_near(mine, np.asarray(of[value.node]), what=f"{name} {dict(sizes)}")
