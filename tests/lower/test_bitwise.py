"""The same bits whatever runs beside: in each run, with any number of threads, in any order, alone or in a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.golden.clusters import BY_NAME, arguments_of, traced
from tests.lower.building import Lowered, compiled, lowered
from tests.lower.comparison import same_bits
from tests.lower.compiled import Compiled, Host
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower.cpu import Driver
from tf_stitch.ops import FUNCTIONS, REDUCERS

Array = np.ndarray[Any, np.dtype[Any]]

NAMES = (
    "layer_norm", "log_softmax", "max_and_softmax", "l2_normalise", "gelu_erf", "chain", "lstm", "batch_norm",
    "bias_activation", "split_heads",
)  # fmt: skip
HOSTS = (
    Host(threads=1, order="reversed"),
    Host(threads=2, order="forward", chunk=2),
    Host(threads=8, order="strided"),
    Host(threads=8, pool=4, order="forward", chunk=3),
    Host(threads=2, order="strided", cache_bytes=0),
)


def total() -> Body:
    """A sum of everything."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("R", "N")))
    return b.finish([b.reduce("sum", b.apply("square", x), [0, 1])])


def everything() -> Body:
    """All reducers of one long row, and a row that needs two of them."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("R", "N")))
    biggest = b.reduce("max", x, [1], keep_dims=True)
    mean = b.reduce("sum", b.apply("sub", x, biggest), [1], keep_dims=True)
    outputs = [b.apply("mul", x, mean), b.reduce("min", x, [1]), b.reduce("prod", x, [1])]
    return b.finish([*outputs, b.reduce("any", b.apply("greater", x, mean), [1])])


@pytest.fixture(scope="module")
def kernels() -> dict[str, tuple[Lowered, Compiled]]:
    bodies = {name: traced(name).clustering.clusters[0].body for name in NAMES}
    bodies |= {"total": total(), "everything": everything()}
    made = [lowered(body, name) for name, body in bodies.items()]
    return dict(zip(bodies, zip(made, compiled(made), strict=True), strict=True))


def fed(name: str, sizes: dict[str, int]) -> list[Array]:
    """Inputs of a kernel, in its order."""
    if name not in BY_NAME:
        return [np.random.default_rng(1).standard_normal((sizes["R"], sizes["N"]), np.float32)]
    arguments = arguments_of(BY_NAME[name], BY_NAME[name].static | sizes, DType.F32)
    by_name = {t.op.name: a for t, a in zip(traced(name).concrete.inputs, arguments, strict=True)}
    return [by_name[value.node] for value in traced(name).clustering.clusters[0].inputs]


def assert_same(found: list[Array], wanted: list[Array], what: str) -> None:
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert same_bits(mine, theirs), f"{what}: output {number}"


@pytest.mark.parametrize("name", [*NAMES, "total", "everything"])
def test_threads_and_their_order_change_nothing(name: str, kernels: dict[str, tuple[Lowered, Compiled]]) -> None:
    _, kernel = kernels[name]
    for sizes in ({"R": 37, "N": 129, "M": 160}, {"R": 3, "N": 20_011}, {"R": 1, "N": 70_000}):
        inputs = fed(name, sizes)
        alone = kernel(inputs)
        assert_same(kernel(inputs), alone, f"{name} {sizes}, again")
        for host in HOSTS:
            assert_same(kernel(inputs, host), alone, f"{name} {sizes} {host.threads} threads {host.order}")


@pytest.mark.parametrize("name", ["layer_norm", "log_softmax", "max_and_softmax", "l2_normalise", "everything"])
def test_few_long_rows_are_split_without_changing_a_bit(
    name: str, kernels: dict[str, tuple[Lowered, Compiled]]
) -> None:
    made, kernel = kernels[name]
    assert [s.driver for s in made.schedules] == [Driver.ROWS_OR_SPLIT]
    inputs = fed(name, {"R": 2, "N": 20_011})
    rows, split = Host(threads=1, order="forward"), Host(threads=8, order="forward")
    assert_same(kernel(inputs, split), kernel(inputs, rows), name)
    assert rows.loops == [2]
    assert split.loops == [2 * 5] * len(made.kernel.nests[0].sweeps)  # blocks of 4096


@pytest.mark.parametrize("name", ["layer_norm", "log_softmax", "max_and_softmax", "gelu_erf", "chain"])
def test_a_row_gives_the_same_alone_and_in_any_batch(name: str, kernels: dict[str, tuple[Lowered, Compiled]]) -> None:
    _, kernel = kernels[name]
    rows = 7
    for length in (1, 33, 768, 10_001):
        inputs = fed(name, {"R": rows, "N": length})
        batched = kernel(inputs, Host(threads=2))
        for row in range(rows):
            one = [a[row : row + 1] if a.ndim == 2 else a for a in inputs]
            alone = kernel(one, Host(threads=8))
            assert_same(alone, [out[row : row + 1] for out in batched], f"{name} of {length}, row {row}")


def test_a_sum_of_many_terms_loses_nothing(kernels: dict[str, tuple[Lowered, Compiled]]) -> None:
    """A part in ten million, where adding one by one is off by a part in a hundred."""
    _, kernel = kernels["total"]
    x = np.full((1000, 3000), np.sqrt(np.float32(0.1)), np.float32)
    exact = np.sum(np.square(x).astype(np.float64))
    (found,) = kernel([x])
    assert abs(float(found) - exact) <= 1e-6 * exact
