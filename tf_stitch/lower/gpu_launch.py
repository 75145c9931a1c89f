"""Launch: how a kernel for a GPU is started, as data. Made by `lower.gpu`; obeyed by all that launch kernels.

    symbols {B: 8}  ->  the first variant whose conditions hold
                        its entry, a grid of min(units, blocks resident together), its threads and memory

Everything that depends on the shapes is a Formula. One is evaluated here for PyCUDA and the emulator, and printed as
C++ for StitchOp (`render.c_family.formula`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tf_stitch.ir.types import Dim

# What every input, output and scratch pointer has to be a multiple of, in bytes: that of a thread's widest access.
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Sum:
    terms: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Product:
    factors: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class CeilDiv:
    """`dividend / divisor`, rounded up; of nothing 0. The divisor is never 0."""

    dividend: Formula
    divisor: Formula


@dataclass(frozen=True, slots=True)
class Larger:
    one: Formula
    other: Formula


Formula = Dim | Sum | Product | CeilDiv | Larger


def evaluate(formula: Formula, symbols: Mapping[str, int]) -> int:
    """The number that a formula is for these values of the symbols."""
    match formula:
        case Dim():
            return formula.evaluate(symbols)
        case Sum(terms):
            return sum(evaluate(t, symbols) for t in terms)
        case Product(factors):
            return math.prod(evaluate(f, symbols) for f in factors)
        case CeilDiv(dividend, divisor):
            return -(-evaluate(dividend, symbols) // evaluate(divisor, symbols))
        case Larger(one, other):
            return max(evaluate(one, symbols), evaluate(other, symbols))


def total(terms: Sequence[Formula]) -> Formula:
    """The sum of formulas, with what is known of it added up."""
    number = sum(t.coefficient for t in terms if isinstance(t, Dim) and t.is_static)
    rest = [t for t in terms if not (isinstance(t, Dim) and t.is_static)]
    if number or not rest:
        rest.append(Dim(number))
    return rest[0] if len(rest) == 1 else Sum(tuple(rest))


def ceil_div(dividend: Formula, divisor: int) -> Formula:
    """`dividend / divisor`, rounded up; a Dim where that is known."""
    if divisor == 1:
        return dividend
    if isinstance(dividend, Dim):
        if dividend.coefficient % divisor == 0:
            return Dim(dividend.coefficient // divisor, dividend.symbols)
        if dividend.is_static:
            return Dim(-(-dividend.coefficient // divisor))
    return CeilDiv(dividend, Dim(divisor))


def times(*factors: Formula) -> Formula:
    """The product of formulas; a Dim where it is one of Dims."""
    whole = Dim(1)
    rest: list[Formula] = []
    for factor in factors:
        if isinstance(factor, Dim):
            whole = whole * factor
        else:
            rest.append(factor)
    if not rest or whole.coefficient == 0:
        return whole
    if not whole.is_one:
        rest.insert(0, whole)
    return rest[0] if len(rest) == 1 else Product(tuple(rest))


@dataclass(frozen=True, slots=True)
class Condition:
    """`small` is at most `large`."""

    small: Formula
    large: Formula

    def holds(self, symbols: Mapping[str, int]) -> bool:
        return evaluate(self.small, symbols) <= evaluate(self.large, symbols)


class Parameter(enum.Enum):
    """What a parameter of the entry is; each takes 8 bytes. `Launch.parameters` says which one of its kind."""

    INPUT = "input"  # a pointer
    OUTPUT = "output"  # a pointer
    SCRATCH = "scratch"  # a pointer
    BARRIER = "barrier"  # a pointer to a GridBarrier, all zero before the launch; and after it
    SYMBOL = "symbol"  # an i64


@dataclass(frozen=True)
class Variant:
    """One way to run the kernel.

    entry: the name of the function. conditions: all hold where it may be launched; none: always.
    units: how many blocks there is work for. Where it is 0 nothing is launched: every output is empty.
    resident: whether blocks wait for each other, so that all of them have to be on the GPU at a time.
    blocks: that a multiprocessor holds at a time, at least: what the compiler was told.
    threads: of a block. shared: bytes of dynamic shared memory of a block. scratch: bytes.
    """

    entry: str
    conditions: tuple[Condition, ...]
    units: Formula
    resident: bool
    blocks: int
    threads: int
    shared: Formula
    scratch: Formula

    def grid(self, symbols: Mapping[str, int], multiprocessors: int) -> int:
        """Blocks to launch on a GPU of so many multiprocessors."""
        limit = self.blocks * multiprocessors if self.resident else MOST_BLOCKS
        return min(evaluate(self.units, symbols), limit)


MOST_BLOCKS = 2**31 - 1  # of a grid, along its first axis


@dataclass(frozen=True)
class Launch:
    """All ways to run a kernel, and what its entries are given.

    parameters: (kind, which one): of inputs, outputs and symbols the number of it in the Kernel, else 0.
    """

    variants: tuple[Variant, ...]
    parameters: tuple[tuple[Parameter, int], ...]

    def chosen(self, symbols: Mapping[str, int]) -> Variant:
        """The first variant whose conditions hold; there always is one."""
        return next(v for v in self.variants if all(c.holds(symbols) for c in v.conditions))
