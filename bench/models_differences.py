"""How far the ways are apart: outputs of an inference from a reference, of a training step all that it makes.

A training step is compared over a few steps of each way's own copy, from the same variables: losses, gradients, then
the variables. Of some tensors no two programs agree on a digit: the gradient of a bias in front of a softmax or a batch
norm is 0 but for rounding, and what is behind a floor jumps. TensorFlow does not agree with itself there when its
variables are nudged by a rounding. An error that such a nudge explains is left out; a step has thousands of roundings
for the nudge's one, so it explains what is `_ROUNDINGS` times as large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench import models_errors, models_ways
from bench.models_case import Case
from bench.models_ways import Arrays, TrainingError, Way

STEPS = 3
_ROUNDINGS = 100
_EPSILON = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Differences:
    """worst: way → the largest error, and the output that has it.

    left_out: tensors whose error a nudge explains, of so many `tensors`.
    """

    worst: dict[str, tuple[float, str]]
    left_out: frozenset[str] = frozenset()
    tensors: int = 0


def differences(found: Mapping[str, Way], case: Case, right: Arrays | None) -> Differences:
    """right: the outputs in float64; None: TensorFlow's are right, as they are of training.

    Raises:
      TrainingError: where a training step changes no variable.
    """
    if case.mode == "train":
        return _of_training(found, case)
    outputs = {name: _arrays(way()) for name, way in found.items()}
    return Differences(
        {name: models_errors.worst(o, outputs["tf"] if right is None else right) for name, o in outputs.items()}
    )


def _of_training(found: Mapping[str, Way], case: Case) -> Differences:
    """A step of all at a time: gradients are large."""
    nudged = _nudged(found["tf"], case)
    others = {name: way for name, way in found.items() if name != "tf"}
    worst: dict[str, tuple[float, str]] = dict.fromkeys(found, (0.0, ""))
    left_out: set[str] = set()
    tensors: set[str] = set()

    def compare(right: Arrays, beside: Arrays, outputs: Mapping[str, Arrays]) -> None:
        tensors.update(right)
        explained = {name: _ROUNDINGS * models_errors.error(beside[name], right[name]) for name in right}
        for way, arrays in outputs.items():
            errors = models_errors.errors(arrays, right)
            unsteady = {name for name, e in errors.items() if case.tolerance < e <= explained.get(name, 0.0)}
            left_out.update(unsteady)
            worst[way] = max([worst[way], *((e, name) for name, e in errors.items() if name not in unsteady)])

    for way in found.values():
        way.loaded.start_again()
    for _ in range(STEPS):
        compare(_arrays(found["tf"]()), _arrays(nudged()), {name: _arrays(way()) for name, way in others.items()})
    right = _variables(found["tf"])
    if all(np.array_equal(a, b) for a, b in zip(right.values(), found["tf"].loaded.start, strict=True)):
        raise TrainingError(f"{STEPS} steps changed no variable; the signature has to assign to them.")
    compare(right, _variables(nudged), {name: _variables(way) for name, way in others.items()})
    return Differences(worst, frozenset(left_out), len(tensors))


def _nudged(way: Way, case: Case) -> Way:
    """The same way on a copy, each of whose numbers is a rounding up or down of what it was."""
    copy = models_ways.load(case, way.loaded.start)
    random = np.random.default_rng(0)
    for variable, value in zip(copy.variables, copy.start, strict=True):
        if value.dtype.kind == "f":
            signs = random.integers(0, 2, value.shape) * 2 - 1
            variable.assign((value * (1 + _EPSILON * signs)).astype(value.dtype))
    return Way("nudged", copy, models_ways.COMPILED["tf"](copy.step))


def _arrays(outputs: Mapping[str, Any]) -> Arrays:
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def _variables(way: Way) -> Arrays:
    return {f"variable {i}: {v.name}": v.numpy() for i, v in enumerate(way.loaded.variables)}
