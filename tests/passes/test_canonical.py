"""Equal clusters get equal bodies, in whatever order TensorFlow lists their nodes and operands."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.settings import tries
from tests.passes.drawing import Drawing, f32
from tf_stitch.errors import Unsupported
from tf_stitch.ir.body import Body, BodyBuilder, Constant
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ir.printer import print_body
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import verify_body
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.passes.canonical import Ordered, canonical_order, canonical_symbols
from tf_stitch.passes.expand import Expansion, expand
from tf_stitch.runtime.reference import evaluate

# One node a line: name, op, operands. A residual layer with a scale and a bias.
LAYER = (
    ("t", "AddV2", ("x", "r")),
    ("s", "Tanh", ("t",)),
    ("q", "Exp", ("b",)),
    ("u", "Mul", ("s", "g")),
    ("v", "AddV2", ("u", "q")),
    ("w", "Maximum", ("v", "t")),
    ("y", "Mul", ("w", "s")),
)
COMMUTING = ("AddV2", "Mul")


def layer(order: Sequence[int] = range(7), swapped: Sequence[str] = (), prefix: str = "") -> Expansion:
    """The layer, its nodes listed in another order and some operands swapped."""
    d = Drawing()
    for name in ("x", "r"):
        d.input(prefix + name, f32("B", 8))
    for name in ("g", "b"):
        d.input(prefix + name, f32(8))
    names: list[str] = []
    for number in order:
        name, op, operands = LAYER[number]
        inputs = [Value(prefix + o) for o in operands]
        if name in swapped:
            inputs.reverse()
        d.node(prefix + name, op, *inputs, type_=f32(8) if name == "q" else f32("B", 8))
        names.append(prefix + name)
    return expand(d.graph(), names, [Value(prefix + "y")])


def topological_orders() -> list[tuple[int, ...]]:
    names = [name for name, _, _ in LAYER]
    before = [{names.index(o) for o in operands if o in names} for _, _, operands in LAYER]
    return [p for p in itertools.permutations(range(7)) if all(set(p[: p.index(n)]) >= before[n] for n in p)]


def test_the_order_of_nodes_does_not_matter() -> None:
    orders = topological_orders()
    assert len(orders) > 1
    assert {print_body(layer(order).body) for order in orders} == {print_body(layer().body)}


def test_the_order_of_commuting_operands_does_not_matter() -> None:
    expected = layer()
    commuting = [name for name, op, _ in LAYER if op in COMMUTING]
    for count in range(len(commuting) + 1):
        for swapped in itertools.combinations(commuting, count):
            found = layer(swapped=swapped)
            assert print_body(found.body) == print_body(expected.body), swapped
            assert set(found.inputs) == set(expected.inputs)


def test_names_do_not_matter() -> None:
    assert print_body(layer(prefix="deep/er/").body) == print_body(layer().body)


def test_operands_that_do_not_commute_keep_their_order() -> None:
    """A maximum of two zeros is the second."""
    assert print_body(layer(swapped=["w"]).body) != print_body(layer().body)


def test_inputs_follow_the_steps() -> None:
    """Whatever the order, input i of the body is the value called i by the expansion."""
    random = np.random.default_rng(0)
    arrays = {Value(n): random.standard_normal((3, 8), np.float32) for n in "xr"}
    arrays |= {Value(n): random.standard_normal(8, np.float32) for n in "gb"}
    wanted = None
    for order in topological_orders():
        for swapped in ((), ("t",), ("u", "y")):
            found = layer(order, swapped)
            (result,) = evaluate(found.body, [arrays[v] for v in found.inputs], {"d0": 3})
            wanted = result if wanted is None else wanted
            np.testing.assert_array_equal(result, wanted)


def copies(build: Callable[[Drawing, str], Value]) -> tuple[Body, Body]:
    """The bodies of two clusters that differ in names, and in what `build` makes of them."""
    bodies: list[Body] = []
    for prefix in ("left/", "right/"):
        d = Drawing()
        y = build(d, prefix)
        names = [n for n, node in d.graph().nodes.items() if node.op not in ("Placeholder", "Const")]
        bodies.append(expand(d.graph(), names, [y]).body)
    return bodies[0], bodies[1]


def test_twins_that_are_used_differently_are_told_apart_either_way_around() -> None:
    """Two values of one formula, of which a later node reads the one or the other: x and y change names."""

    def build(d: Drawing, prefix: str) -> Value:
        x, y = d.input("x", f32("B", 8)), d.input("y", f32("B", 8))
        a, b = d.node("a", "Exp", x), d.node("b", "Exp", y)
        total = d.node("total", "AddV2", *((a, b) if prefix == "left/" else (b, a)))
        return d.node("out", "Mul", total, d.node("again", "Tanh", a))

    left, right = copies(build)
    assert print_body(left) == print_body(right)


def zeros_of(graph: Graph, body: Body) -> list[float]:
    return [float(s.op.value(s.type.dtype)) for s in body.steps if isinstance(s.op, Constant)]


def test_zeros_of_either_sign_stay_apart() -> None:
    """x * 0.0 and x * -0.0 in one cluster: one constant would make infinities of one sign."""
    d = Drawing()
    x = d.input("x", f32("B"))
    plus = d.node("plus", "Mul", x, d.constant("zero", np.float32(0.0)))
    minus = d.node("minus", "Mul", x, d.constant("minus_zero", np.float32(-0.0)))
    a, b = d.node("a", "Reciprocal", plus), d.node("b", "Reciprocal", minus)
    found = expand(d.graph(), ["plus", "minus", "a", "b"], [a, b])
    zeros = zeros_of(d.graph(), found.body)
    assert sorted(np.signbit(zeros)) == [False, True]
    one = np.ones(1, np.float32)
    results = dict(zip(found.outputs, evaluate(found.body, [one], {"d0": 1}), strict=True))
    assert (results[a][0], results[b][0]) == (np.inf, -np.inf)


def test_nans_of_equal_bits_are_one_constant() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    assert b.constant(np.nan, DType.F32) == b.constant(np.nan, DType.F32)
    assert b.constant(np.nan, DType.F32) != b.constant(-np.nan, DType.F32) or np.signbit(-np.nan) == np.signbit(np.nan)


# -- symbols ---------------------------------------------------------------------------------------------------


def test_symbols_are_named_in_order_of_appearance() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, y = b.input(TensorType(DType.F32, shape_of("s7", 8))), b.input(TensorType(DType.F32, shape_of("d0", "s7", 8)))
    b.require(Dim(2), Dim.symbol("s7"), "a slice")
    body = canonical_symbols(b.finish([b.apply("add", x, y), b.extent(Dim.symbol("d0"), DType.F32)]))
    verify_body(body, FUNCTIONS, REDUCERS)
    assert [str(t) for t in body.inputs] == ["f32[d0, 8]", "f32[d1, d0, 8]"]
    assert [tuple(map(str, r)) for r in body.requires] == [("2", "d0")]
    assert "extent d1" in print_body(body)


def test_an_extent_whose_input_nothing_reads_is_no_crash() -> None:
    """The size of an axis of a tensor whose elements are not read."""
    d = Drawing()
    x, y = d.input("x", f32("B", "N")), d.input("y", f32("N"))
    mean = d.node("mean", "Mean", d.node("ones", "OnesLike", x), d.constant("axes", np.array([0, 1], np.int32)),
                  type_=f32(), keep_dims=False)  # fmt: skip
    out = d.node("out", "Mul", d.node("e", "Exp", y), mean)
    with contextlib.suppress(Unsupported):
        body = expand(d.graph(), ["ones", "mean", "e", "out"], [out]).body
        verify_body(body, FUNCTIONS, REDUCERS)


# -- canonical_order by itself ---------------------------------------------------------------------------------


@tries(60)
@given(st.permutations(range(4)), st.booleans())
def test_inputs_are_numbered_as_steps_meet_them(order: list[int], swap: bool) -> None:
    """A sum of four different functions of four inputs, declared in any order."""
    functions = ("exp", "tanh", "sqrt", "abs")

    def build(declared: Sequence[int]) -> Ordered:
        b = BodyBuilder(FUNCTIONS, REDUCERS)
        inputs = {i: b.input(TensorType(DType.F32, shape_of("B"))) for i in declared}
        values = [b.apply(functions[i], inputs[i]) for i in range(4)]
        pairs = [(1, 0), (3, 2)] if swap else [(0, 1), (2, 3)]
        left, right = (b.apply("add", values[i], values[j]) for i, j in pairs)
        return canonical_order(b.finish([b.apply("sub", left, right)]))

    found = build(order)
    assert print_body(found.body) == print_body(build(range(4)).body)
    assert sorted(found.inputs) == [0, 1, 2, 3]


@pytest.mark.parametrize("function", ["sub", "div", "maximum", "minimum", "less"])
def test_what_does_not_commute_is_left_alone(function: str) -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, y = (b.input(TensorType(DType.F32, shape_of("B"))) for _ in range(2))
    one, other = b.apply("exp", x), b.apply("tanh", y)
    forward = canonical_order(b.finish([b.apply(function, one, other)])).body
    backward = canonical_order(b.finish([b.apply(function, other, one)])).body
    assert print_body(forward) != print_body(backward)
