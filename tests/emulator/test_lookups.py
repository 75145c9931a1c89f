"""What kernels for GPUs look up in tables, and places that are numbers: in every kind of loop, on the emulator.

An index that is out of range finds a 0 there, as in TensorFlow's kernels for GPUs; on a CPU it raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.emulator.emulated import compile_kernel
from tests.lower import test_gather, test_iota
from tests.lower.emulated import A100, Emulated, LoweredForGpu, lowered_for_gpu
from tests.lower.test_gather import Array, body_of, gather, gather_nd, plain, typed
from tests.prelude.cuda import compiled
from tf_stitch.backends import rendered
from tf_stitch.config import Config
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.graph import Node
from tf_stitch.ir.types import Dim, DType
from tf_stitch.ir.verify import BrokenInvariant
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.gpu import GpuSchedules, Mapping
from tf_stitch.lower.gpu_verify import verify_gpu
from tf_stitch.lower.kernel import Load, Nest, Place, Statement, statements
from tf_stitch.ops import OPS, Operands
from tf_stitch.plan.groups import plan_groups
from tf_stitch.runtime.reference import evaluate
from tf_stitch.toolchain.artifact import CudaSource

Build = Callable[[BodyBuilder], list[int]]


def layer_norm(b: BodyBuilder, width: int | str, dtype: DType = DType.F32, index: DType = DType.I32) -> list[int]:
    """Of words and their places: each sweep reads what was looked up."""
    words = gather(b, b.input(typed(dtype, 50, width)), b.input(typed(index, "B", "S")))
    x = b.apply("add", b.widen(words), b.widen(b.input(typed(dtype, "S", width))))
    centred = b.apply("sub", x, b.reduce("sum", x, [-1], keep_dims=True))
    squares = b.reduce("sum", b.apply("mul", centred, centred), [-1], keep_dims=True)
    return [b.convert(b.apply("div", centred, squares), dtype)]


def wide_layer_norm(b: BodyBuilder) -> list[int]:
    return layer_norm(b, 64)


def half_layer_norm(b: BodyBuilder) -> list[int]:
    return layer_norm(b, 72, DType.F16, DType.I64)


def brain_layer_norm(b: BodyBuilder) -> list[int]:
    return layer_norm(b, "H", DType.BF16)


def rows_over_their_greatest(b: BodyBuilder) -> list[int]:
    """What is looked up, and nothing that is computed of it, is read again."""
    x = gather(b, b.input(typed(DType.F32, 50, 64)), b.input(typed(DType.I32, "B")))
    return [b.apply("div", x, b.reduce("max", x, [1], keep_dims=True))]


def rows_of_halves(b: BodyBuilder) -> list[int]:
    """Eight neighbours to a thread, of two dtypes."""
    indices = b.input(typed(DType.I32, "B"))
    tables = [b.input(typed(dtype, 50, 24)) for dtype in (DType.F16, DType.BF16)]
    return [b.apply("neg", gather(b, table, indices)) for table in tables]


def diagonal(b: BodyBuilder) -> list[int]:
    """Both indices change from element to element, beside what is read in vectors."""
    found = gather_nd(b, b.input(typed(DType.F32, 9, 11)), b.input(typed(DType.I64, "B", 32, 2)))
    return [b.apply("mul", found, b.input(typed(DType.F32, "B", 32)))]


def a_row_and_a_place(b: BodyBuilder) -> list[int]:
    """One index for the row, one for each of its elements."""
    table = b.input(typed(DType.F32, 9, 50))
    row = gather(b, table, b.input(typed(DType.I32)))
    places = gather(b, b.input(typed(DType.F32, "B", 50)), b.input(typed(DType.I32, 16)), 1)
    return [b.apply("exp", row), places]


def scaled_channels(b: BodyBuilder) -> list[int]:
    """A parameter that is looked up and computed with, once for each channel: it is computed for each row instead."""
    scale = gather(b, b.input(typed(DType.F32, 50)), b.input(typed(DType.I32, 24)))
    x = b.input(typed(DType.F32, "N", 24))
    return [b.apply("mul", x, b.broadcast(b.apply("rsqrt", b.apply("rsqrt", scale)), b.shape(x)))]


def bag(b: BodyBuilder) -> list[int]:
    """Rows of a table, added up: neighbours are those of a row."""
    x = gather(b, b.input(typed(DType.F32, 50, 40)), b.input(typed(DType.I32, "N")))
    return [b.reduce("sum", b.apply("mul", x, b.input(typed(DType.F32, "N", 1))), [0])]


def gradient_of_rows(b: BodyBuilder) -> list[int]:
    """Rows, and sums down their columns, of what is looked up and of what is counted: the nests are joined."""
    words = gather(b, b.input(typed(DType.F32, 50, 96)), b.input(typed(DType.I32, "N")))
    gradient, labels = b.input(typed(DType.F32, "N", 96)), b.input(typed(DType.I32, "N", 1))
    chosen = b.convert(b.apply("equal", labels, b.iota(b.shape(gradient)[1], DType.I32)), DType.F32)
    x = b.apply("add", b.apply("mul", words, gradient), chosen)
    mean = b.reduce("sum", x, [1], keep_dims=True)
    return [b.apply("sub", x, mean), b.reduce("sum", x, [0])]


def same_names(b: BodyBuilder) -> list[int]:
    """Values that are called as the kernel's buffers are."""
    b.origin = "x"
    indices = b.input(typed(DType.I32, "B"))
    b.origin = "indices"
    return [b.apply("neg", gather(b, b.input(typed(DType.F32, 50, 8)), indices))]


def nothing(b: BodyBuilder) -> list[int]:
    """A table of no rows: every index is out of range."""
    return [b.apply("cos", gather(b, b.input(typed(DType.F32, 0, 12)), b.input(typed(DType.I32, "B"))))]


MORE: list[Build] = [
    wide_layer_norm,
    half_layer_norm,
    brain_layer_norm,
    rows_over_their_greatest,
    rows_of_halves,
    diagonal,
    a_row_and_a_place,
    scaled_channels,
    bag,
    gradient_of_rows,
    same_names,
    nothing,
]
LOOKUPS = [*test_gather.CASES, *MORE]
SIZES = (
    {"B": 3, "S": 5, "H": 67, "N": 2051, "K": 4},
    {"B": 1, "S": 1, "H": 1, "N": 1, "K": 1},
    {"B": 40, "S": 2, "H": 16, "N": 33, "K": 67},
    {"B": 0, "S": 2, "H": 16, "N": 0, "K": 0},
)


@functools.cache
def made(build: Build) -> tuple[Body, LoweredForGpu]:
    body = body_of(build)
    return body, lowered_for_gpu(body, build.__name__)


@functools.cache
def emulated(build: Build) -> Emulated:
    _, lowered = made(build)
    return Emulated(lowered, compile_kernel(lowered.text))


def drawn(body: Body, symbols: dict[str, int], *, in_range: bool) -> list[Array]:
    """Inputs; of indices, some that are negative, behind the last, and as far from both as can be."""
    random = np.random.default_rng(7)
    found: list[Array] = []
    for number, type_ in enumerate(body.inputs):
        assert type_ is not None
        shape = [d.evaluate(symbols) for d in type_.dims]
        limits = [w.below.evaluate(symbols) for w in body.indices if w.input == number]
        if not limits and type_.dtype.is_float:
            found.append(random.integers(-8, 9, shape).astype(type_.dtype.numpy))  # so that sums are exact
            continue
        below = min(limits, default=50)
        if in_range or not limits:
            found.append(random.integers(0, max(below, 1), shape).astype(type_.dtype.numpy))
            continue
        bounds = np.iinfo(type_.dtype.numpy)
        wrong = np.array([-1, below, bounds.min, bounds.max, below + 1, -below], type_.dtype.numpy)
        right = random.integers(0, max(below, 1), shape).astype(type_.dtype.numpy)
        found.append(np.where(random.random(shape) < 0.3, random.choice(wrong, shape), right))
    return found


@pytest.mark.parametrize("in_range", [True, False])
@pytest.mark.parametrize("build", LOOKUPS, ids=lambda b: b.__name__)
def test_emulated_is_interpreted_is_referenced(build: Build, in_range: bool) -> None:
    """In every version of the kernel that may run, and with outputs in the buffers of inputs."""
    body, lowered = made(build)
    kernel = emulated(build)
    for symbols in SIZES:
        inputs = drawn(body, symbols, in_range=in_range)
        wanted = evaluate(body, inputs, symbols, guarded=False)
        variants = kernel.variants(inputs)
        kernels = {v.variant.entry: v.kernel for v in lowered.schedules.versions}
        for variant in variants:
            seen = interp.run(kernels[variant.entry], inputs, guarded=False)
            for forward in (False, True):
                mine = kernel(inputs, variant, forward=forward)
                for ours, inner, other in zip(mine, seen, wanted, strict=True):
                    tolerance = 2e-5 if ours.dtype in (np.float32, np.float64) else 1e-2
                    np.testing.assert_allclose(plain(inner), plain(other), rtol=tolerance, atol=1e-4)
                    np.testing.assert_allclose(plain(ours), plain(other), rtol=tolerance, atol=1e-4)


@pytest.mark.parametrize("build", test_iota.CASES, ids=lambda b: b.__name__)
def test_places_are_numbers(build: Build) -> None:
    body, lowered = made(build)
    kernel = Emulated(lowered, compile_kernel(lowered.text))
    for symbols in ({"B": 3, "N": 67, "C": 5}, {"B": 1, "N": 1, "C": 1}, {"B": 33, "N": 1030, "C": 2}):
        inputs = drawn(body, symbols, in_range=True)
        wanted = evaluate(body, inputs, symbols)
        for variant in kernel.variants(inputs):
            for ours, other in zip(kernel(inputs, variant), wanted, strict=True):
                np.testing.assert_allclose(plain(ours), plain(other), rtol=2e-5, atol=1e-3)


def test_nvrtc_takes_them() -> None:
    builds = [*LOOKUPS, *test_iota.CASES]
    texts = [made(build)[1].text for build in {b.__name__: b for b in builds}.values()]
    assert compiled("\n".join(texts), "sm_90")


# -- how they are scheduled ------------------------------------------------------------------------------------


def chosen(build: Build, **symbols: int) -> GpuSchedules:
    schedules = made(build)[1].schedules
    entry = schedules.launch.chosen(symbols).entry
    version = next(v for v in schedules.versions if v.variant.entry == entry)
    return GpuSchedules(schedules.launch, (version,))


def test_rows_of_a_table_are_read_in_vectors() -> None:
    """Where the index is the same for neighbours; and their own index is no reason not to read the rest in vectors."""
    wanted = {rows_of_halves: [8], wide_layer_norm: [4], a_row_and_a_place: [4, 2], test_gather.embedding: [1]}
    for build, vectors in wanted.items():
        (version,) = chosen(build, B=3, S=5, H=67).versions
        assert [s.vector for s in version.schedules] == vectors


def test_what_is_looked_up_is_kept_and_its_index_read_once() -> None:
    for build in (rows_over_their_greatest, test_gather.long_rows):
        (version,) = chosen(build, B=3, N=33).versions
        (nest,) = version.kernel.nests
        loads = [s for s in statements(nest) if isinstance(s, Load)]
        assert sum(bool(s.at) for s in loads) == 1
        assert sum(s.dtype is DType.I32 for s in loads) == 1
        assert sum(s.access.buffer.place is Place.TILE for s in loads) == 1


def test_nests_of_lookups_are_inlined_and_joined() -> None:
    (version,) = chosen(scaled_channels, N=33).versions
    assert len(version.kernel.nests) == 1
    (version,) = chosen(gradient_of_rows, N=2051).versions
    assert [s.joined for s in version.schedules] == [True, True]
    assert [s.mapping for s in version.schedules] == [Mapping.BLOCKS, Mapping.COLUMNS_SPLIT]


def test_rows_that_are_looked_up_are_added_up_down_their_columns() -> None:
    for build in (bag, test_gather.columns):
        (version,) = chosen(build, N=2051).versions
        assert [s.mapping for s in version.schedules] == [Mapping.COLUMNS_SPLIT]


def test_a_tables_memory_is_never_an_outputs() -> None:
    for build in LOOKUPS:
        _, lowered = made(build)
        for version in lowered.schedules.versions:
            kernel = version.kernel
            loads = [s for nest in kernel.nests for s in statements(nest) if isinstance(s, Load)]
            assert not {s.access.buffer.index for s in loads if s.at} & {source for source, _ in kernel.forwards}


def test_the_verifier_names_a_table_that_is_written() -> None:
    schedules = made(diagonal)[1].schedules
    broken = tuple(replace(v, kernel=replace(v.kernel, forwards=((0, 0),))) for v in schedules.versions)
    with pytest.raises(BrokenInvariant, match="it is a table, which is read anywhere"):
        verify_gpu(GpuSchedules(schedules.launch, broken), A100)


def test_the_verifier_names_rows_of_a_table_that_begin_within_a_vector() -> None:
    schedules = made(rows_of_halves)[1].schedules

    def moved(s: Statement) -> Statement:
        return replace(s, at=tuple(replace(a, stride=Dim(20)) for a in s.at)) if isinstance(s, Load) else s

    def broken(nest: Nest) -> Nest:
        sweeps = tuple(replace(s, elements=tuple(map(moved, s.elements))) for s in nest.sweeps)
        return replace(nest, sweeps=sweeps)

    versions = tuple(
        replace(v, kernel=replace(v.kernel, nests=tuple(map(broken, v.kernel.nests)))) for v in schedules.versions
    )
    with pytest.raises(BrokenInvariant, match="a vector at a multiple of its size"):
        verify_gpu(GpuSchedules(schedules.launch, versions), A100)


# -- labels ----------------------------------------------------------------------------------------------------


def cross_entropy(b: BodyBuilder) -> list[int]:
    node = Node("loss", "SparseSoftmaxCrossEntropyWithLogits", (), ())
    values = (b.input(typed(DType.F32, "B", "C")), b.input(typed(DType.I64, "B")))
    found = OPS[node.op].expand(b, Operands(node, values, (None, None), (None, None)))
    assert not isinstance(found, int)
    return [value for value in found if value is not None]


@pytest.mark.parametrize("classes", [1, 10, 2000])
def test_a_label_that_no_class_has_makes_its_row_nan(classes: int) -> None:
    kernel = emulated(cross_entropy)
    logits = np.random.default_rng(1).standard_normal((7, classes)).astype(np.float32)
    labels = np.array([0, -1, classes - 1, classes, 0, 2**40, -(2**63)])
    wrong = (labels < 0) | (labels >= classes)
    wanted = evaluate(made(cross_entropy)[0], [logits, labels], {"B": 7, "C": classes}, guarded=False)
    for variant in kernel.variants([logits, labels]):
        for mine, other in zip(kernel([logits, labels], variant), wanted, strict=True):
            nan = np.isnan(mine)
            assert np.array_equal(nan, np.broadcast_to(wrong.reshape([-1, *[1] * (mine.ndim - 1)]), mine.shape))
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


# -- how a model comes to them ---------------------------------------------------------------------------------


def test_the_host_does_not_look_at_indices() -> None:
    """It cannot: they are in the GPU's memory."""
    body, _ = made(test_gather.embedding)
    source = rendered(lower(plan_groups(body), "embedding"), (A100,), Config()).source
    assert isinstance(source, CudaSource)
    assert "indices_within" not in source.host
    assert "within(" in source.text
