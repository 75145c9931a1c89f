"""Pieces of rows that keep values on chip across barriers of the grid: which, how much of them, and the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.lower.comparison import assert_near, same_bits
from tests.lower.emulated import A100, LoweredForGpu, emulated, lowered_for_gpu
from tests.lower.test_bitwise import everything
from tests.lower.test_down import middle, normalised
from tests.lower.test_gpu import early_softmax, softmax
from tests.lower.test_gpu_recomputing import masked_softmax
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.ir.verify import BrokenInvariant
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.gpu import schedule_gpu
from tf_stitch.lower.gpu_cost import shares_of
from tf_stitch.lower.gpu_cut import levels
from tf_stitch.lower.gpu_launch import Larger
from tf_stitch.lower.gpu_schedule import Home, Mapping, Version
from tf_stitch.lower.gpu_steps import Waves
from tf_stitch.lower.gpu_verify import verify_gpu
from tf_stitch.lower.gpu_waves import Kept, share_of
from tf_stitch.lower.kernel import Load, Nest, Place
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.groups import plan_groups
from tf_stitch.runtime.reference import evaluate

Array = np.ndarray[Any, np.dtype[Any]]


def gpu_with(kib: int, multiprocessors: int = 108) -> GpuTarget:
    """An A100 with so much shared memory in a multiprocessor, and in a block."""
    return replace(A100, shared_bytes=kib << 10, shared_bytes_of_block=(kib - 1) << 10, multiprocessors=multiprocessors)


def batch_norm_gradient(dtype: DType = DType.F32) -> Body:
    """Of batch norm and the relu behind it: dy is made of three inputs, and both it and x are needed once more."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, a, c, y = (b.widen(b.input(TensorType(dtype, shape_of("N", "C")))) for _ in range(4))
    zero = b.broadcast(b.constant(0, DType.F32), b.shape(x))
    dy = b.apply("select", b.apply("greater", y, zero), b.apply("add", a, c), zero)
    count = b.extent(b.shape(x)[0], DType.F32)
    mean = b.apply("div", b.reduce("sum", x, [0], keep_dims=True), count)
    centred = b.apply("sub", x, mean)
    dot = b.apply("div", b.reduce("sum", b.apply("mul", dy, centred), [0], keep_dims=True), count)
    dx = b.apply("sub", dy, b.apply("mul", centred, dot))
    return b.finish([b.convert(dx, dtype), b.reduce("sum", dy, [0])])


def layer_norm(*dims: int | str) -> Body:
    """Of a sum of two inputs, with parameters that all rows share."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.apply("add", *(b.input(TensorType(DType.F32, shape_of(*dims))) for _ in range(2)))
    gamma = b.broadcast(b.input(TensorType(DType.F32, shape_of(dims[-1]))), b.shape(x))
    count = b.extent(b.shape(x)[-1], DType.F32)
    mean = b.apply("div", b.reduce("sum", x, [-1], keep_dims=True), count)
    centred = b.apply("sub", x, mean)
    variance = b.apply("div", b.reduce("sum", b.apply("square", centred), [-1], keep_dims=True), count)
    return b.finish([b.apply("mul", b.apply("mul", centred, b.apply("rsqrt", variance)), gamma)])


def cross_entropy(*dims: int | str) -> Body:
    """A loss of each row, and its gradient: the last sweep stores, and sums."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, labels = (b.input(TensorType(DType.F32, shape_of(*dims))) for _ in range(2))
    t = b.apply("sub", x, b.reduce("max", x, [-1], keep_dims=True))
    e = b.apply("exp", t)
    total = b.reduce("sum", e, [-1], keep_dims=True)
    loss = b.reduce("sum", b.apply("mul", labels, b.apply("sub", b.apply("log", total), t)), [-1])
    return b.finish([loss, b.apply("sub", b.apply("div", e, total), labels)])


def nest_of(body: Body) -> Nest:
    (nest,) = lower(plan_groups(body), "kernel").nests
    return nest


def kept_names(body: Body) -> list[list[str]]:
    """What each level keeps."""
    return [[t.name.removesuffix("_tile") for t in level.tiles] for level in levels(nest_of(body))]


# -- what is kept ----------------------------------------------------------------------------------------------


def inputs_loaded(nest: Nest) -> list[int]:
    """How many inputs each sweep loads elements of."""
    places = [[s.access.buffer.place for s in sweep.elements if isinstance(s, Load)] for sweep in nest.sweeps]
    return [sum(place is Place.INPUT for place in found) for found in places]


def test_a_value_is_kept_instead_of_the_inputs_that_it_is_made_of() -> None:
    """dy first, which saves three loads; then x, which saves one."""
    found = levels(nest_of(batch_norm_gradient()))
    assert [len(level.tiles) for level in found] == [2, 1, 0]
    assert [inputs_loaded(level)[1:] for level in found[:2]] == [[0] * (len(found[0].sweeps) - 1), [1, 1]]
    assert inputs_loaded(found[-1]) == inputs_loaded(nest_of(batch_norm_gradient()))
    assert found[1].tiles == found[0].tiles[:1]


def test_parameters_that_all_rows_share_are_not_kept() -> None:
    found = levels(nest_of(layer_norm("B", "N")))
    assert [len(level.tiles) for level in found] == [1, 0]
    assert inputs_loaded(found[0]) == [2, 0, 1]
    assert inputs_loaded(found[1]) == [2, 2, 3]


def test_what_is_read_once_is_not_kept() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("N", "C")))
    assert levels(nest_of(b.finish([b.reduce("sum", x, [0])]))) == ()


def test_what_may_be_overwritten_is_not_loaded_again() -> None:
    assert levels(nest_of(early_softmax("B", "N"))) == ()


def test_what_is_kept_is_as_small_as_it_is_in_memory() -> None:
    (tile,) = levels(nest_of(softmax("B", "N", dtype=DType.F16)))[0].tiles
    assert tile.dtype is DType.F16


# -- how much of it --------------------------------------------------------------------------------------------


def made(body: Body, target: GpuTarget = A100, **symbols: int) -> Version:
    kernel = lower(plan_groups(body), "kernel")
    schedules = schedule_gpu(kernel, target)
    verify_gpu(schedules, target)
    values = dict(zip((s.symbol for s in kernel.symbols), symbols.values(), strict=True))
    return schedules.versions[schedules.launch.variants.index(schedules.launch.chosen(values))]


def test_rows_that_no_block_holds_come_in_waves() -> None:
    version = made(softmax("B", "N"), B=64, N=131_072)
    ((number, kept),) = version.kept
    (waves,) = (part for part in version.parts if isinstance(part, Waves))
    assert (number, waves.nest) == (0, 0)
    assert (version.schedules[0].mapping, version.schedules[0].home) == (Mapping.SPLIT, Home.SHARED)
    assert version.variant.resident
    assert kept.room <= A100.shared_for(version.variant.blocks)


@pytest.mark.parametrize("target", GpuTarget.all(), ids=lambda t: t.arch)
def test_blocks_share_all_of_the_shared_memory(target: GpuTarget) -> None:
    """But for what threads leave for each other, and what the system takes."""
    version = made(normalised(), target, N=100_000, C=64)
    ((_, kept),) = version.kept
    used = version.variant.blocks * kept.whole * kept.width * sum(t.dtype.size for t in kept.tiles)
    assert 0.7 * target.shared_bytes < used < target.shared_bytes


def kept_floats(room: int, count: int = 1) -> Kept:
    nest = nest_of(softmax("B", "N"))
    (tile,) = levels(nest)[0].tiles
    tiles = tuple(replace(tile, index=n) for n in range(count))
    return Kept(tuple(replace(nest, tiles=tiles[: count - n]) for n in range(count + 1)), room, 1, 1024)


def test_a_wave_has_as_many_rows_as_the_grid_keeps() -> None:
    kept = kept_floats(40 * 1024)
    assert kept.whole == 10 * 1024
    share = share_of(kept, rows=64, length=32 * 1024, piece=8 * 1024, grid=10)  # 100 steps, and a row has 32
    assert (share.pieces, share.waves, share.wave) == (4, 22, 3 * 4)
    assert share.places == (10 * 1024,)
    whole = share_of(kept, rows=2, length=32 * 1024, piece=8 * 1024, grid=10)
    assert (whole.waves, whole.wave, whole.places, whole.parts) == (1, 8, (8 * 1024,), (1.0, 0.0))


def test_of_a_row_that_is_too_long_the_part_that_fits_is_kept() -> None:
    kept = kept_floats(8 * 1024)
    share = share_of(kept, rows=3, length=64 * 1024, piece=8 * 1024, grid=4)  # two pieces to a block, a quarter of one
    assert (share.waves, share.wave, share.places) == (3, 8, (2048,))
    assert share.parts == (2048 / (2 * 8192), 1 - 2048 / (2 * 8192))


def test_the_first_of_two_values_has_room_first() -> None:
    kept = kept_floats(40 * 1024, 2)
    assert kept.places(16 * 1024) == (10 * 1024, 0)
    assert kept.places(7 * 1024) == (7 * 1024, 3 * 1024)
    assert kept.places(2 * 1024) == (2 * 1024, 2 * 1024)


def test_no_rows_make_no_waves() -> None:
    kept = kept_floats(8 * 1024)
    assert share_of(kept, rows=0, length=64, piece=8192, grid=4).waves == 0
    assert share_of(kept, rows=5, length=0, piece=8192, grid=4).parts == (0.0, 0.0)


def test_with_hardly_any_shared_memory_there_are_no_waves() -> None:
    assert made(normalised(), gpu_with(8), N=100_000, C=64).kept == ()


# -- the verifier ----------------------------------------------------------------------------------------------


def test_the_verifier_holds_levels_against_each_other() -> None:
    kernel = lower(plan_groups(batch_norm_gradient()), "kernel")
    schedules = schedule_gpu(kernel, A100)
    version = schedules.versions[0]
    ((number, kept),) = version.kept

    def verified(**changes: Any) -> None:
        other = replace(version, **changes)
        verify_gpu(replace(schedules, versions=(other, *schedules.versions[1:])), A100)

    first, *rest = kept.levels
    less = replace(first.sweeps[-1], elements=first.sweeps[-1].elements[:-1])
    broken: list[tuple[str, Kept]] = [
        (
            "accumulate and store the same",
            replace(kept, levels=(replace(first, sweeps=(*first.sweeps[:-1], less)), *rest)),
        ),
        ("a tile less", replace(kept, levels=(rest[0], *rest))),
        ("at last nothing is kept", replace(kept, levels=kept.levels[:-1])),
        ("made a step", replace(kept, unit=kept.unit * 2)),
        ("more than there are", replace(kept, room=kept.room + 4096)),
    ]
    for text, wrong in broken:
        with pytest.raises(BrokenInvariant, match=text):
            verified(kept=((number, wrong),))
    with pytest.raises(BrokenInvariant, match="go in waves"):
        verified(parts=tuple(p for part in version.parts for p in (part.parts if isinstance(part, Waves) else [part])))


def test_waves_of_one_nest_beside_whole_rows_of_another() -> None:
    """Shared memory is then the larger of what is known and of what the row's length says. Their sums have one name."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("A", "B")))
    less = b.apply("sub", x, b.reduce("sum", x, [0], keep_dims=True))
    e = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [1], keep_dims=True)))
    made = lowered_for_gpu(b.finish([b.apply("div", e, b.reduce("sum", e, [1], keep_dims=True)), less]))
    assert any(isinstance(v.variant.shared, Larger) for v in waves_of(made))
    inputs = inputs_of(made, (5, 70))
    for variant in emulated(made).variants(inputs):
        for result, exact in zip(emulated(made)(inputs, variant), interp.run(made.kernel, inputs), strict=True):
            assert_near(result, exact, ulps=32)


# -- what they compute -----------------------------------------------------------------------------------------

BODIES: dict[str, tuple[Callable[[], Body], tuple[int, ...]]] = {
    "softmax": (lambda: softmax("B", "N"), (5, 20_011)),
    "softmax of vectors": (lambda: softmax(5, 24_576), ()),
    "softmax of halves": (lambda: softmax("B", 40_960, dtype=DType.F16), (3,)),
    "softmax, masked": (lambda: masked_softmax("B", "N"), (3, 30_001)),
    "softmax of the middle axis": (middle, (2, 700, 37)),
    "layer norm": (lambda: layer_norm("B", 32_768), (3,)),
    "cross entropy": (lambda: cross_entropy("B", "N"), (3, 17_000)),
    "batch norm": (normalised, (1500, 70)),
    "batch norm of few columns": (normalised, (3001, 3)),
    "batch norm's gradient": (batch_norm_gradient, (1100, 40)),
    "batch norm's gradient, halves": (lambda: batch_norm_gradient(DType.F16), (600, 33)),
}


def inputs_of(made: LoweredForGpu, sizes: tuple[int, ...]) -> list[Array]:
    symbols = dict(zip((s.symbol for s in made.kernel.symbols), sizes, strict=True))
    random = np.random.default_rng(3)
    shapes = [(t, [d.evaluate(symbols) for d in t.dims]) for t in made.kernel.inputs if t is not None]
    return [(random.standard_normal(shape) * 3).astype(t.dtype.numpy) for t, shape in shapes]


def waves_of(made: LoweredForGpu) -> list[Version]:
    return [v for v in made.schedules.versions if v.kept]


@pytest.mark.parametrize("name", BODIES)
def test_bits_are_the_same_whatever_is_kept(name: str) -> None:
    """All of it, in one wave or in several, some of it, all of some values, nothing: on grids of any size."""
    build, sizes = BODIES[name]
    body = build()
    without = lowered_for_gpu(body, target=gpu_with(8))
    assert not waves_of(without)
    inputs = inputs_of(without, sizes)
    wanted = [emulated(without)(inputs, v) for v in emulated(without).variants(inputs)][-1]
    exacts = evaluate(body, inputs, interp.bind(without.kernel, inputs))
    for result, exact in zip(wanted, exacts, strict=True):
        assert_near(result, exact, ulps=32)
    for kib in (164, 96, 24):
        made = lowered_for_gpu(body, target=gpu_with(kib))
        (version, *_) = [v for v in waves_of(made) if not v.wide or len(made.schedules.versions) == 1]
        run = emulated(made)
        for multiprocessors in (1, 3):
            results = run(inputs, version.variant, multiprocessors=multiprocessors, seed=multiprocessors)
            for result, other in zip(results, wanted, strict=True):
                assert same_bits(result, other), (kib, multiprocessors)


def test_grids_of_these_sizes_keep_all_and_some_and_go_in_waves() -> None:
    """So that the test before sees what it says that it does."""
    found: set[tuple[bool, int]] = set()  # several waves, and how many levels have elements
    for build, sizes in BODIES.values():
        for kib in (164, 96, 24):
            made = lowered_for_gpu(build(), target=gpu_with(kib))
            version = waves_of(made)[0]
            symbols = dict(zip((s.symbol for s in made.kernel.symbols), sizes, strict=True))
            for multiprocessors in (1, 3):
                grid = version.variant.grid(symbols, multiprocessors)
                share = shares_of(version, symbols, grid)[0]
                found.add((share.waves > 1, sum(part > 0 for part in share.parts)))
    assert found >= {(False, 1), (True, 1), (True, 2), (True, 3)}


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.0])
def test_what_is_kept_is_what_was_loaded(value: float) -> None:
    made = lowered_for_gpu(normalised(), target=gpu_with(24))
    (x, scale) = inputs_of(made, (1000, 40))
    x[500:, :20] = value
    (version, *_) = waves_of(made)
    wanted = emulated(lowered_for_gpu(normalised(), target=gpu_with(8)))([x, scale])
    for result, other in zip(emulated(made)([x, scale], version.variant), wanted, strict=True):
        assert same_bits(result, other)


@pytest.mark.parametrize("sizes", [(0, 40), (40, 0), (1, 1), (257, 1)])
def test_little_or_nothing(sizes: tuple[int, int]) -> None:
    made = lowered_for_gpu(normalised())
    inputs = inputs_of(made, sizes)
    with np.errstate(all="ignore"):
        wanted = evaluate(normalised(), inputs, interp.bind(made.kernel, inputs))
    for result, exact in zip(emulated(made)(inputs), wanted, strict=True):
        assert_near(result, exact, ulps=32)


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
@pytest.mark.parametrize("name", ["softmax of vectors", "batch norm's gradient"])
def test_threads_find_what_they_kept_themselves(name: str, sanitizer: str) -> None:
    build, sizes = BODIES[name]
    made = lowered_for_gpu(build(), target=gpu_with(40))
    (version, *_) = waves_of(made)
    emulated(made, sanitizer)(inputs_of(made, sizes), version.variant, multiprocessors=2, seed=1)


def test_reductions_of_every_kind() -> None:
    made, without = (lowered_for_gpu(everything(), target=gpu_with(kib)) for kib in (40, 8))
    inputs = inputs_of(made, tuple((3, 20_000)[: len(made.kernel.symbols)]))
    assert waves_of(made)
    for version in waves_of(made):
        if all(c.holds(interp.bind(made.kernel, inputs)) for c in version.variant.conditions):
            wanted = emulated(without)(inputs)
            for result, other in zip(emulated(made)(inputs, version.variant), wanted, strict=True):
                assert same_bits(result, other)
