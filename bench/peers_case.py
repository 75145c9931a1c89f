"""A case as one process hands it to the others: a directory of files. NumPy is all that this needs.

case.json       names of inputs and outputs, and what is said below
arguments.npz   of a chain: x, then each copy's fresh ones, then those that all copies share
right.npz       TensorFlow's outputs of the first copy, then its x after the chain, if there are more copies
graph.pb        the copy as a GraphDef with constants folded
graph.json      the same for who has no TensorFlow, with constants.npz; not of a model
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

Arrays = tuple[np.ndarray, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Exported:
    """inputs, outputs: names of what one copy reads and returns. fresh: how many arguments each copy has of its own.

    whole: the case is a model, one call, and nothing is taken off.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    copies: int = 1
    fresh: int = 0
    whole: bool = False

    @staticmethod
    def read(directory: Path) -> Exported:
        said = json.loads((directory / "case.json").read_text())
        names = {k: tuple(said.pop(k)) for k in ("inputs", "outputs")}
        return Exported(**names, **said)

    def write(self, directory: Path) -> None:
        (directory / "case.json").write_text(json.dumps(asdict(self)))

    def rest_of_copy(self, number: int, arguments: Sequence[T]) -> tuple[T, ...]:
        """All arguments of a copy but x."""
        begin = 1 + number * self.fresh
        return (*arguments[begin : begin + self.fresh], *arguments[1 + self.copies * self.fresh :])


def read_arrays(path: Path) -> Arrays:
    with np.load(path) as arrays:
        return tuple(arrays[f"arr_{n}"] for n in range(len(arrays.files)))


def write_arrays(path: Path, arrays: Sequence[np.ndarray]) -> None:
    np.savez(path, *arrays)
