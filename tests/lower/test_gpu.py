"""GPU schedules: what they decide for a shape, and that their verifier misses no barrier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.lower.test_bitwise import everything, total
from tests.lower.test_down import layer_gradient, middle, normalised
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import BrokenInvariant
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.gpu import relaxed, schedule_gpu
from tf_stitch.lower.gpu_launch import MOST_BLOCKS, evaluate
from tf_stitch.lower.gpu_schedule import Built, GpuSchedules, Home, Mapping, Version
from tf_stitch.lower.gpu_steps import BlockBarrier, EachPiece, GridBarrier, Part, Step, Waves
from tf_stitch.lower.gpu_verify import verify_gpu
from tf_stitch.lower.kernel import Kernel, Load, Place, statements
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.groups import plan_groups

A100 = GpuTarget.named("a100")

Array = np.ndarray[Any, np.dtype[Any]]


def softmax(*dims: int | str, dtype: DType = DType.F32) -> Body:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.widen(b.input(TensorType(dtype, shape_of(*dims))))
    e = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [-1], keep_dims=True)))
    return b.finish([b.convert(b.apply("div", e, b.reduce("sum", e, [-1], keep_dims=True)), dtype)])


def early_softmax(*dims: int | str) -> Body:
    """Whose numerators are a result, too, which may be stored where x was."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(*dims)))
    e = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [-1], keep_dims=True)))
    return b.finish([e, b.apply("div", e, b.reduce("sum", e, [-1], keep_dims=True))])


def chained_sums() -> Body:
    """A sum of all, which a second loop nest divides by."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(3, 50_000)))
    return b.finish([b.apply("div", x, b.reduce("sum", x, [0, 1], keep_dims=True))])


def column_sums(*dims: int | str) -> Body:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    return b.finish([b.reduce("sum", b.input(TensorType(DType.F32, shape_of(*dims))), [0])])


def transposed() -> Body:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("N", "C")))
    return b.finish([b.apply("neg", b.transpose(x, [1, 0]))])


BODIES: dict[str, Body] = {
    "softmax": softmax("B", "N"),
    "short softmax": softmax(100, 96),
    "long softmax": softmax(2, 300_000),
    "softmax of halves": softmax("B", 8192, dtype=DType.F16),
    "a sum of everything": total(),
    "all reducers": everything(),
    "chained sums": chained_sums(),
    "batch norm": normalised(),
    "a softmax in the middle": middle(),
    "a layer norm's gradient": layer_gradient("C"),
    "a layer norm's gradient of 96": layer_gradient(96),
    "column sums": column_sums(100_000, 40),
    "a transpose": transposed(),
}


def scheduled(body: Body, target: GpuTarget = A100) -> tuple[Kernel, GpuSchedules]:
    kernel = lower(plan_groups(body), "kernel")
    return kernel, schedule_gpu(kernel, target)


def chosen(body: Body, target: GpuTarget = A100, **symbols: int) -> Version:
    """The version for these values of the symbols, in the order in which the kernel has them."""
    kernel, schedules = scheduled(body, target)
    values = dict(zip((s.symbol for s in kernel.symbols), symbols.values(), strict=True))
    return schedules.versions[schedules.launch.variants.index(schedules.launch.chosen(values))]


# -- decisions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "length", "mapping", "home", "lanes", "vector"),
    [
        (750_000, 32, Mapping.WARPS, Home.REGISTERS, 8, 4),
        (4096, 768, Mapping.WARPS, Home.REGISTERS, 32, 4),
        (4097, 1023, Mapping.BLOCKS, Home.REGISTERS, 256, 1),
        (4096, 4096, Mapping.BLOCKS, Home.REGISTERS, 256, 4),
        (64, 30_000, Mapping.BLOCKS, Home.SHARED, 256, 4),
        (32, 750_000, Mapping.SPLIT, Home.SHARED, 256, 4),
        (1, 1_000_000, Mapping.SPLIT, Home.SHARED, 256, 4),
        (4096, 131_072, Mapping.SPLIT, Home.SHARED, 256, 4),
    ],
)
def test_rows_are_given_to_threads_by_their_shape(
    rows: int, length: int, mapping: Mapping, home: Home, lanes: int, vector: int
) -> None:
    (schedule,) = chosen(softmax(rows, length)).schedules
    assert (schedule.mapping, schedule.home, schedule.lanes, schedule.vector) == (mapping, home, lanes, vector)


@pytest.mark.parametrize(
    ("rows", "length", "mapping"),
    [
        (1000, 200, Mapping.WARPS),
        (1000, 2000, Mapping.BLOCKS),
        (1000, 20_000, Mapping.BLOCKS),
        (1000, 200_000, Mapping.SPLIT),
        (10, 200_000, Mapping.SPLIT),
        (10, 20_000, Mapping.SPLIT),
    ],
)
def test_what_is_not_known_is_decided_at_launch(rows: int, length: int, mapping: Mapping) -> None:
    (schedule,) = chosen(softmax("B", "N"), B=rows, N=length).schedules
    assert schedule.mapping is mapping


def test_a_tile_goes_where_the_target_has_room_for_it() -> None:
    mappings = {t.arch: chosen(softmax(1000, 20_000), t).schedules[0].mapping for t in GpuTarget.all()}
    assert mappings["sm_75"] is Mapping.SPLIT, "64 KiB do not hold 80,000 bytes: some blocks hold a row together"
    assert {mappings[a] for a in ("sm_70", "sm_80", "sm_90", "sm_120")} == {Mapping.BLOCKS}
    early = {t.arch: chosen(early_softmax(1000, 20_000), t).schedules[0].home for t in GpuTarget.all()}
    assert early["sm_75"] is Home.SCRATCH, "what may be overwritten is not loaded again"
    assert {early[a] for a in ("sm_80", "sm_90")} == {Home.SHARED}


def test_columns_are_cut_where_there_are_few() -> None:
    assert chosen(column_sums(100_000, 40)).schedules[0].mapping is Mapping.COLUMNS_SPLIT
    assert chosen(column_sums(100_000, 40_000)).schedules[0].mapping is Mapping.COLUMNS
    (short,) = chosen(column_sums(200, 40)).schedules
    assert short.mapping is Mapping.COLUMNS
    assert short.piece is None


def test_pieces_follow_from_the_length_of_the_row_alone() -> None:
    """So a row has the same tree whoever stands beside it."""
    _, schedules = scheduled(softmax("B", "N"))
    pieces = {s.piece for v in schedules.versions for s in v.schedules if s.piece is not None}
    assert len(pieces) == 1
    assert {v.schedules[0].mapping for v in schedules.versions if v.schedules[0].piece is not None} == {
        Mapping.SPLIT,
        Mapping.BLOCKS,
    }


def test_columns_of_rows_that_are_read_anyway_are_joined_with_them() -> None:
    """A layer norm's gradient reads what it is given once."""
    version = chosen(BODIES["a layer norm's gradient of 96"], N=4096)
    assert [(s.mapping, s.joined) for s in version.schedules] == [
        (Mapping.BLOCKS, True),
        (Mapping.COLUMNS_SPLIT, True),
    ]
    ((number, joint),) = version.joints
    assert number == 0
    loads = [s.access.buffer for s in statements(joint.nest) if isinstance(s, Load)]
    assert sorted(b.name for b in loads if b.place is Place.INPUT) == ["v_in", "v_in_2"]
    assert evaluate(version.variant.units, {"N": 4096}) == 256
    assert evaluate(version.variant.units, {"N": 10}) == 3


def batch_norm_of_parameters(heavy: int) -> Body:
    """x * scale, the scale being some functions of a parameter for each channel."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("N", 24)))
    scale = b.input(TensorType(DType.F32, shape_of(24)))
    for _ in range(heavy):
        scale = b.apply("rsqrt", scale)
    return b.finish([b.apply("mul", x, b.broadcast(scale, b.shape(x)))])


def test_what_is_computed_sooner_than_waited_for_is_computed_again() -> None:
    kernel, schedules = scheduled(batch_norm_of_parameters(2))
    assert len(kernel.nests) == 2
    assert [len(v.kernel.nests) for v in schedules.versions] == [1, 1]
    assert not any(v.variant.resident or v.kernel.scratch for v in schedules.versions)
    verify_gpu(schedules, A100)
    _, dear = scheduled(batch_norm_of_parameters(3))
    assert [len(v.kernel.nests) for v in dear.versions] == [2, 2]
    inputs = [np.full((5, 24), 3, np.float32), np.linspace(1, 2, 24, dtype=np.float32)]
    for mine, wanted in zip(interp.run(schedules.versions[0].kernel, inputs), interp.run(kernel, inputs), strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_pieces_of_a_concatenation_are_no_whole_values() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, y = (b.input(TensorType(DType.F32, shape_of(n))) for n in (24, 8))
    whole = b.concat([b.apply("rsqrt", x), b.apply("exp", y)], 0)
    z = b.input(TensorType(DType.F32, shape_of("N", 32)))
    kernel, schedules = scheduled(b.finish([b.apply("mul", z, b.broadcast(whole, b.shape(z)))]))
    assert len(kernel.nests) == 3
    assert [len(v.kernel.nests) for v in schedules.versions] == [3, 3]
    verify_gpu(schedules, A100)


def test_what_is_loaded_again_is_kept() -> None:
    kernel, schedules = scheduled(softmax(100, 96))
    assert len(kernel.nests[0].tiles) == 1
    assert len(schedules.versions[0].kernel.nests[0].tiles) == 2


def test_indices_are_wide_only_where_a_dim_may_be() -> None:
    _, static = scheduled(softmax(100, 96))
    assert [v.wide for v in static.versions] == [False]
    _, huge = scheduled(softmax(5_000_000, 1024))
    assert [v.wide for v in huge.versions] == [True]
    _, unknown = scheduled(softmax("B", 96))
    assert [v.wide for v in unknown.versions] == [False, True]
    assert not unknown.launch.chosen({"B": 30_000_000}).conditions
    assert unknown.launch.chosen({"B": 20_000_000}).conditions


def test_a_grid_is_no_larger_than_what_may_wait_together() -> None:
    version = chosen(softmax(2, 3_000_000))
    variant = version.variant
    assert variant.resident
    assert evaluate(variant.units, {}) == 2 * 367
    assert variant.grid({}, 108) == min(2 * 367, variant.blocks * 108)
    assert variant.grid({}, 1) == variant.blocks
    plain = chosen(softmax(5_000, 96)).variant
    assert plain.grid({}, 1) == 625 <= MOST_BLOCKS


def test_nothing_is_launched_for_empty_outputs() -> None:
    _, schedules = scheduled(softmax("B", "N"))
    for sizes in ({"B": 0, "N": 7}, {"B": 0, "N": 100_000}):
        assert schedules.launch.chosen(sizes).grid(sizes, 108) == 0


def test_bounds_follow_what_the_compiler_says() -> None:
    _, schedules = scheduled(softmax(100, 96))
    entry = schedules.launch.variants[0].entry
    assert schedules.launch.variants[0].blocks == 4

    def blocks(registers: int, spilled: int = 0) -> int:
        return relaxed(schedules, A100, {entry: Built(registers, spilled, 64)}).launch.variants[0].blocks

    assert [blocks(32), blocks(40), blocks(64), blocks(64, spilled=8)] == [8, 6, 4, 2]


# -- the verifier ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", GpuTarget.all(), ids=lambda t: t.arch)
@pytest.mark.parametrize("name", BODIES)
def test_schedules_keep_their_invariants(name: str, target: GpuTarget) -> None:
    _, schedules = scheduled(BODIES[name], target)
    verify_gpu(schedules, target)


def _without_each(body: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """The steps without one of the block's barriers."""
    for n, step in enumerate(body):
        if isinstance(step, BlockBarrier):
            yield body[:n] + body[n + 1 :]
        elif isinstance(step, EachPiece):
            for inner in _without_each(step.body):
                yield (*body[:n], EachPiece(inner), *body[n + 1 :])


def _mutants(parts: tuple[Part, ...]) -> Iterator[tuple[str, tuple[Part, ...]]]:
    for n, part in enumerate(parts):
        if isinstance(part, GridBarrier):
            yield f"without the barrier of the grid at {n}", parts[:n] + parts[n + 1 :]
        elif isinstance(part, Waves):
            for what, inner in _mutants(part.parts):
                yield f"{what} of waves", (*parts[:n], replace(part, parts=inner), *parts[n + 1 :])
        else:
            for body in _without_each(part.body):
                yield f"without a barrier of the block in {n}", (*parts[:n], replace(part, body=body), *parts[n + 1 :])


def _is_broken(schedules: GpuSchedules) -> bool:
    try:
        verify_gpu(schedules, A100)
    except BrokenInvariant as broken:
        return "a barrier" in str(broken)
    return False


@pytest.mark.parametrize("name", BODIES)
def test_no_barrier_can_be_left_out(name: str) -> None:
    _, schedules = scheduled(BODIES[name])
    barriers = 0
    for number, version in enumerate(schedules.versions):
        for what, parts in _mutants(version.parts):
            barriers += 1
            versions = list(schedules.versions)
            versions[number] = replace(version, parts=parts)
            assert _is_broken(replace(schedules, versions=tuple(versions))), f"{version.variant.entry} {what}"
    has_barriers = name not in ("short softmax", "a transpose")
    assert bool(barriers) == has_barriers


def _verify_with(made: GpuSchedules, **changes: Any) -> None:
    """Verifies the schedules with something else in their first version."""
    version = replace(made.versions[0], **changes)
    launch = replace(made.launch, variants=(version.variant, *made.launch.variants[1:]))
    verify_gpu(GpuSchedules(launch, (version, *made.versions[1:])), A100)


def test_the_verifier_names_what_is_wrong() -> None:
    _, schedules = scheduled(softmax(2, 300_000))
    version = schedules.versions[0]
    (schedule,) = version.schedules
    _, short = scheduled(softmax(100, 96))
    with pytest.raises(BrokenInvariant, match="a row is a number of vectors"):
        _verify_with(short, schedules=(replace(short.versions[0].schedules[0], vector=64),))
    with pytest.raises(BrokenInvariant, match="comes back to its own elements"):
        _verify_with(schedules, schedules=(replace(schedule, piece=Dim(8191)),))
    with pytest.raises(BrokenInvariant, match="blocks that wait for each other are on the GPU together"):
        _verify_with(schedules, variant=replace(version.variant, resident=False))
    with pytest.raises(BrokenInvariant, match="a multiprocessor holds 8 blocks, and not 16"):
        _verify_with(schedules, variant=replace(version.variant, blocks=16))
    (waves,) = version.parts
    assert isinstance(waves, Waves)
    without = tuple(replace(p, body=p.body[1:]) if n == 2 else p for n, p in enumerate(waves.parts))
    with pytest.raises(BrokenInvariant, match=r"FoldKept.*lanes keep pieces"):
        _verify_with(schedules, parts=(replace(waves, parts=without),))


def test_shared_memory_is_within_the_target() -> None:
    _, schedules = scheduled(softmax(1000, 40_000))
    assert schedules.versions[0].schedules[0].home is Home.SHARED
    verify_gpu(schedules, A100)
    with pytest.raises(BrokenInvariant, match="bytes are too many"):
        verify_gpu(schedules, GpuTarget.named("a10"))


# -- what they compute -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BODIES)
def test_kernels_with_tiles_compute_the_same(name: str) -> None:
    """Every version's kernel, run by the interpreter, gives the bits of the kernel as it was lowered."""
    if name in ("long softmax", "column sums"):
        pytest.skip("too large to interpret")
    kernel, schedules = scheduled(BODIES[name])
    random = np.random.default_rng(0)
    sizes = {s.symbol: n for s, n in zip(kernel.symbols, (3, 33, 5), strict=False)}
    inputs = [random.standard_normal([d.evaluate(sizes) for d in t.dims]).astype(t.dtype.numpy)
              for t in kernel.inputs if t is not None]  # fmt: skip
    wanted = interp.run(kernel, inputs)
    for version in schedules.versions:
        for mine, other in zip(interp.run(version.kernel, inputs), wanted, strict=True):
            np.testing.assert_array_equal(mine, other)
