"""Where the dims of a kernel come from at run time, and what must hold of them."""

from __future__ import annotations

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Body
from tf_stitch.ir.types import Dim
from tf_stitch.lower.kernel import Guard, SymbolSource


def solve_symbols(body: Body) -> tuple[tuple[SymbolSource, ...], tuple[Guard, ...]]:
    """Where each symbol comes from, and what must hold of the inputs' dims.

    Raises:
      Unsupported: with UNKNOWN_DIM, for a symbol that no input's dims determine.
    """
    sources: dict[str, SymbolSource] = {}
    progress = True
    while progress:
        progress = False
        for number, type_ in enumerate(body.inputs):
            for axis, dim in enumerate(type_.dims if type_ else ()):
                unknown = [s for s in dim.symbols if s not in sources]
                if len(unknown) == 1:
                    divisor = Dim(dim.coefficient, tuple(s for s in dim.symbols if s in sources))
                    sources[unknown[0]] = SymbolSource(unknown[0], number, axis, divisor)
                    progress = True
    for step in body.steps:
        for dim in step.type.dims:
            missing = [s for s in dim.symbols if s not in sources]
            if missing:
                raise Unsupported(Reason.UNKNOWN_DIM, f"dim {dim} of {step.origin} does not follow from the inputs")
    guards = [
        Guard(number, axis, dim, f"dim {axis} of input {number} is {dim}")
        for number, type_ in enumerate(body.inputs)
        for axis, dim in enumerate(type_.dims if type_ else ())
        if not _defines(sources, number, axis)
    ]
    return tuple(sources.values()), tuple(guards)


def _defines(sources: dict[str, SymbolSource], number: int, axis: int) -> bool:
    """Whether this dim needs no guard, since a symbol is defined to be just it."""
    return any(s.input == number and s.axis == axis and s.divisor.is_one for s in sources.values())
