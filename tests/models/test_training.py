"""A few steps of training real models, stitched: losses, gradients and variables as TensorFlow's, step by step.

The models of the default run have the layers of the real ones, and are so small that a test can train them. The real
ones take minutes: `pytest -m exhaustive tests/models`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from bench import float64
from bench.workloads.models import TINY, TRAINING, FetchError, Model
from tests.models.nearness import FLOOR, distance, largest, spread

pytestmark = [pytest.mark.models, pytest.mark.timeout(900)]

STEPS = 3
LEARNED = 2e-4  # of a loss, or of a variable's largest value: what a step changes, and three steps, at least
# One of two results may be that much further off than the other, for one tensor of hundreds: of a bias whose gradient
# cancels to nothing, one order of adding up finds a 0, and another an ulp of what is added.
BY_CHANCE = 30
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Run:
    """Every tensor of a few steps on one batch: "step/output" of each step, "variable/name" after the last."""

    tensors: Arrays
    start: Arrays  # the variables before

    @property
    def losses(self) -> list[float]:
        return [float(self.tensors[f"{step}/loss"]) for step in range(STEPS)]


@dataclass(frozen=True)
class Trained:
    model: Model
    tensorflow: Run
    stitched: Run
    exact: Arrays
    stats: dict[str, Any]


def trained(model: Model, path: Path) -> Trained:
    tensorflow = run(model, path, tf.function)
    tf_stitch.reset_stats()
    stitched = run(model, path, tf_stitch.function)
    return Trained(model, tensorflow, stitched, in_float64(model, path), tf_stitch.stats())


def run(model: Model, path: Path, make: Callable[..., Any]) -> Run:
    """In a copy of the model of its own."""
    loaded = tf.saved_model.load(str(path))
    batch = {name: tf.constant(value) for name, value in model.inputs(seed=1).items()}

    @make
    def step(**batch: Any) -> Any:
        return loaded.signatures[model.signature](**batch)

    def variables() -> Arrays:
        return {f"variable/{v.name.removesuffix(':0')}": v.numpy() for v in loaded.variables}

    start = variables()
    assert len(start) == len(loaded.variables)
    steps = [step(**batch) for _ in range(STEPS)]
    outputs = {f"{n}/{name}": t.numpy() for n, tensors in enumerate(steps) for name, t in tensors.items()}
    return Run(outputs | variables(), start)


def in_float64(model: Model, path: Path) -> Arrays:
    widened = float64.from_saved_model(path, model.signature)
    outputs = {f"{n}/{name}": a for n in range(STEPS) for name, a in widened(model.inputs(seed=1)).items()}
    variables = {f"variable/{name}": value for name, value in widened.variables().items()}
    widened.close()
    return outputs | variables


@pytest.fixture(
    scope="module",
    params=[*TINY.values(), *(pytest.param(model, marks=pytest.mark.exhaustive) for model in TRAINING.values())],
    ids=lambda model: model.name,
)
def training(request: pytest.FixtureRequest) -> Trained:
    model: Model = request.param
    return trained(model, built(model))


def built(model: Model) -> Path:
    try:
        return model.path()
    except FetchError as error:
        pytest.skip(f"{model.name}: {error}")


def test_the_model_learns(training: Trained):
    """So much that tests for equality see whether a step knows of the one before."""
    losses = training.tensorflow.losses
    for before, after in pairwise(losses):
        assert abs(after - before) > LEARNED * abs(before), losses
    start, tensors = training.tensorflow.start, training.tensorflow.tensors
    gradients = sum(name.startswith("0/gradient/") for name in tensors)
    moved = [n for n, value in start.items() if distance(tensors[n], value) > LEARNED * largest(value)]
    assert gradients > 10
    assert len(moved) > gradients


def test_losses_gradients_and_variables_are_the_same(training: Trained):
    tensorflow, stitched = training.tensorflow.tensors, training.stitched.tensors
    assert stitched.keys() == tensorflow.keys() <= training.exact.keys()
    for name, original in tensorflow.items():
        found, exact = stitched[name], training.exact[name]
        assert (found.dtype, found.shape) == (original.dtype, original.shape), name
        if original.dtype.kind != "f":
            np.testing.assert_array_equal(found, original, err_msg=name)
        elif not only_rounding(original, exact):
            assert distance(found, original) <= training.model.tolerance * largest(original), name


def test_as_near_to_float64_as_tensorflow(training: Trained):
    """All tensors together; of hundreds of small ones, some are further off by chance."""
    errors: dict[str, list[float]] = {"original": [], "found": []}
    for name, original in training.tensorflow.tensors.items():
        if original.dtype.kind == "f":
            found, exact = training.stitched.tensors[name], training.exact[name]
            assert exact.dtype == np.float64, name
            assert spread(found, exact) <= BY_CHANCE * spread(original, exact) + FLOOR * largest(exact), name
            if not only_rounding(original, exact):
                errors["original"].append(spread(original, exact) / largest(exact))
                errors["found"].append(spread(found, exact) / largest(exact))
    original, found = (np.sqrt(np.mean(np.square(e))) for e in errors.values())
    assert found <= training.model.float64_factor * original


def test_every_step_ran_its_kernels(training: Trained):
    assert training.stats["calls"] > 0
    assert training.stats["calls"] % STEPS == 0
    assert not training.stats["fallbacks"]
    assert not training.stats["failed"]


def only_rounding(original: np.ndarray, exact: np.ndarray) -> bool:
    """Is a tensor 0, or 0 but for rounding, so that no digit of TensorFlow's own is right?

    Such is the gradient of a bias that comes before a softmax or a batch norm.
    """
    return distance(original, exact) >= 0.1 * largest(exact)
