"""A Kernel as text, in the shape of the tree that `lower.kernel` describes.

    nest 0: for d0, for each 64
      sweep 0, for each element
        x = load input x[64, 1] : f32
        sum(mean) <- x

The numbers behind a buffer are its strides, outer axes first, then those of the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from tf_stitch.lower.kernel import (
    Accumulate,
    Compute,
    Coordinate,
    DerivedSymbol,
    ExtentOf,
    Literal,
    Load,
    Place,
    Reduced,
    Store,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tf_stitch.ir.types import Dim
    from tf_stitch.lower.cpu import Schedule
    from tf_stitch.lower.kernel import Access, Kernel, Nest, Reduction, Statement


def print_kernel(kernel: Kernel) -> str:
    """Everything that will be printed as code. Equal kernels have equal texts."""
    lines = [f"kernel {kernel.name}"]
    for number, type_ in enumerate(kernel.inputs):
        lines.append(f"  input {number}: {type_ or 'for the fallback only'}")
    lines += [f"  output {number}: {type_}" for number, type_ in enumerate(kernel.outputs)]
    for source in kernel.symbols:
        if isinstance(source, DerivedSymbol):
            lines.append(f"  {source.symbol} = {source.derivation}")
            continue
        divided = "" if source.divisor.is_one else f" / {source.divisor}"
        lines.append(f"  {source.symbol} = dim {source.axis} of input {source.input}{divided}")
    lines += [f"  guard: {assumed.text}" for assumed in (*kernel.guards, *kernel.bounds)]
    lines += [f"  guard: {within}" for within in kernel.indices]
    lines += [f"  scratch {b.name}: {b.dtype.value}, {b.size} elements" for b in kernel.scratch]
    lines += [f"  output {output} may take the buffer of input {source}" for source, output in kernel.forwards]
    for number, nest in enumerate(kernel.nests):
        lines += ["", *_nest(number, nest)]
    return "\n".join(lines) + "\n"


def print_schedules(schedules: Sequence[Schedule]) -> str:
    """How each nest runs on the CPU."""
    lines: list[str] = []
    for number, s in enumerate(schedules):
        bundles = f", bundles of {s.bundle} columns" if s.bundle > 1 else ""
        streams = ", streaming stores where large" if s.streams else ""
        lines.append(
            f"nest {number} runs {s.driver.value}: {s.lanes} lanes, {s.narrow} in the tail, "
            f"{_LOOPS[s.body]}, blocks of {s.block}{bundles}{streams}\n"
        )
    return "".join(lines)


_LOOPS = {"both": "both loops", "wide": "no tail", "narrow": "a tail alone"}


def _nest(number: int, nest: Nest) -> Iterator[str]:
    yield f"nest {number}: for {_times(nest.outer)}, for each {_times(nest.inner)}"
    yield from (f"  tile {tile.name}: {tile.dtype.value}, {tile.size} elements" for tile in nest.tiles)
    for repeat in nest.repeats:
        yield f"  tile {repeat.tile.name}: {repeat.period} of {_access(repeat.source)}, again and again"
    for position, sweep in enumerate(nest.sweeps):
        if sweep.row:
            yield f"  sweep {position}, for each row"
            yield from (f"    {_statement(s, nest.reductions)}" for s in sweep.row)
        yield f"  sweep {position}, for each element"
        yield from (f"    {_statement(s, nest.reductions)}" for s in sweep.elements)
    if nest.finish:
        yield "  finish, for each row"
        yield from (f"    {_statement(s, nest.reductions)}" for s in nest.finish)


def _statement(statement: Statement, reductions: Sequence[Reduction]) -> str:
    match statement:
        case Load(name, dtype, access, at):
            where = "".join(f" + {a.value}*{a.stride}" for a in at)
            return f"{name} = load {_access(access)}{where} : {dtype.value}"
        case Literal(name, dtype, bits):
            return f"{name} = {np.frombuffer(bits, dtype.numpy)[0]!s} : {dtype.value}"
        case ExtentOf(name, dtype, dim):
            return f"{name} = extent {dim} : {dtype.value}"
        case Coordinate(name, dtype, strides, offset):
            where = "".join(f" + {term}" for term in offset)
            return f"{name} = coordinate [{', '.join(map(str, strides))}]{where} : {dtype.value}"
        case Compute(name, dtype, function, operands):
            return f"{name} = {function} {' '.join(operands)} : {dtype.value}"
        case Reduced(name, dtype, number):
            return f"{name} = result of {_accumulator(reductions[number])} : {dtype.value}"
        case Accumulate(number, value):
            return f"{_accumulator(reductions[number])} <- {value}"
        case Store(access, value):
            return f"store {_access(access)} <- {value}"
        case _:
            assert_never(statement)


def _accumulator(reduction: Reduction) -> str:
    return f"{reduction.reducer}({reduction.name})"


def _access(access: Access) -> str:
    place = "" if access.buffer.place is Place.TILE else f"{access.buffer.place.value} "
    offset = "".join(f" + {term}" for term in access.offset)
    return f"{place}{access.buffer.name}[{', '.join(map(str, access.strides))}]{offset}"


def _times(dims: Sequence[Dim]) -> str:
    return " × ".join(map(str, dims)) or "1"
