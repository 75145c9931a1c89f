"""What `bench models` and `bench compare` measure: a SavedModel's signature, its inputs, how exact it has to be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models import Model
from bench.workloads.models.model import Size

TRAINING_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    """A model at a size, as every process that measures it is told.

    mode: "infer", or "train": then a call is a step, which changes the variables of the SavedModel's object.
    inputs: an .npz with an array for each argument of the signature.
    tolerance: what an output may differ from the reference, relative to its largest value.
    float64_factor: how much further from float64 than TensorFlow a stitched model may be.
    """

    name: str
    mode: str
    size: str
    path: str
    signature: str
    inputs: str
    tolerance: float
    float64_factor: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.inputs, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}

    @property
    def file_name(self) -> str:
        """For files about it."""
        return re.sub(r"[^\w.-]+", "_", f"{self.name}-{self.size}")

    @property
    def megabytes(self) -> float:
        """Of the SavedModel on disk."""
        return sum(file.stat().st_size for file in Path(self.path).rglob("*") if file.is_file()) / 1e6


def sizes_of(model: Model) -> Iterator[Size]:
    """The sizes that are measured: the model's first, and what else it asks for."""
    yield from dict.fromkeys((model.sizes[0], *model.bench_sizes))


def case_of(model: Model, size: Size, scratch: Path) -> Case:
    """The model at a size, its inputs written to `scratch`.

    Raises:
      FetchError, BuildError: where the model cannot be had.
    """
    training = model.mode == "train"
    case = Case(
        name=model.name,
        mode=model.mode,
        size="x".join(map(str, size)),
        path=str(model.path()),
        signature=model.signature,
        inputs="",
        tolerance=max(model.tolerance, TRAINING_TOLERANCE) if training else model.tolerance,
        float64_factor=model.float64_factor,
    )
    return with_inputs(case, model.inputs(size=size), scratch)


def with_inputs(case: Case, arrays: Mapping[str, np.ndarray], scratch: Path) -> Case:
    """The case with its inputs in a file under `scratch`."""
    path = scratch / f"{case.file_name}.npz"
    texts = {name: array.astype("S") if array.dtype == object else array for name, array in arrays.items()}
    np.savez(path, **texts)  # pyright: ignore[reportArgumentType]
    return Case(**{**case.to_json(), "inputs": str(path)})
