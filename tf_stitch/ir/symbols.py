"""Symbols: which of them turned out to be equal, and which follow from others.

    H              an image's height
    (H + 2)        of the image with a border
    ((H + 1)/2)    of every second window of three rows of that

What follows is a symbol like any other to whoever computes with dims. Its derivation says which number it is:

    max(0, floor((term + term + ...) / divisor))        terms: dims, or negative ones, and an integer

so it is an extent whatever the others are: x[1:] of nothing is nothing. Invariants:
  - a derivation is in normal form: equal sums have equal terms, no factor is common to all of them and the divisor, and
    what follows from what follows is said in terms of the first (windows of a border's image, above);
  - a derived symbol is named by the text of its derivation, so equal ones are one symbol. Later passes rename them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tf_stitch.ir.types import Dim, product, terms_of


@dataclass(frozen=True, slots=True)
class Derivation:
    """max(0, floor(sum of `terms` / `divisor`)). Unlike a dim, a term may be negative."""

    terms: tuple[Dim, ...]
    divisor: int = 1

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(s for term in self.terms for s in term.symbols)

    @property
    def is_never_negative(self) -> bool:
        return all(term.coefficient >= 0 for term in self.terms)

    def evaluate(self, symbols: Mapping[str, int]) -> int:
        return max(0, sum(term.evaluate(symbols) for term in self.terms) // self.divisor)

    def __str__(self) -> str:
        first, *others = sorted(self.terms, key=lambda term: term.is_static)  # an integer comes last
        text = str(first)
        for term in others:
            sign = "-" if term.coefficient < 0 else "+"
            text += f" {sign} {Dim(abs(term.coefficient), term.symbols)}"
        return f"({text})" if self.divisor == 1 else f"(({text})/{self.divisor})"


Derivations = tuple[tuple[str, Derivation], ...]
"""Symbols and their derivations, each behind those that it speaks of."""


def completed(symbols: Mapping[str, int], derivations: Derivations) -> dict[str, int]:
    """`symbols`, and those without a value that follow from them."""
    found = dict(symbols)
    for name, derivation in derivations:
        if name not in found and derivation.symbols <= found.keys():
            found[name] = derivation.evaluate(found)
    return found


def sources_of(dims: Iterable[Dim], derivations: Derivations) -> frozenset[str]:
    """The symbols, derived from no others, that the values of these dims depend on."""
    found = {symbol for dim in dims for symbol in dim.symbols}
    for name, derivation in reversed(derivations):
        if name in found:
            found = found - {name} | derivation.symbols
    return frozenset(found)


class Symbols:
    """What is known of the symbols of one graph, or of one body.

    joined: what a symbol turned out to be. derivations: of those that follow from others, and more.
    """

    def __init__(self) -> None:
        self.joined: dict[str, Dim] = {}
        self.derivations: dict[str, Derivation] = {}

    def canonical(self, dim: Dim) -> Dim:
        """`dim` with each symbol replaced by what it was joined to, or now follows from."""
        if not (dim.symbols and self.joined):  # nearly always
            return dim
        while True:
            found = [self._replaced(symbol) for symbol in dim.symbols]
            if all(other is None for other in found):
                return dim
            factors = (Dim.symbol(s) if other is None else other for s, other in zip(dim.symbols, found, strict=True))
            dim = product([Dim(dim.coefficient), *factors])

    def _replaced(self, symbol: str) -> Dim | None:
        other, derivation = self.joined.get(symbol), self.derivations.get(symbol)
        if other is not None or derivation is None:
            return other
        terms = tuple(self.canonical(term) for term in derivation.terms)
        if terms == derivation.terms:
            return None
        other = self.derived(terms, derivation.divisor)
        return None if other == Dim.symbol(symbol) else other

    def derived(self, terms: Iterable[Dim], divisor: int = 1) -> Dim:
        """max(0, floor(sum of `terms` / `divisor`)), with a symbol of its own where it needs one."""
        terms = terms_of(self._said_plainly(terms))
        known = sum(t.coefficient for t in terms if t.is_static)
        open_ = [t for t in terms if t.symbols]
        inner = self.derivations.get(open_[0].symbols[0]) if len(open_) == 1 and is_lone(open_[0]) else None
        # floor((floor(a / b) + c) / d), of integers; nothing is lost where less than nothing is left already.
        if inner is not None and (inner.is_never_negative or known <= 0):
            return self.derived((*inner.terms, Dim(inner.divisor * known)), inner.divisor * divisor)
        common = math.gcd(divisor, *(t.coefficient for t in open_))
        known, divisor = known // common, divisor // common
        open_ = [Dim(t.coefficient // common, t.symbols) for t in open_]
        if divisor == 1:
            common = math.gcd(known, *(t.coefficient for t in open_))
            if not open_ or (not known and len(open_) == 1 and open_[0].coefficient > 0):
                return open_[0] if open_ else Dim(max(0, known))
        else:
            common = 1
        terms = (Dim(known // common), *(Dim(t.coefficient // common, t.symbols) for t in open_))
        derivation = Derivation(terms_of(terms), divisor)
        self.derivations[str(derivation)] = derivation
        return Dim(common, (str(derivation),))

    def _said_plainly(self, terms: Iterable[Dim]) -> Iterable[Dim]:
        """Sums among the terms, term by term."""
        for term in terms:
            inner = self.derivations.get(term.symbols[0]) if len(term.symbols) == 1 else None
            if inner is not None and inner.divisor == 1 and inner.is_never_negative:
                yield from (Dim(term.coefficient * t.coefficient, t.symbols) for t in inner.terms)
            else:
                yield term

    def follows(self, symbol: str) -> bool:
        return symbol in self.derivations

    def speaks_of(self, dim: Dim, symbol: str) -> bool:
        """Whether the value of `dim` depends on that of `symbol`."""
        known = (self.derivations[s] for s in dim.symbols if s in self.derivations)
        return symbol in dim.symbols or any(self.speaks_of(term, symbol) for each in known for term in each.terms)

    def is_at_most(self, small: Dim, large: Dim) -> bool:
        """Whether `small <= large` whatever the symbols are, as far as normal forms show it."""
        if small.is_static and small.coefficient <= 0:
            return True
        one, other = ((self._derivation(dim), Derivation(terms_of([dim]))) for dim in (small, large))
        return any(_is_at_most(a, b) for a in one for b in other)

    def _derivation(self, dim: Dim) -> Derivation:
        derivation = self.derivations.get(dim.symbols[0]) if len(dim.symbols) == 1 else None
        if derivation is None or (dim.coefficient != 1 and derivation.divisor != 1):
            return Derivation(terms_of([dim]))
        terms = (Dim(dim.coefficient * t.coefficient, t.symbols) for t in derivation.terms)
        return Derivation(terms_of(terms), derivation.divisor)

    def derivations_of(self, dims: Iterable[Dim]) -> Derivations:
        """Of all symbols that these dims speak of."""
        found: dict[str, Derivation] = {}

        def add(dim: Dim) -> None:
            for symbol in dim.symbols:
                derivation = self.derivations.get(symbol)
                if derivation is not None and symbol not in found:
                    for term in derivation.terms:
                        add(term)
                    found[symbol] = derivation

        for dim in dims:
            add(dim)
        return tuple(found.items())


def is_lone(dim: Dim) -> bool:
    """Whether a dim is a symbol and nothing else."""
    return dim.coefficient == 1 and len(dim.symbols) == 1


def _is_at_most(one: Derivation, other: Derivation) -> bool:
    """Whether the two differ in an integer, if at all, and that of the other is no less."""
    known, limit = (sum(t.coefficient for t in each.terms if t.is_static) for each in (one, other))
    alike = [t for t in one.terms if t.symbols] == [t for t in other.terms if t.symbols]
    return one.divisor == other.divisor and alike and known <= limit
