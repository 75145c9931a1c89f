"""Scratch: what is filled late, and which buffers share memory."""

from __future__ import annotations

from collections.abc import Iterator

from tests.lower.building import compiled, lowered
from tests.lower.columns import assert_right
from tests.lower.test_convolutions import BODIES, a_chain, builder, f32
from tf_stitch.ir.body import Body
from tf_stitch.ir.types import Dim, DType
from tf_stitch.lower.kernel import Buffer, Kernel, Load, Place, Store, statements
from tf_stitch.lower.launches import launches
from tf_stitch.lower.nests import accesses
from tf_stitch.lower.scratch import Memory, shared_memory


def memory_of(body: Body) -> tuple[Kernel, list[list[int]], Memory]:
    made = lowered(body)
    launched = launches(made.kernel, made.schedules)
    return made.kernel, launched, shared_memory(made.kernel, launched)


def needed(kernel: Kernel, launched: list[list[int]], buffer: Buffer) -> Iterator[int]:
    """The launches in which a nest reads or writes a buffer."""
    for time, together in enumerate(launched):
        if any(s.access.buffer == buffer for n in together for s in accesses(kernel.nests[n])):
            yield time


def test_a_chain_needs_the_memory_of_two_of_its_links() -> None:
    kernel, _, memory = memory_of(a_chain(40, 40))
    assert len(kernel.scratch) == 5
    assert len(memory.bytes) == 2


def test_buffers_that_are_needed_at_a_time_have_places_of_their_own() -> None:
    for body in BODIES.values():
        kernel, launched, memory = memory_of(body)
        taken = {b: list(needed(kernel, launched, b)) for b in kernel.scratch}
        for one in kernel.scratch:
            assert memory.bytes[memory.place[one]].coefficient >= one.size.coefficient * one.dtype.size
            for other in kernel.scratch:
                if one != other and memory.place[one] == memory.place[other]:
                    first, second = sorted((taken[one], taken[other]))
                    assert first[-1] < second[0]


def test_only_sizes_that_can_be_compared_share_a_place() -> None:
    """A sum along the rows of one tensor, and then of another one that is as long as its own dim says."""
    b = builder()
    x, y = b.input(f32("B", 40)), b.input(f32("C", 40))
    outputs: list[int] = []
    for value in (x, y):
        gone_over = b.apply("sub", b.apply("exp", value), b.reduce("sum", b.apply("exp", value), (0,)))
        outputs.append(b.reduce("max", b.transpose(gone_over, (1, 0)), (0,)))
    kernel, _, memory = memory_of(b.finish(outputs))
    symbols = {memory.place[s]: s.size.symbols for s in kernel.scratch}
    assert all(memory.bytes[place].symbols == of for place, of in symbols.items())


def test_a_border_is_filled_along_with_its_image() -> None:
    """In a chain each image's border comes when it is needed: all at first, they would keep all memory taken."""
    kernel, launched, _ = memory_of(a_chain(40, 40))
    fills = [n for n, nest in enumerate(kernel.nests) if not any(isinstance(s, Load) for s in statements(nest))]
    assert fills
    for n in fills:
        (stored,) = {s.access.buffer for s in statements(kernel.nests[n]) if isinstance(s, Store)}
        beside = next(together for together in launched if n in together)
        assert any(s.access.buffer == stored for m in beside if m not in fills for s in accesses(kernel.nests[m]))


def test_what_is_filled_for_the_outside_too_stays() -> None:
    """Zeros that are an output, and a piece of what is kept in scratch: two nests of one."""
    b = builder()
    x = b.input(f32("B", 8))
    zeros = b.broadcast(b.constant(0, DType.F32), (b.shape(x)[0], Dim(3)))
    whole = b.concat([zeros, x], 1)
    body = b.finish([zeros, b.reduce("max", whole, (1,)), b.reduce("sum", b.transpose(whole, (1, 0)), (1,))])
    made = lowered(body)
    fills = [nest for nest in made.kernel.nests if not any(isinstance(s, Load) for s in statements(nest))]
    stored = [[s.access.buffer.place for s in accesses(nest)] for nest in fills]
    assert sorted(stored, key=str) == [[Place.OUTPUT], [Place.SCRATCH]]
    assert_right(made, compiled([made])[0], body, [{"B": 1}, {"B": 5}])
