"""Bodies and the loop nests made of them, as text: sweeps, tiles, collapsed axes, forwarding, packing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import dedent

import pytest

from tf_stitch.ir.body import BodyBuilder
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.lower.common import lower
from tf_stitch.lower.cpu import Driver, Schedule, schedule
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.printer import print_kernel
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.target import Target

TARGET = Target.baseline("x86-64-v3")  # 8 lanes of f32
Build = Callable[[BodyBuilder], Sequence[int]]
B, S = Dim.symbol("B"), Dim.symbol("S")


def f32(*dims: int | str | Dim) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def lowered(build: Build) -> Kernel:
    builder = BodyBuilder(FUNCTIONS, REDUCERS)
    kernel = lower(plan_groups(builder.finish(build(builder))), "k")
    verify_kernel(kernel)
    return kernel


def scheduled(build: Build) -> tuple[Kernel, tuple[Schedule, ...]]:
    kernel, schedules = schedule(lowered(build), TARGET)
    verify_kernel(kernel, schedules)
    return kernel, schedules


def nests(kernel: Kernel) -> str:
    """The text without its head."""
    return print_kernel(kernel).split("\n\n", 1)[1]


def check(build: Build, text: str) -> None:
    assert nests(lowered(build)) == dedent(text)


# -- sweeps and tiles ------------------------------------------------------------------------------------------


def test_what_two_sweeps_need_is_kept_if_it_takes_two_loads() -> None:
    def build(b: BodyBuilder) -> list[int]:
        t = b.apply("add", b.input(f32("B", "N")), b.input(f32("B", "N")))
        return [b.apply("sub", t, b.reduce("max", t, [1], keep_dims=True))]

    check(build, """\
        nest 0: for B, for each N
          tile v_tile: f32, N elements
          sweep 0, for each element
            v_in = load input v_in[N, 1] : f32
            v_in_2 = load input v_in_2[N, 1] : f32
            v = add v_in v_in_2 : f32
            store v_tile[0, 1] <- v
            max(v_2) <- v
          sweep 1, for each row
            v_2 = result of max(v_2) : f32
          sweep 1, for each element
            v = load v_tile[0, 1] : f32
            v_3 = sub v v_2 : f32
            store output v_out[N, 1] <- v_3
        """)  # fmt: skip


def test_what_is_cheap_is_computed_again() -> None:
    def build(b: BodyBuilder) -> list[int]:
        t = b.apply("neg", b.input(f32("B", "N")))
        return [b.apply("sub", t, b.reduce("max", t, [1], keep_dims=True))]

    check(build, """\
        nest 0: for B, for each N
          sweep 0, for each element
            v_in = load input v_in[N, 1] : f32
            v = neg v_in : f32
            max(v_2) <- v
          sweep 1, for each row
            v_2 = result of max(v_2) : f32
          sweep 1, for each element
            v_in = load input v_in[N, 1] : f32
            v = neg v_in : f32
            v_3 = sub v v_2 : f32
            store output v_out[N, 1] <- v_3
        """)  # fmt: skip


@pytest.mark.parametrize(("function", "tiles"), [("exp", 1), ("tanh", 1), ("abs", 0), ("relu", 0), ("square", 0)])
def test_heavy_functions_are_evaluated_once(function: str, tiles: int) -> None:
    def build(b: BodyBuilder) -> list[int]:
        t = b.apply(function, b.input(f32("B", "N")))
        return [b.apply("sub", t, b.reduce("max", t, [1], keep_dims=True))]

    assert len(lowered(build).nests[0].tiles) == tiles


def test_levels_are_sweeps() -> None:
    """Three reductions, each of what the one before it makes possible: four sweeps."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        for function in ("max", "sum", "min"):
            x = b.apply("sub", x, b.reduce(function, x, [1], keep_dims=True))
        return [x]

    kernel = lowered(build)
    assert [len(n.sweeps) for n in kernel.nests] == [4]
    assert [r.sweep for r in kernel.nests[0].reductions] == [0, 1, 2]


def test_independent_reductions_share_a_sweep() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        return [b.reduce(function, x, [1]) for function in ("max", "sum", "min", "prod")]

    kernel = lowered(build)
    assert [len(n.sweeps) for n in kernel.nests] == [1]


# -- axes ------------------------------------------------------------------------------------------------------


def test_axes_that_all_cross_as_one_are_one() -> None:
    def build(b: BodyBuilder) -> list[int]:
        return [b.apply("relu", b.apply("add", b.input(f32("B", 7, 7, 24)), b.input(f32(24))))]

    check(build, """\
        nest 0: for 49*B, for each 24
          sweep 0, for each element
            v_in = load input v_in[24, 1] : f32
            v_in_2 = load input v_in_2[0, 1] : f32
            v = add v_in v_in_2 : f32
            v_2 = relu v : f32
            store output v_out[24, 1] <- v_2
        """)  # fmt: skip


def test_a_transpose_is_strides() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.reshape(b.apply("relu", b.input(f32("B", "S", 768))), (B, S, Dim(12), Dim(64)))
        return [b.transpose(x, [0, 2, 1, 3])]

    check(build, """\
        nest 0: for B × 12 × S, for each 64
          sweep 0, for each element
            v_in = load input v_in[768*S, 64, 768, 1] : f32
            v = relu v_in : f32
            store output v_out[768*S, 64*S, 64, 1] <- v
        """)  # fmt: skip


def test_what_does_not_vary_along_the_row_is_loaded_at_its_head() -> None:
    def build(b: BodyBuilder) -> list[int]:
        scale = b.reshape(b.input(f32(24)), shape_of(24, 1, 1))
        return [b.apply("mul", b.input(f32("B", 24, 7, 7)), scale)]

    check(build, """\
        nest 0: for B × 24, for each 49
          sweep 0, for each row
            v_in = load input v_in[0, 1, 0] : f32
          sweep 0, for each element
            v_in_2 = load input v_in_2[1176, 49, 1] : f32
            v = mul v_in_2 v_in : f32
            store output v_out[1176, 49, 1] <- v
        """)  # fmt: skip


def test_a_total_is_one_row_and_its_axes_are_one() -> None:
    def build(b: BodyBuilder) -> list[int]:
        return [b.reduce("sum", b.input(f32("A", "B", "C")), [0, 1, 2])]

    kernel = lowered(build)
    (nest,) = kernel.nests
    assert (nest.outer, [str(d) for d in nest.inner]) == ((), ["A*B*C"])


def test_reduced_axes_that_are_apart_stay_two() -> None:
    def build(b: BodyBuilder) -> list[int]:
        return [b.reduce("sum", b.input(f32("A", "B", "C")), [0, 2])]

    (nest,) = lowered(build).nests
    assert [str(d) for d in nest.outer] == ["B"]
    assert [str(d) for d in nest.inner] == ["A", "C"]


# -- forwarding ------------------------------------------------------------------------------------------------


def test_an_input_that_is_read_where_it_is_overwritten_may_be() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32("B", "N")), b.input(f32("B", "N"))
        return [b.apply("sub", b.apply("exp", x), y)]

    assert set(lowered(build).forwards) == {(0, 0), (1, 0)}


def test_an_input_of_another_size_may_not() -> None:
    def build(b: BodyBuilder) -> list[int]:
        return [b.apply("sub", b.input(f32("B", "N")), b.input(f32("N")))]

    assert lowered(build).forwards == ((0, 0),)


def test_an_input_that_is_read_elsewhere_too_may_not() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("N", "N"))
        return [b.apply("sub", x, b.transpose(x, [1, 0]))]

    assert lowered(build).forwards == ()


def test_an_input_that_a_later_nest_reads_may_not() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        return [b.apply("sub", x, b.reduce("sum", x, [1], keep_dims=True)), b.reduce("sum", x, [0])]

    kernel = lowered(build)
    assert len(kernel.nests) == 2
    assert (0, 0) not in kernel.forwards


def test_an_input_that_is_read_in_a_later_sweep_may_not() -> None:
    """exp(x) is stored in the first sweep, and x is read again in the second."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        return [b.apply("neg", x), b.apply("sub", x, b.reduce("max", x, [1], keep_dims=True))]

    assert (0, 0) not in lowered(build).forwards
    assert (0, 1) in lowered(build).forwards


def test_dtypes_of_another_size_may_not() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("N"))
        return [b.convert(x, DType.F64), b.apply("greater", x, b.constant(0, DType.F32)), b.convert(x, DType.I32)]

    assert lowered(build).forwards == ((0, 2),)


# -- schedules -------------------------------------------------------------------------------------------------


def test_rows_that_are_no_vectors_are_packed() -> None:
    def build(b: BodyBuilder) -> list[int]:
        return [b.apply("relu", b.apply("add", b.input(f32("B", 7, 3)), b.input(f32(3))))]

    kernel, (made,) = scheduled(build)
    assert nests(kernel) == dedent("""\
        nest 0: for 1, for each 21*B
          tile v_in_2_0_repeated: 3 of input v_in_2[0, 1], again and again
          sweep 0, for each element
            v_in = load input v_in[1] : f32
            v_in_2 = load v_in_2_0_repeated[1] : f32
            v = add v_in v_in_2 : f32
            v_2 = relu v : f32
            store output v_out[1] <- v_2
        """)
    assert made.driver is Driver.BLOCKS
    assert made.block % 3 == 0


@pytest.mark.parametrize(
    ("build", "driver"),
    [
        (lambda b: [b.apply("exp", b.input(f32("N")))], Driver.BLOCKS),
        (lambda b: [b.apply("add", b.input(f32("B", 24)), b.input(f32(24)))], Driver.COLUMNS),
        (lambda b: [b.apply("add", b.input(f32("B", "N")), b.input(f32("N")))], Driver.BLOCKS),
        (lambda b: [b.reduce("sum", b.input(f32("B", "N")), [1])], Driver.ROWS_OR_SPLIT),
        (lambda b: [b.reduce("sum", b.input(f32("B", 768)), [1])], Driver.ROWS),
        (lambda b: [b.reduce("sum", b.input(f32("B", 100_000)), [1])], Driver.ROWS_OR_SPLIT),
        (lambda b: [b.reduce("sum", b.input(f32("A", "B", "C")), [0, 2])], Driver.ROWS),
    ],
)  # fmt: skip
def test_drivers(build: Build, driver: Driver) -> None:
    _, (made,) = scheduled(build)
    assert made.driver is driver


@pytest.mark.parametrize(
    ("length", "lanes", "body"),
    [("N", 16, "both"), (768, 16, "wide"), (24, 8, "wide"), (30, 16, "both"), (1023, 16, "both"), (5, 8, "narrow")],
)
def test_vectors_fit_rows(length: int | str, lanes: int, body: str) -> None:
    _, (made,) = scheduled(lambda b: [b.reduce("sum", b.input(f32("B", length)), [1])])
    assert (made.lanes, made.body) == (lanes, body)


@pytest.mark.parametrize(
    ("dtype", "narrow"), [(DType.F32, 8), (DType.F16, 8), (DType.BOOL, 8), (DType.F64, 4), (DType.I64, 4)]
)
def test_vectors_fit_dtypes(dtype: DType, narrow: int) -> None:
    reducer = "all" if dtype is DType.BOOL else "max"
    _, (made,) = scheduled(lambda b: [b.reduce(reducer, b.input(TensorType(dtype, shape_of("B", "N"))), [1])])
    assert made.narrow == narrow


def test_pieces_of_a_concatenation_are_stored_by_themselves() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32(2, "B", 3)), b.input(f32(4, "B", 3))
        return [b.concat([b.apply("exp", x), y], 0)]

    check(build, """\
        nest 0: for 1, for each 12*B
          sweep 0, for each element
            v_in_2 = load input v_in_2[1] : f32
            store output v_out[1] + 6*B <- v_in_2

        nest 1: for 1, for each 6*B
          sweep 0, for each element
            v_in = load input v_in[1] : f32
            v = exp v_in : f32
            store output v_out[1] <- v
        """)  # fmt: skip


def test_what_is_stored_in_pieces_takes_no_input() -> None:
    """Of the size of the whole, and each piece read where it is stored."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", 8))
        halves = [b.slice(x, (0, at), shape_of("B", 4)) for at in (0, 4)]
        return [b.concat([b.apply("exp", halves[0]), b.apply("neg", halves[1])], 1)]

    assert lowered(build).forwards == ()


def test_where_a_slice_begins_is_a_sum_of_dims() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32(4, "B", 8))
        piece = b.slice(x, (1, 0, 2), shape_of(2, "B", 5))
        return [b.apply("mul", b.apply("exp", piece), b.constant(2.0, DType.F32))]

    check(build, """\
        nest 0: for 2*B, for each 5
          sweep 0, for each row
            v_2 = 2.0 : f32
          sweep 0, for each element
            v_in = load input v_in[8, 1] + 2 + 8*B : f32
            v = exp v_in : f32
            v_3 = mul v v_2 : f32
            store output v_out[5, 1] <- v_3
        """)  # fmt: skip
