"""A real model: where its SavedModel is, what to feed it, and how exact a stitched copy has to be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from bench.workloads.models.fetch import cache_dir, fetch, fetched, staged
from bench.workloads.models.pins import WHEELS

Size: TypeAlias = tuple[int, ...]
Inputs: TypeAlias = dict[str, np.ndarray]
TIMEOUT = 1200  # seconds for building one model
REPOSITORY = Path(__file__).resolve().parents[3]


class BuildError(RuntimeError):
    """A model's packages are there, but no SavedModel came out of them."""


@dataclass(frozen=True)
class Model:
    """A SavedModel made from pinned packages.

    Either `shipped`, a path inside the first package's wheel, or `build`, a function which writes the
    SavedModel. It runs in its own process with the packages on its path, so that this one needs none of
    them; `revision` goes up when it would write something else. What the signature of a model in mode "train"
    does is in `training`.
    """

    name: str
    notes: str
    packages: tuple[str, ...]
    sizes: tuple[Size, ...]  # what `make_inputs` takes: batch, height, width; batch, length; …
    make_inputs: Callable[[np.random.Generator, Size], Inputs]
    shipped: str = ""
    build: Callable[[Path], None] | None = None
    revision: int = 1
    signature: str = "serving_default"
    mode: Literal["infer", "train"] = "infer"
    bench_sizes: tuple[Size, ...] = ()  # to be measured beside the first of `sizes`
    tolerance: float = 1e-5  # of an output's largest value
    float64_factor: float = 2.0  # a stitched model is at most this much further from float64 than TF is

    def path(self) -> Path:
        """The SavedModel directory, fetched and built if it isn't there yet. Not to be written to."""
        if self.shipped:
            return fetch(self.packages[0]) / self.shipped
        if not self.saved_model.exists():
            packages = [fetch(package) for package in self.packages]
            with staged(self.saved_model) as partial:
                self._build_elsewhere(partial, packages)
        return self.saved_model

    def ready(self) -> bool:
        """Is nothing left to fetch or build?"""
        return fetched(self.packages[0]) if self.shipped else self.saved_model.exists()

    def needs(self) -> tuple[str, ...]:
        """The packages that `path` fetches."""
        return self.packages[:1] if self.shipped else self.packages

    def inputs(self, seed: int = 0, size: Size | None = None) -> Inputs:
        """Arrays for the signature, the same for the same seed and size."""
        return self.make_inputs(np.random.default_rng(seed), size or self.sizes[0])

    @property
    def saved_model(self) -> Path:
        return cache_dir() / "models" / f"{self.name}-{self.revision}"

    def _build_elsewhere(self, destination: Path, packages: list[Path]) -> None:
        importable = [str(p) for p, name in zip(packages, self.packages, strict=True) if name in WHEELS]
        environment = {
            **{k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"},
            "TF_STITCH_ZOO": str(cache_dir()),
            "PYTHONPATH": os.pathsep.join([*importable, str(REPOSITORY)]),
            "KERAS_BACKEND": "tensorflow",
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        command = [sys.executable, "-m", "bench.workloads.models", "build", self.name, str(destination)]
        try:
            run = subprocess.run(
                command, env=environment, cwd=REPOSITORY, text=True, capture_output=True, check=False, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"{self.name} was not built after {TIMEOUT} s") from None
        if run.returncode or not (destination / "saved_model.pb").exists():
            raise BuildError(f"{self.name} could not be built:\n{run.stderr[-3000:]}")
