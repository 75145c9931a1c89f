"""Where the dims of a kernel come from at run time, and what must hold of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.types import Dim
from tf_stitch.lower.kernel import DerivedSymbol, Guard, SymbolSource

if TYPE_CHECKING:
    from tf_stitch.ir.body import Body


def solve_symbols(body: Body) -> tuple[tuple[SymbolSource | DerivedSymbol, ...], tuple[Guard, ...]]:
    """Where each symbol comes from, and what must hold of the inputs' dims.

    A symbol that is derived from others is computed from those, and guarded where it is a dim of an input, too. Where
    the inputs do not tell the others, it is read from that dim.

    Raises:
      Unsupported: with UNKNOWN_DIM, for a symbol that no input's dims determine.
    """
    sources: dict[str, SymbolSource | DerivedSymbol] = {}
    while _solve(body, sources, derived=False) or _solve(body, sources, derived=True):
        pass
    for name, derivation in body.derivations:
        if isinstance(sources.get(name), SymbolSource) and derivation.symbols <= sources.keys():
            raise Unsupported(Reason.UNKNOWN_DIM, f"{name} tells the dims that it follows from")
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


def _solve(body: Body, sources: dict[str, SymbolSource | DerivedSymbol], *, derived: bool) -> bool:
    """Adds what is one step away; whether there was anything. derived: whether inputs may tell a derived symbol."""
    before = len(sources)
    for name, derivation in body.derivations:
        if name not in sources and derivation.symbols <= sources.keys():
            sources[name] = DerivedSymbol(name, derivation)
    names = {name for name, _ in body.derivations}
    for number, type_ in enumerate(body.inputs):
        for axis, dim in enumerate(type_.dims if type_ else ()):
            unknown = [s for s in dim.symbols if s not in sources]
            if len(unknown) == 1 and (derived or unknown[0] not in names):
                divisor = Dim(dim.coefficient, tuple(s for s in dim.symbols if s in sources))
                sources[unknown[0]] = SymbolSource(unknown[0], number, axis, divisor)
                if derived:  # which may be enough to derive the next
                    return True
    return len(sources) > before


def _defines(sources: dict[str, SymbolSource | DerivedSymbol], number: int, axis: int) -> bool:
    """Whether this dim needs no guard, since a symbol is defined to be just it."""
    read = (s for s in sources.values() if isinstance(s, SymbolSource))
    return any(s.input == number and s.axis == axis and s.divisor.is_one for s in read)
