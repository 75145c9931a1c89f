"""DType, Dim and TensorType: what is known of a tensor before it exists.

A dim is a product, ``coefficient * symbol * symbol * ...``: a plain integer has no symbol. Symbols are
equal or not, and products of them may be equal; that is all the algebra there is, and it is enough for
reshapes (``[B, S, 768] -> [B*S, 768]``) without a solver.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class DType(enum.Enum):
    """An element type. The value is its short name, used in dumps and in generated code."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"
    OTHER = "other"  # anything we pass by but never compute on: strings, resources, complex, ...

    @property
    def size(self) -> int:
        """Bytes of one element in memory."""
        return _SIZES[self]

    @property
    def is_float(self) -> bool:
        return self in FLOATS

    @property
    def compute(self) -> DType:
        """The type that arithmetic runs in: f16 and bf16 are widened to f32, all else is itself."""
        return DType.F32 if self in (DType.F16, DType.BF16) else self

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype. bf16 needs `ml_dtypes`, which TensorFlow brings.

        Raises:
          TypeError: for OTHER, which has no NumPy dtype.
        """
        if self is DType.BF16:
            import ml_dtypes  # not at the top: the only dtype that needs it

            return np.dtype(ml_dtypes.bfloat16)
        if self is DType.OTHER:
            raise TypeError("a value of dtype `other` is never computed on, so it has no NumPy dtype")
        return np.dtype(_NUMPY[self])


_SIZES = {
    DType.F16: 2,
    DType.BF16: 2,
    DType.F32: 4,
    DType.F64: 8,
    DType.I32: 4,
    DType.I64: 8,
    DType.BOOL: 1,
    DType.OTHER: 0,
}
_NUMPY = {
    DType.F16: "float16",
    DType.F32: "float32",
    DType.F64: "float64",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.BOOL: "bool",
}
FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
INTEGERS = frozenset({DType.I32, DType.I64})
NUMBERS = FLOATS | INTEGERS
ALL = NUMBERS | {DType.BOOL}


@dataclass(frozen=True, slots=True, order=True)
class Dim:
    """A non-negative extent: `coefficient` times the product of `symbols` (sorted, with repeats)."""

    coefficient: int
    symbols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.coefficient == 0:  # there is one zero
            object.__setattr__(self, "symbols", ())

    @staticmethod
    def symbol(name: str) -> Dim:
        return Dim(1, (name,))

    @property
    def is_static(self) -> bool:
        return not self.symbols

    @property
    def is_one(self) -> bool:
        return self.coefficient == 1 and not self.symbols

    def __mul__(self, other: Dim) -> Dim:
        if not self.symbols and not other.symbols:
            return Dim(self.coefficient * other.coefficient)
        return Dim(self.coefficient * other.coefficient, tuple(sorted(self.symbols + other.symbols)))

    def divided_by(self, other: Dim) -> Dim | None:
        """`self / other` where the division is exact for every value of the symbols, else None."""
        if other.coefficient == 0 or self.coefficient % other.coefficient:
            return None
        if self.coefficient == 0:
            return self
        left = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in left:
                return None
            left.remove(symbol)
        return Dim(self.coefficient // other.coefficient, tuple(left))

    def given(self, symbols: Mapping[str, int]) -> Dim:
        """The dim with these symbols' values in."""
        number = self.coefficient * math.prod(symbols.get(s, 1) for s in self.symbols)
        return Dim(number, tuple(s for s in self.symbols if s not in symbols))

    def evaluate(self, symbols: Mapping[str, int]) -> int:
        return self.coefficient * math.prod(symbols[s] for s in self.symbols)

    def __str__(self) -> str:
        if not self.symbols:
            return str(self.coefficient)
        product = "*".join(self.symbols)
        return product if self.coefficient == 1 else f"{self.coefficient}*{product}"


ONE = Dim(1)
Shape = tuple[Dim, ...]


def shape_of(*dims: int | str | Dim) -> Shape:
    """`shape_of("B", 768)`: a shape written by hand; a string is a symbol."""
    return tuple(d if isinstance(d, Dim) else Dim(d) if isinstance(d, int) else Dim.symbol(d) for d in dims)


def product(dims: Iterable[Dim]) -> Dim:
    coefficient, symbols = 1, ()
    for dim in dims:
        coefficient *= dim.coefficient
        symbols += dim.symbols
    return Dim(coefficient, tuple(sorted(symbols))) if symbols else Dim(coefficient)


def terms_of(dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """The sum of `dims`, as one term for each product of symbols. None is zero, so equal sums have equal terms."""
    counts: dict[tuple[str, ...], int] = {}
    for dim in dims:
        counts[dim.symbols] = counts.get(dim.symbols, 0) + dim.coefficient
    return tuple(sorted((Dim(n, s) for s, n in counts.items() if n), key=lambda d: (len(d.symbols), d.symbols)))


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape; `shape` is None where not even the rank is known."""

    dtype: DType
    shape: Shape | None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def dims(self) -> Shape:
        """The shape of a value whose rank is known.

        Raises:
          ValueError: where it is not.
        """
        if self.shape is None:
            raise ValueError("this value has no known rank; check `shape` before asking for `dims`")
        return self.shape

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return product(self.dims)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype.value}[...]"
        return f"{self.dtype.value}[{', '.join(map(str, self.shape))}]"
