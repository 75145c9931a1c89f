"""CUDA kernels on the emulator: against the interpreter, at odd sizes, in each version that may run; and their bits."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.golden.clusters import NAMED, Named, arguments_of, traced
from tests.lower.comparison import assert_near, same_bits
from tests.lower.emulated import Emulated, emulated, lowered_for_gpu
from tests.lower.test_gpu import BODIES, column_sums, softmax
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower import interp
from tf_stitch.lower.gpu import SMALL
from tf_stitch.ops import FUNCTIONS, REDUCERS

Array = np.ndarray[Any, np.dtype[Any]]

CASES = [(n, d, s) for n in NAMED for d in n.dtypes for s in (False, True) if d is n.dtypes[0] or not s]


@functools.cache
def kernel_of(name: str, dtype: DType, static: bool) -> Emulated:
    (cluster,) = traced(name, dtype, static=static).clustering.clusters
    return emulated(lowered_for_gpu(cluster.body, name))


@functools.cache
def body_kernel(name: str) -> Emulated:
    return emulated(lowered_for_gpu(BODIES[name]))


def fed(named: Named, dtype: DType, static: bool, sizes: Any) -> list[Array]:
    """Inputs of the named cluster's kernel, in its order."""
    found = traced(named.name, dtype, static=static)
    (cluster,) = found.clustering.clusters
    arguments = arguments_of(named, sizes, dtype)
    by_name = {t.op.name: a for t, a in zip(found.concrete.inputs, arguments, strict=True)}
    return [by_name[value.node] for value in cluster.inputs]


def drawn(kernel: Emulated, *sizes: int, seed: int = 0) -> list[Array]:
    """Inputs for a body's kernel, whose symbols have these values in turn."""
    made = kernel.made.kernel
    symbols = {s.symbol: n for s, n in zip(made.symbols, sizes, strict=True)}
    random = np.random.default_rng(seed)
    shapes = [[d.evaluate(symbols) for d in t.dims] for t in made.inputs if t is not None]
    types = [t.dtype.numpy for t in made.inputs if t is not None]
    return [random.standard_normal(s).astype(t) for s, t in zip(shapes, types, strict=True)]


def agree(kernel: Emulated, inputs: list[Array], what: str) -> None:
    """Every version that may run gives what the interpreter does."""
    wanted = interp.run(kernel.made.kernel, inputs)
    for variant in kernel.variants(inputs):
        for mine, other in zip(kernel(inputs, variant), wanted, strict=True):
            assert_near(mine, other, what=f"{variant.entry} of {what}")


# -- against the interpreter -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("named", "dtype", "static"), CASES, ids=lambda v: getattr(v, "name", str(v)).lower())
def test_named_clusters_compute_what_the_interpreter_does(named: Named, dtype: DType, static: bool) -> None:
    kernel = kernel_of(named.name, dtype, static)
    for sizes in (named.static,) if static else (named.static, *named.sizes):
        agree(kernel, fed(named, dtype, static, sizes), f"{named.name} {dtype.value} {dict(sizes)}")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("softmax", (2, 300)),
        ("softmax", (3, 2049)),
        ("softmax", (2, 9001)),
        ("softmax of halves", (3,)),
        ("a sum of everything", (37, 129)),
        ("a sum of everything", (1, 1)),
        ("a sum of everything", (0, 5)),
        ("all reducers", (2, 33)),
        ("all reducers", (3, 4097)),
        ("batch norm", (1, 1)),
        ("batch norm", (33, 31)),
        ("batch norm", (1031, 65)),
        ("batch norm", (4100, 3)),
        ("a softmax in the middle", (3, 33, 5)),
        ("a softmax in the middle", (2, 300, 40)),
        ("a layer norm's gradient", (31, 33)),
        ("a layer norm's gradient", (1, 1023)),
        ("a layer norm's gradient of 96", (700,)),
        ("a transpose", (31, 33)),
        ("a transpose", (0, 3)),
    ],
)
def test_bodies_compute_what_the_interpreter_does(name: str, sizes: tuple[int, ...]) -> None:
    kernel = body_kernel(name)
    agree(kernel, drawn(kernel, *sizes), f"{name} {sizes}")


def test_a_wide_kernel_counts_in_64_bits() -> None:
    """The same numbers in both, where both may run; what may not is told apart by the shape."""
    kernel = body_kernel("softmax")
    texts = kernel.made.text.split('extern "C"')[1:]
    assert ["const i64 row " in t for t in texts] == [False] * (len(texts) - 1) + [True]
    launch = kernel.made.schedules.launch
    assert launch.chosen({"B": SMALL // 100, "N": 99}).conditions
    assert not launch.chosen({"B": SMALL // 10, "N": 99}).conditions


# -- bits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [33, 250, 1500, 9001])
def test_a_row_alone_has_the_bits_that_it_has_in_a_batch(length: int) -> None:
    """Also where the rows of a batch go to a block each, and a row alone is cut in pieces."""
    kernel = body_kernel("all reducers")
    random = np.random.default_rng(1)
    batch = random.standard_normal((60, length)).astype(np.float32)
    together = kernel([batch])
    alone = [kernel([batch[n : n + 1]]) for n in range(3)]
    for n, results in enumerate(alone):
        for mine, all_ in zip(results, together, strict=True):
            assert same_bits(mine, np.ascontiguousarray(all_[n : n + 1])), f"row {n} of {length}"


def test_versions_for_the_same_length_give_the_same_bits() -> None:
    """SPLIT, a block with its tile in shared memory, and one with its tile in scratch."""
    kernel = body_kernel("softmax")
    inputs = drawn(kernel, 2, 9001)
    variants = kernel.variants(inputs)
    assert len(variants) == 4
    first, *others = [kernel(inputs, v) for v in variants]
    for other in others:
        assert all(same_bits(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ["all reducers", "batch norm", "a layer norm's gradient"])
def test_bits_do_not_depend_on_the_grid_or_the_order_of_threads(name: str) -> None:
    kernel = body_kernel(name)
    inputs = drawn(kernel, 513, 40)
    wanted = kernel(inputs, multiprocessors=4)
    for multiprocessors, seed in ((1, None), (2, 1), (3, 2)):
        ours = kernel(inputs, multiprocessors=multiprocessors, seed=seed)
        assert all(same_bits(a, b) for a, b in zip(ours, wanted, strict=True)), f"{multiprocessors} {seed}"


@pytest.mark.parametrize("named", NAMED, ids=lambda n: n.name)
def test_buffers_of_inputs_may_be_taken(named: Named) -> None:
    """Computing in place of an input gives the same bits, whatever the order of the threads."""
    dtype = named.dtypes[0]
    kernel = kernel_of(named.name, dtype, False)
    for sizes in (named.static, *named.sizes[:3]):
        inputs = fed(named, dtype, False, sizes)
        for variant in kernel.variants(inputs):
            apart = kernel(inputs, variant)
            for seed in (None, 3):
                for mine, wanted in zip(kernel(inputs, variant, forward=True, seed=seed), apart, strict=True):
                    assert same_bits(mine, wanted), f"{variant.entry} {dict(sizes)}"


# -- races -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("softmax", (2, 9001)),
        ("all reducers", (9, 70)),
        ("batch norm", (600, 9)),
        ("a layer norm's gradient", (13, 33)),
        ("a softmax in the middle", (2, 300, 9)),
    ],
)
def test_nothing_races(name: str, sizes: tuple[int, ...]) -> None:
    watched = emulated(body_kernel(name).made, "thread")
    inputs = drawn(watched, *sizes)
    for variant in watched.variants(inputs):
        watched(inputs, variant, multiprocessors=1)


# -- text ------------------------------------------------------------------------------------------------------


def test_many_nests_that_are_alike_share_a_function() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    lengths = (4096, 768, 1024, 8, 2048)
    outputs: list[int] = []
    for n in lengths:
        w, g = (b.input(TensorType(DType.F32, shape_of(n))) for _ in range(2))
        outputs.append(b.apply("sub", w, b.apply("mul", g, b.constant(0.1, DType.F32))))
    made = lowered_for_gpu(b.finish(outputs), "update")
    assert made.text.count("__noinline__") == 1
    assert made.text.count("unit = update_0(unit,") == len(lengths)
    kernel = emulated(made)
    agree(kernel, drawn(kernel), "update")
    assert kernel.variants(drawn(kernel))[0].grid({}, 108) == 4 + 1 + 1 + 1 + 2


def test_reductions_that_are_alike_share_a_function_and_no_memory() -> None:
    """One behind another in a phase: what the warps of one leave is not overwritten by those of the next."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    inputs = [b.input(TensorType(DType.F32, shape_of(6, 3000))) for _ in range(4)]
    made = lowered_for_gpu(b.finish([b.reduce("sum", x, [1]) for x in inputs]), "sums")
    kernel = emulated(made)
    for seed in (None, 1, 2):
        arrays = drawn(kernel, seed=7)
        for mine, x in zip(kernel(arrays, multiprocessors=1, seed=seed), arrays, strict=True):
            np.testing.assert_allclose(mine, x.sum(1), rtol=1e-4, atol=1e-3)


def test_a_short_kernel_reads_as_one_writes_it() -> None:
    text = lowered_for_gpu(softmax(4096, 96), "softmax").text
    assert len(text.splitlines()) < 80
    assert "across<Sum, 32>" in text
    assert "__syncthreads" not in text


def test_names_of_nodes_cannot_be_those_of_the_printer() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(5, 40)))
    value = x
    for b.origin in (
        "lane",
        "unit",
        "thread",
        "row",
        "piece",
        "v",
        "k",
        "depth",
        "sum_part",
        "x_at",
        "index",
        "sum_parts0",
    ):
        value = b.apply("neg", value)
    kernel = emulated(lowered_for_gpu(b.finish([b.reduce("sum", value, [1]), value])))
    agree(kernel, drawn(kernel), "odd names")


def test_names_of_nodes_may_be_those_of_the_kernel() -> None:
    """Of a symbol, of another node's output, of an input."""
    for rows in ("N", 5):
        b = BodyBuilder(FUNCTIONS, REDUCERS)
        b.origin = "x"
        value = x = b.input(TensorType(DType.F32, shape_of(rows, 40)))
        for b.origin in ("N", "x_in", "mul_out", "mul", "sum_scratch", "sum"):
            value = b.apply("neg", value)
        b.origin = "mul"
        total = b.reduce("sum", value, [1], keep_dims=True)
        b.origin = "mul_out"
        whole = b.reduce("sum", b.apply("mul", value, total), [0])
        kernel = emulated(lowered_for_gpu(b.finish([b.apply("mul", x, total), value, whole])))
        agree(kernel, drawn(kernel, *([5] if rows == "N" else [])), "names of the kernel's own")


def test_pieces_of_one_output_are_stored_side_by_side() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(5, 8)))
    kernel = emulated(lowered_for_gpu(b.finish([b.concat([x, b.apply("neg", x), x], 1)])))
    agree(kernel, drawn(kernel), "pieces")


def test_columns_that_are_no_whole_warp_leave_their_neighbours_alone() -> None:
    kernel = emulated(lowered_for_gpu(column_sums("N", 33)))
    agree(kernel, drawn(kernel, 1000), "33 columns")


def _halves() -> Body:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.widen(b.input(TensorType(DType.F16, shape_of("N"))))
    return b.finish([b.convert(b.apply("mul", x, x), DType.F16)])


@pytest.mark.parametrize("length", [1, 7, 8, 4096, 4097])
def test_tails_of_halves(length: int) -> None:
    kernel = emulated(lowered_for_gpu(_halves(), "square"))
    inputs = drawn(kernel, length)
    assert kernel.variants(inputs)[0].entry == ("square_0" if length % 8 == 0 else "square_1")
    agree(kernel, inputs, f"{length} halves")
