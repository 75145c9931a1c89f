"""What a kernel is said to move on a GPU is what its threads move on the emulator; and what a time is made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.lower.emulated import A100, LoweredForGpu, emulated, lowered_for_gpu
from tests.lower.test_down import layer_gradient
from tests.lower.test_gpu import chained_sums, column_sums, softmax
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower import interp
from tf_stitch.lower.gpu import Built
from tf_stitch.lower.gpu_cost import GpuCost, gpu_cost, phases_of
from tf_stitch.lower.gpu_launch import Parameter
from tf_stitch.lower.kernel import Load, Place, Store, statements
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.gpu_target import GpuTarget


def quarters(*dims: int) -> Body:
    """Four pieces of each row, added: one buffer that is read at four places."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(*dims)))
    width = dims[1] // 4
    parts = [b.slice(x, [0, n * width], shape_of(dims[0], width)) for n in range(4)]
    return b.finish([b.apply("add", b.apply("add", parts[0], parts[1]), b.apply("add", parts[2], parts[3]))])


def columns_over_their_norms() -> Body:
    """Less their largest, before."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("N", "C")))
    x = b.apply("sub", x, b.reduce("max", x, [0], keep_dims=True))
    return b.finish([b.apply("div", x, b.reduce("sum", b.apply("square", x), [0], keep_dims=True))])


def inputs_of(made: LoweredForGpu, symbols: dict[str, int]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    types = [t for t in made.kernel.inputs if t is not None]
    return [random.uniform(1, 2, [d.evaluate(symbols) for d in t.dims]).astype(t.dtype.numpy) for t in types]


BODIES: dict[str, tuple[Body, dict[str, int]]] = {
    "rows of warps": (softmax("B", "N"), {"B": 9, "N": 96}),
    "rows of blocks": (softmax("B", "N"), {"B": 5, "N": 4096}),
    "a long row, in pieces": (softmax("B", "N"), {"B": 1, "N": 40_000}),
    "half precision": (softmax("B", "N", dtype=DType.F16), {"B": 9, "N": 96}),
    "columns": (column_sums("B", "N"), {"B": 40, "N": 32}),
    "columns in pieces": (column_sums("B", "N"), {"B": 6000, "N": 32}),
    "behind a barrier": (chained_sums(), {}),
    "columns kept in waves": (columns_over_their_norms(), {"N": 2000, "C": 128}),
    "columns of which some is kept": (columns_over_their_norms(), {"N": 30_000, "C": 32}),
    "rows kept in waves": (softmax(5, 49_152), {}),
    "rows joined with columns": (layer_gradient(256), {"N": 40}),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_emulator_counts_the_same_bytes(name: str) -> None:
    body, symbols = BODIES[name]
    made = lowered_for_gpu(body)
    inputs = inputs_of(made, symbols)
    symbols = interp.bind(made.kernel, inputs)
    counters = []
    emulated(made, counting=True)(inputs, counters=counters)
    cost = gpu_cost(made.schedules, replace(A100, multiprocessors=2), symbols)  # as many as are emulated
    read, written = bytes_by_place(made, cost)
    (counted,) = counters
    assert cost.barriers == counted.grid_barriers
    for parameter, traffic in zip(made.schedules.launch.parameters, counted.buffers, strict=True):
        kind, _ = parameter
        if kind is Parameter.INPUT:
            assert read[parameter] == traffic.load_bytes, parameter
        if kind in (Parameter.OUTPUT, Parameter.SCRATCH):
            assert written[parameter] == traffic.store_bytes, parameter
        if kind is Parameter.SCRATCH:
            assert read[parameter] <= traffic.load_bytes  # all blocks read what pieces leave; from a cache


def bytes_by_place(made: LoweredForGpu, cost: GpuCost) -> tuple[Counter, Counter]:
    """What the cost has for each parameter of the launch."""
    version = next(v for v in made.schedules.versions if v.variant.entry == cost.entry)
    kinds = {Place.INPUT: Parameter.INPUT, Place.OUTPUT: Parameter.OUTPUT}
    accesses = [s.access for n in version.kernel.nests for s in statements(n) if isinstance(s, Load | Store)]
    of = {a.buffer.name: (kinds[a.buffer.place], a.buffer.index) for a in accesses if a.buffer.place in kinds}
    read, written = Counter(), Counter()
    for traffic in (t for phase in cost.phases for t in phase.traffic):
        for found, into in ((traffic.read, read), (traffic.written, written)):
            for buffer, count in found.items():
                into[of.get(buffer, (Parameter.SCRATCH, 0))] += count
    return read, written


def cost_of(body: Body, target: GpuTarget = A100, **symbols: int) -> GpuCost:
    return gpu_cost(lowered_for_gpu(body, target=target).schedules, target, symbols)


def test_a_buffer_that_is_read_in_parts_is_read_once() -> None:
    cost = cost_of(quarters(64, 128))
    assert cost.bytes == 64 * 128 * 4 + 64 * 32 * 4


def test_nothing_to_do_costs_a_launch() -> None:
    cost = cost_of(softmax("B", "N"), B=0, N=96)
    assert (cost.bytes, cost.ns) == (0, A100.launch_ns)


def test_large_kernels_take_what_memory_takes() -> None:
    cost = cost_of(column_sums("B", "N"), B=4096, N=65536)
    assert cost.ns == pytest.approx(A100.launch_ns + cost.bytes / A100.bytes_per_ns, rel=1e-3)


def test_arithmetic_may_take_longer_than_memory() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("N")))
    for _ in range(20):
        x = b.apply("tanh", x)
    cost = cost_of(b.finish([x]), N=2**24)
    assert [phase.heavy for phase in cost.phases] == [20 * 2**24]
    assert cost.ns > 2 * cost.bytes / A100.bytes_per_ns


def test_few_blocks_leave_memory_idle() -> None:
    few, many = cost_of(softmax("B", "N"), B=4, N=4096), cost_of(softmax("B", "N"), B=400, N=4096)
    assert (many.ns - A100.launch_ns) / 100 < (few.ns - A100.launch_ns) / 3


def test_a_barrier_has_its_price() -> None:
    made = lowered_for_gpu(chained_sums())
    slow = replace(A100, barrier_ns=A100.barrier_ns + 1000)
    one, other = (gpu_cost(made.schedules, target, {}) for target in (A100, slow))
    assert one.barriers > 0
    assert other.ns - one.ns == pytest.approx(1000 * one.barriers)


def test_occupancy_follows_what_was_built() -> None:
    made = lowered_for_gpu(softmax(100, 96))
    (version,) = made.schedules.versions
    planned = gpu_cost(made.schedules, A100, {})
    assert (planned.blocks, planned.occupancy) == (version.variant.blocks, version.variant.blocks * 256 / 2048)
    greedy = {version.variant.entry: Built(255, 0, 0)}
    assert gpu_cost(made.schedules, A100, {}, greedy).occupancy == 256 / 2048


def test_phases_are_parted_by_barriers() -> None:
    made = lowered_for_gpu(chained_sums())
    phases = phases_of(made.schedules.versions[0], {}, 1)
    assert all(phase.units > 0 for phase in phases)
    assert sum(phase.bytes for phase in phases) >= 2 * 3 * 50_000 * 4
