"""CPU schedules: how a Nest is vectorised, blocked and given to threads. Decisions only; `render.cpp` prints them.

  ROWS    a task is some rows; a row is swept as often as it has sweeps, while it is in L1
  SPLIT   few long rows: a task is a block of one row; the parallel loop is joined after each sweep
  BLOCKS  no reduction: a task is some blocks of the vector axis

ROWS and SPLIT cut a row into the same blocks and combine their partial results in the same order, so they give the
same bits, and the choice between them may depend on the number of threads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tf_stitch.ir.types import DType
from tf_stitch.lower.kernel import Compute, Kernel, Load, Nest, Store
from tf_stitch.ops import FUNCTIONS, Cost
from tf_stitch.plan.target import Target

_REDUCTION_BLOCK = 8192  # elements: 32 KiB of f32, so that a block and its tile stay in L1 and L2
_ELEMENTWISE_BLOCK = 4096


class Driver(enum.Enum):
    ROWS = "rows"
    ROWS_OR_SPLIT = "rows or split"  # both are generated; chosen at launch
    BLOCKS = "blocks"


@dataclass(frozen=True)
class Schedule:
    """How one nest runs.

    lanes: elements of one step of the vector loop; `narrow`: of one step of its tail.
    body: "both" loops, the "wide" one alone (the row is a multiple of it) or the "narrow" one alone.
    block: elements of the vector axis in one block.
    """

    driver: Driver
    lanes: int
    narrow: int
    body: str
    block: int


def schedule(kernel: Kernel, target: Target) -> tuple[Schedule, ...]:
    return tuple(_schedule(nest, target) for nest in kernel.nests)


def _schedule(nest: Nest, target: Target) -> Schedule:
    statements = [s for sweep in nest.sweeps for s in sweep.elements]
    widest = max((_register_size(s.dtype) for s in statements if isinstance(s, Load | Compute | Store)), default=4)
    native = target.vector_bytes // widest
    heavy = sum(
        isinstance(s, Compute) and s.function in FUNCTIONS and FUNCTIONS[s.function].cost is Cost.HEAVY
        for s in statements
    )
    registers = 32 if target.vector_bytes == 64 else 16
    factor = 2 if heavy or registers == 16 else 4
    lanes = native * factor
    extent = nest.inner[-1]
    body = "both"
    if extent.is_static:
        while lanes > native and extent.coefficient % lanes:
            lanes //= 2
        if extent.coefficient % lanes == 0:
            body = "wide"
        elif extent.coefficient < native:
            body = "narrow"
    elif extent.coefficient % lanes == 0:
        body = "wide"
    if not nest.reductions:
        return Schedule(Driver.BLOCKS, lanes, native, body, _ELEMENTWISE_BLOCK)
    long_row = not extent.is_static or extent.coefficient >= 2 * _REDUCTION_BLOCK
    driver = Driver.ROWS_OR_SPLIT if long_row and len(nest.inner) == 1 else Driver.ROWS
    return Schedule(driver, lanes, native, body, _REDUCTION_BLOCK)


def _register_size(dtype: DType) -> int:
    return 8 if dtype in (DType.F64, DType.I64) else 4
