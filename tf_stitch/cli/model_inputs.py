"""Inputs for one signature of a SavedModel: from files, or made up from its types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tf_stitch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Array = np.ndarray[Any, np.dtype[Any]]

_SIZES = (2, 16)
"""What an unknown dim becomes: the first axis is most often the batch."""
_OTHER_SIZE = 32
_WORDS = (b"stitch", b"the model", b"def main():", b"")


@dataclass(frozen=True)
class Sizes:
    """What unknown dims are to be: by input and axis ("x.1"), or by axis for all inputs ("1")."""

    chosen: Mapping[str, int]

    @staticmethod
    def parse(texts: Sequence[str]) -> Sizes:
        """From `DIM=N`.

        Raises:
          UsageError: for anything else.
        """
        chosen: dict[str, int] = {}
        for text in texts:
            dim, _, number = text.rpartition("=")
            axis = dim.rpartition(".")[2]
            if not (axis.isdecimal() and number.isdecimal()):
                raise UsageError(f"--size {text} is no DIM=N; say 0=8 for the first axis of all inputs, or x.1=128.")
            chosen[dim] = int(number)
        return Sizes(chosen)

    def of(self, name: str, axis: int) -> int:
        default = _SIZES[axis] if axis < len(_SIZES) else _OTHER_SIZE
        return self.chosen.get(f"{name}.{axis}", self.chosen.get(str(axis), default))

    def unused(self, signature: Mapping[str, Any]) -> str | None:
        """One that names no input, or no axis of any."""
        ranks = {name: spec.shape.rank or 0 for name, spec in signature.items()}
        for dim in self.chosen:
            name, _, axis = dim.rpartition(".")
            if int(axis) >= (ranks.get(name, 0) if name else max(ranks.values(), default=0)):
                return dim
        return None


def from_files(texts: Sequence[str], signature: Mapping[str, Any]) -> dict[str, Array]:
    """From `name=file.npy`.

    Raises:
      UsageError: for a file that is no array, or not one that the signature takes.
    """
    found: dict[str, Array] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if name not in signature:
            raise UsageError(f"--inputs {text}: there is no input {name!r}; the inputs are {', '.join(signature)}.")
        try:
            array = np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"--inputs {text}: {path} cannot be read as a .npy file: {error}.") from error
        spec = signature[name]
        if not spec.shape.is_compatible_with(array.shape) or spec.dtype.as_numpy_dtype != array.dtype.type:
            raise UsageError(
                f"--inputs {text}: it holds {array.dtype}{list(array.shape)}, and {name} is "
                f"{spec.dtype.name}{_shape_text(spec)}."
            )
        found[name] = array
    return found


def made_up(name: str, spec: Any, sizes: Sizes, rng: np.random.Generator) -> Array:
    """An array that the input takes: normal numbers, small integers (as indices are), a few words.

    Raises:
      UsageError: for an unknown rank, or a dtype that nothing can be made up for.
    """
    if spec.shape.rank is None:
        raise UsageError(f"input {name} has no known rank; give it: --inputs {name}=FILE.npy.")
    shape = tuple(sizes.of(name, axis) if dim is None else dim for axis, dim in enumerate(spec.shape))
    dtype = spec.dtype
    if dtype == tf.string:
        return rng.choice(np.array(_WORDS, dtype=object), size=shape) if shape else np.array(_WORDS[0], dtype=object)
    if dtype.is_bool:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        return rng.integers(0, 2 if dtype.size == 1 else 8, shape).astype(dtype.as_numpy_dtype)
    if dtype.is_floating:
        return rng.standard_normal(shape).astype(dtype.as_numpy_dtype)
    raise UsageError(f"input {name} is of dtype {dtype.name}; give it: --inputs {name}=FILE.npy.")


def _shape_text(spec: Any) -> str:
    if spec.shape.rank is None:
        return "[...]"
    return "[" + ", ".join("?" if d is None else str(d) for d in spec.shape) + "]"
