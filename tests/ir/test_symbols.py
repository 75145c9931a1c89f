"""Dims that follow from others: one name for each, the right number, and what is known of them without numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_stitch.ir.symbols import Symbols, completed, sources_of
from tf_stitch.ir.types import Dim, product

H, W = Dim.symbol("H"), Dim.symbol("W")
NAMES = ("H", "W")
values = st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 9)))
plain = st.builds(
    lambda c, s: product([Dim(c), *map(Dim.symbol, s)]),
    st.integers(1, 6),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=2),
)
numbers = st.integers(-7, 7).map(Dim)


def test_equal_sums_are_one_symbol() -> None:
    s = Symbols()
    assert s.derived([H, Dim(2)]) == s.derived([Dim(1), H, Dim(1)])
    assert s.derived([H, Dim(2)]) != s.derived([W, Dim(2)])
    assert str(s.derived([H, Dim(2)])) == "(H + 2)"


@pytest.mark.parametrize(
    ("terms", "divisor", "wanted"),
    [
        ((H, H), 1, Dim(2, ("H",))),
        ((Dim(2, ("H",)), Dim(1)), 2, H),  # H and a half
        ((Dim(4, ("H",)),), 2, Dim(2, ("H",))),
        ((Dim(7),), 2, Dim(3)),
        ((Dim(-7),), 2, Dim(0)),
        ((), 1, Dim(0)),
    ],
)
def test_what_needs_no_symbol_gets_none(terms: tuple[Dim, ...], divisor: int, wanted: Dim) -> None:
    assert Symbols().derived(terms, divisor) == wanted


def test_windows_of_an_image_with_a_border_are_as_many_as_the_image_has_rows() -> None:
    s = Symbols()
    assert s.derived([s.derived([H, Dim(2)]), Dim(-2)]) == H


def test_every_second_of_every_second_is_every_fourth() -> None:
    s = Symbols()
    half = s.derived([H, Dim(1)], 2)
    assert s.derived([half, Dim(1)], 2) == s.derived([H, Dim(3)], 4)


def test_what_may_be_cut_off_at_nothing_is_not_said_in_other_terms() -> None:
    """x[1:] padded by 1 has one element if x has none."""
    s = Symbols()
    padded = s.derived([s.derived([H, Dim(-1)]), Dim(1)])
    assert padded != H
    assert completed({"H": 0}, s.derivations_of([padded]))[padded.symbols[0]] == 1


def test_what_is_cut_off_twice_is_cut_off_once() -> None:
    s = Symbols()
    assert s.derived([s.derived([H, Dim(-1)]), Dim(-1)]) == s.derived([H, Dim(-2)])


def test_less_than_a_derived_dim() -> None:
    s = Symbols()
    cut = s.derived([H, Dim(-1)])
    padded = s.derived([cut, Dim(1)])
    assert s.is_at_most(cut, padded)
    assert not s.is_at_most(padded, cut)
    assert not s.is_at_most(padded, H)  # where H is 0


def test_a_factor_of_all_terms_stands_in_front() -> None:
    s = Symbols()
    assert s.derived([Dim(2, ("H",)), Dim(4)]) == Dim(2) * s.derived([H, Dim(2)])
    assert s.derived([s.derived([H, Dim(2)]), s.derived([H, Dim(2)])]) == Dim(2) * s.derived([H, Dim(2)])


def test_joining_changes_what_follows() -> None:
    s = Symbols()
    padded = s.derived([H, Dim(2)])
    s.joined["H"] = W
    assert s.canonical(padded) == s.derived([W, Dim(2)])
    s.joined["W"] = Dim(5)
    assert s.canonical(Dim(3) * padded) == Dim(21)


def test_what_a_dim_depends_on() -> None:
    s = Symbols()
    area = s.derived([H, Dim(1)], 2) * s.derived([W, Dim(2)])
    assert s.speaks_of(area, "H")
    assert s.speaks_of(area, "W")
    assert not s.speaks_of(area, "C")
    assert sources_of([area], s.derivations_of([area])) == {"H", "W"}


def test_derivations_come_behind_what_they_speak_of() -> None:
    s = Symbols()
    cut = s.derived([H, Dim(-1)])
    last = s.derived([cut, Dim(1)], 2)
    assert [name for name, _ in s.derivations_of([last])] == [*cut.symbols, *last.symbols]


@given(st.lists(plain, max_size=2), numbers, st.integers(1, 4), numbers, st.integers(1, 4), values)
def test_derived_dims_mean_what_they_say(
    terms: list[Dim], more: Dim, divisor: int, again: Dim, by: int, symbols: dict[str, int]
) -> None:
    s = Symbols()
    first = s.derived([*terms, more], divisor)
    second = s.derived([first, again, *terms[:1]], by)
    wanted = max(0, (sum(t.evaluate(symbols) for t in terms) + more.coefficient) // divisor)
    known = completed(symbols, s.derivations_of([first, second]))
    assert first.evaluate(known) == wanted
    total = wanted + again.coefficient + sum(t.evaluate(symbols) for t in terms[:1])
    assert second.evaluate(known) == max(0, total // by)


@given(plain, numbers, numbers, st.integers(1, 3), values)
def test_what_is_at_most_another_is(term: Dim, one: Dim, other: Dim, divisor: int, symbols: dict[str, int]) -> None:
    s = Symbols()
    small, large = s.derived([term, one], divisor), s.derived([term, other], divisor)
    known = completed(symbols, s.derivations_of([small, large]))
    assert s.is_at_most(small, large) or one.coefficient > other.coefficient
    if s.is_at_most(small, large):
        assert small.evaluate(known) <= large.evaluate(known)
