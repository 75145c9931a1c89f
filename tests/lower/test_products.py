"""Products of small matrices: the same answers at any size, and the same bits whoever computes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.lower.building import compiled, lowered, toolchain
from tests.lower.columns import Kernels, assert_bits_do_not_depend_on_threads, assert_right, inputs_of, kernels_of
from tests.lower.comparison import same_bits
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.lower.cpu import Driver
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.ops.products import matrix_product
from tf_stitch.plan.plan import Scheme


def builder() -> BodyBuilder:
    return BodyBuilder(FUNCTIONS, REDUCERS)


def f32(*dims: int | str) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def dense(columns: int, depth: int | str = 7, dtype: DType = DType.F32) -> Body:
    """relu(x @ w + b)"""
    b = builder()
    x, w, bias = (b.input(TensorType(dtype, shape_of(*s))) for s in (("B", depth), (depth, columns), (columns,)))
    return b.finish([b.apply("relu", b.apply("add", matrix_product(b, x, w), bias))])


def turned() -> Body:
    """transpose(x) @ w: rows of x lie crosswise."""
    b = builder()
    x, w = b.input(f32("K", "B")), b.input(f32("K", 20))
    return b.finish([matrix_product(b, b.transpose(x, (1, 0)), w)])


def turned_weights() -> Body:
    """x @ transpose(w): w is stored the other way round first."""
    b = builder()
    x, w = b.input(f32("B", 13)), b.input(f32(20, 13))
    return b.finish([matrix_product(b, x, b.transpose(w, (1, 0)))])


def two_at_a_time() -> Body:
    """x @ v + h @ w, of one depth: both in one loop nest."""
    b = builder()
    x, v, h, w = (b.input(f32(*s)) for s in (("B", 9), (9, 33), ("B", 9), (9, 33)))
    return b.finish([b.apply("add", matrix_product(b, x, v), matrix_product(b, h, w))])


def recurrent() -> Body:
    """A GRU's step: both of its products read concatenations, and the second what follows from the first."""
    b = builder()
    x, h, w, v = (b.input(f32(*s)) for s in (("B", 5), ("B", 6), (11, 12), (11, 6)))
    gates = b.apply("sigmoid", matrix_product(b, b.concat([x, h], 1), w))
    reset, update = (b.slice(gates, (0, n), (b.shape(x)[0], Dim(6))) for n in (0, 6))
    new = b.apply("tanh", matrix_product(b, b.concat([x, b.apply("mul", reset, h)], 1), v))
    kept = b.apply("mul", update, h)
    return b.finish([b.apply("add", kept, b.apply("mul", b.apply("sub", b.constant(1, DType.F32), update), new))])


def heads() -> Body:
    """What two heads have found, side by side, times w: put together where it is multiplied, k would go in leaps."""
    b = builder()
    x, w = b.input(f32("B", 2, 3, 4)), b.input(f32(8, 20))
    together = b.reshape(b.transpose(x, (0, 2, 1, 3)), (Dim(3, ("B",)), Dim(8)))
    return b.finish([matrix_product(b, together, w)])


def residual(columns: int) -> Body:
    """x + x @ w: x may not be overwritten, as long as it is multiplied."""
    b = builder()
    x, w = b.input(f32("B", columns)), b.input(f32(columns, columns))
    return b.finish([b.apply("add", x, matrix_product(b, x, w))])


def perceptron() -> Body:
    """relu(relu(x @ v) @ w) @ v, as deep as it is wide: each could run over the elements of the one before."""
    b = builder()
    x, v, w = b.input(f32("B", 24)), b.input(f32(24, 24)), b.input(f32(24, 24))
    for weights in (v, w, v):
        x = b.apply("relu", matrix_product(b, x, weights))
    return b.finish([x])


BODIES: dict[str, Body] = {
    **{f"dense_{n}": dense(n) for n in (2, 3, 4, 8, 13, 16, 20, 36, 64, 72, 100, 130, 300, 512)},
    "dense_f64": dense(37, dtype=DType.F64),
    "dense_deep": dense(36, depth="K"),
    "dense_wide": dense(600, depth="K"),
    "turned": turned(),
    "turned_weights": turned_weights(),
    "two_at_a_time": two_at_a_time(),
    "recurrent": recurrent(),
    "perceptron": perceptron(),
    "heads": heads(),
    "residual": residual(24),
    "residual_wide": residual(300),
}
SIZES = [{"B": b, "K": k} for b, k in ((0, 3), (1, 0), (1, 1), (5, 2), (6, 300), (7, 5), (8, 8), (29, 31), (200, 3))]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return kernels_of(BODIES)


@pytest.mark.parametrize("name", BODIES)
def test_any_number_of_rows_and_columns(name: str, kernels: Kernels) -> None:
    made, kernel = kernels[name]
    assert Driver.PRODUCTS in [s.driver for s in made.schedules]
    assert_right(made, kernel, BODIES[name], SIZES)


@pytest.mark.parametrize("name", BODIES)
def test_the_bits_do_not_depend_on_who_computes_them(name: str, kernels: Kernels) -> None:
    assert_bits_do_not_depend_on_threads(kernels[name][1], BODIES[name], SIZES)


@pytest.mark.parametrize("name", ["dense_72", "recurrent"])
def test_a_row_has_the_bits_that_it_has_alone(name: str, kernels: Kernels) -> None:
    made, kernel = kernels[name]
    inputs = inputs_of(BODIES[name], {"B": 23})
    of_rows = [type_ is not None and bool(type_.dims[0].symbols) for type_ in made.kernel.inputs]
    together = kernel(inputs)
    for row in (0, 5, 6, 20, 22):
        alone = [x[row : row + 1] if x is not None and r else x for x, r in zip(inputs, of_rows, strict=True)]
        for mine, theirs in zip(kernel(alone), together, strict=True):
            assert same_bits(mine[0], theirs[row])


@pytest.mark.parametrize("baseline", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_for_every_kind_of_vector(baseline: str) -> None:
    """Without a fused multiply-add, with 16 registers, with 32."""
    if not toolchain().target.features >= toolchain(baseline).target.features:
        pytest.skip(f"this CPU is no {baseline}")
    bodies = [dense(n) for n in (3, 20, 72, 130)] + [recurrent(), dense(9, dtype=DType.F64)]
    made = [lowered(body, target=toolchain(baseline).target) for body in bodies]
    for body, one, kernel in zip(bodies, made, compiled(made, baseline), strict=True):
        assert_right(one, kernel, body, [{"B": 5}, {"B": 23}])


def test_what_a_product_reads_is_stored_by_a_nest_before() -> None:
    plan = lowered(recurrent()).plan
    assert [bool(g.inner) for g in plan.groups] == [False, False, True, False, True]
    # x and h, side by side; the gates; h behind the reset gate; what is new, and the result
    assert Scheme.GLOBAL in plan.schemes.values()


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -0.0])
def test_what_is_no_number_stays_in_its_row(special: float, kernels: Kernels) -> None:
    _, kernel = kernels["dense_20"]
    x, w, bias = inputs_of(BODIES["dense_20"], {"B": 9})
    assert x is not None
    assert w is not None
    assert bias is not None
    plain = kernel([x, w, bias])[0]
    x = x.copy()
    x[4, 3] = special
    with np.errstate(invalid="ignore"):
        sums = x.astype(np.float64) @ w.astype(np.float64) + bias
        wanted = np.where(sums < 0, 0, sums)
    found = kernel([x, w, bias])[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    others = [r for r in range(9) if r != 4]
    assert same_bits(found[others], plain[others])


def unlike_products() -> dict[str, Callable[[BodyBuilder], int]]:
    """What looks like one, and has no columns that are neighbours in memory, or nothing but rows."""
    return {
        "a column": lambda b: matrix_product(b, b.input(f32("B", 7)), b.input(f32(7, 1))),
        "scaled": lambda b: matrix_product(b, b.input(f32("B", 7)), b.broadcast(b.input(f32(1, 1)), shape_of(7, 9))),
    }


@pytest.mark.parametrize("name", unlike_products())
def test_what_is_no_such_product_is_a_reduction_like_others(name: str) -> None:
    b = builder()
    body = b.finish([unlike_products()[name](b)])
    made = lowered(body)
    assert Driver.PRODUCTS not in [s.driver for s in made.schedules]
    assert_right(made, compiled([made])[0], body, [{"B": 5}, {"B": 40}])
