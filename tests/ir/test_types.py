"""The algebra of dims."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tf_stitch.ir.types import ONE, Dim, DType, TensorType, product, shape_of
from tf_stitch.ops.extents import dim_sum

NAMES = ("B", "S", "T")
dims = st.builds(
    lambda c, s: product([Dim(c), *map(Dim.symbol, s)]),
    st.integers(0, 12),
    st.lists(st.sampled_from(NAMES), max_size=3),
)
values = st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 9)))


@given(dims, dims, dims)
def test_products_form_a_monoid(a: Dim, b: Dim, c: Dim) -> None:
    assert a * b == b * a
    assert (a * b) * c == a * (b * c)
    assert a * ONE == a


@given(dims, dims, values)
def test_products_and_sums_mean_what_they_say(a: Dim, b: Dim, symbols: dict[str, int]) -> None:
    assert (a * b).evaluate(symbols) == a.evaluate(symbols) * b.evaluate(symbols)
    total = dim_sum(a, b)
    if total is not None:
        assert total.evaluate(symbols) == a.evaluate(symbols) + b.evaluate(symbols)


@given(dims, dims)
def test_division_undoes_multiplication(a: Dim, b: Dim) -> None:
    if b.coefficient:
        assert (a * b).divided_by(b) == a
    else:
        assert a.divided_by(b) is None


@given(dims, dims, values)
def test_division_is_exact_or_refused(a: Dim, b: Dim, symbols: dict[str, int]) -> None:
    quotient = a.divided_by(b)
    if quotient is not None and b.evaluate(symbols):
        assert quotient.evaluate(symbols) * b.evaluate(symbols) == a.evaluate(symbols)


@given(dims, values)
def test_values_may_be_put_in_one_by_one(a: Dim, symbols: dict[str, int]) -> None:
    for name, value in symbols.items():
        a = a.given({name: value})
    assert a.is_static


@given(dims, values)
def test_values_put_in_or_evaluated_are_the_same(a: Dim, symbols: dict[str, int]) -> None:
    assert a.given(symbols) == Dim(a.evaluate(symbols))
    assert a.given({}) == a


def test_text() -> None:
    assert str(TensorType(DType.BF16, shape_of("B", 768, Dim(4, ("B", "S"))))) == "bf16[B, 768, 4*B*S]"
    assert str(TensorType(DType.F32, None)) == "f32[...]"
    assert str(TensorType(DType.BOOL, ())) == "bool[]"
