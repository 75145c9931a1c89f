"""C++ text: literals and names, and that what is unusual about a kernel compiles and computes the right thing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.lower.building import Lowered, compiled, lowered, toolchain
from tests.lower.comparison import same_bits
from tests.lower.compiled import Compiled, Host
from tf_stitch.errors import BuildError
from tf_stitch.ir.body import Body, BodyBuilder, converted
from tf_stitch.ir.types import ALL, Dim, DType, TensorType, shape_of
from tf_stitch.lower import interp
from tf_stitch.lower.kernel import Load, Place, statements
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.render.c_family import dim, literal
from tf_stitch.runtime.reference import GuardFailed

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = sorted(ALL, key=lambda d: d.value)


def body(build: Callable[[BodyBuilder], Sequence[int]]) -> Body:
    builder = BodyBuilder(FUNCTIONS, REDUCERS)
    return builder.finish(build(builder))


def tensor(dtype: DType, *dims: int | str | Dim) -> TensorType:
    return TensorType(dtype, shape_of(*dims))


# -- text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (DType.F32, 1.0, "1.0f"),
        (DType.F32, 0.1, "0.1f"),
        (DType.F32, -0.0, "-0.0f"),
        (DType.F32, 1e10, "1e+10f"),
        (DType.F32, 16777217.0, "1.6777216e+07f"),
        (DType.F32, np.inf, "__builtin_inff()"),
        (DType.F32, -np.inf, "-__builtin_inff()"),
        (DType.F32, np.nan, '__builtin_nanf("")'),
        (DType.F64, 0.1, "0.1"),
        (DType.F64, 1e300, "1e+300"),
        (DType.F64, -np.inf, "-__builtin_inf()"),
        (DType.I32, -(2**31), "(-2147483647 - 1)"),
        (DType.I32, -5, "-5"),
        (DType.I64, -(2**63), "(-9223372036854775807LL - 1)"),
        (DType.I64, 2**63 - 1, "9223372036854775807LL"),
        (DType.BOOL, True, "true"),
        (DType.BF16, 1.00390625, "1.0f"),
        (DType.F16, 65504, "65504.0f"),
    ],
)
def test_literals(dtype: DType, value: Any, text: str) -> None:
    bits = np.asarray(value).astype(dtype.numpy).tobytes()
    assert literal(dtype, bits) == text


def test_dims() -> None:
    assert dim(Dim(7)) == "7"
    assert dim(Dim.symbol("d0"), "call.") == "call.d0"
    assert dim(Dim(3, ("d0", "d1")), "call.") == "(3 * call.d0 * call.d1)"


# -- names -----------------------------------------------------------------------------------------------------

NAMES = (
    "model/for", "int", "exp", "load", "call", "row", "n", "begin", "count", "begin_at", "x_at", "3d", "", "ÄÖÜ",
    'quote"; exit(1); //', "a" * 200, "state", "L", "width", "template", "_Z1", "Pack", "std", "true", "splat/splat_1",
    "first", "v", "v_2", "host", "tiles", "acc_0", "sweep_0_0", "Row0", "f32", "select", "max", "size", "inputs",
)  # fmt: skip


def named(origin: str) -> Body:
    """A cluster all of whose nodes have this name."""

    def build(b: BodyBuilder) -> list[int]:
        b.origin = origin
        x, y = b.input(tensor(DType.F32, "B", "N")), b.input(tensor(DType.F32, "N"))
        t = b.apply("maximum", b.apply("exp", b.apply("mul", x, y)), b.constant(0.5, DType.F32))
        most = b.reduce("max", t, [1], keep_dims=True)
        return [b.apply("sub", t, most), b.apply("neg", most)]

    found = body(build)
    return replace(found, steps=tuple(replace(s, origin=origin) for s in found.steps))


# -- kernels that are compiled, all at once --------------------------------------------------------------------


def constants(dtype: DType) -> Body:
    """Remarkable numbers, each in a row of its own."""

    def build(b: BodyBuilder) -> list[int]:
        mask = b.input(tensor(DType.BOOL, "N"))
        return [b.apply("select", mask, b.constant(v, dtype), b.constant(remarkable(dtype)[0], dtype))
                if dtype.compute is dtype else
                b.convert(b.apply("select", mask, b.widen(b.constant(v, dtype)), b.constant(0, DType.F32)), dtype)
                for v in remarkable(dtype)]  # fmt: skip

    return body(build)


def remarkable(dtype: DType) -> list[Any]:
    if dtype is DType.BOOL:
        return [False, True]
    if dtype in (DType.I32, DType.I64):
        limits = np.iinfo(dtype.numpy)
        return [0, -1, limits.min, limits.max, 12345]
    tiny = {DType.F16: 6e-5, DType.BF16: 1e-38, DType.F32: 1.1754944e-38, DType.F64: 2.3e-308}[dtype]
    return [0.0, -0.0, np.inf, -np.inf, np.nan, tiny, 1 / 3, -1e4, 0.1]


def casts(source: DType) -> Body:
    """To each other dtype."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(tensor(source, "N"))
        return [b.convert(x, target) for target in DTYPES if target is not source]

    return body(build)


def extents() -> Body:
    """The value of a product of dims in each dtype that may hold one."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(tensor(DType.F32, "B", "N"))
        size = Dim(3, ("B", "N"))
        found = [b.extent(size, dtype) for dtype in (DType.F32, DType.F64, DType.I32, DType.I64)]
        return [b.apply("neg", x), *found]

    return body(build)


def guarded() -> Body:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(tensor(DType.F32, "B", 4)), b.input(tensor(DType.F32, Dim(2, ("B",)), 4))
        b.require(Dim(2), Dim.symbol("B"), "a slice")
        part = b.slice(b.apply("exp", x), [1, 0], (Dim(1), Dim(4)))
        return [part, b.apply("neg", y)]

    return body(build)


def turned(dtype: DType) -> Body:
    """Loads and stores that are strided, backwards and offset."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(tensor(dtype, "B", 9))
        odd = b.slice(x, [0, 8], (Dim.symbol("B"), Dim(5)), [1, -2])
        flipped = b.apply("select", b.apply("logical_not", odd), odd, odd) if dtype is DType.BOOL else odd
        return [b.transpose(flipped, [1, 0]), b.transpose(x, [1, 0])]

    return body(build)


MADE = (
    {f"named {n}": named(n) for n in NAMES}
    | {f"constants {d.value}": constants(d) for d in DTYPES}
    | {f"casts {d.value}": casts(d) for d in DTYPES}
    | {f"turned {d.value}": turned(d) for d in DTYPES}
    | {"extents": extents(), "guarded": guarded()}
)


@pytest.fixture(scope="module")
def kernels() -> dict[str, tuple[Lowered, Compiled]]:
    made = {name: lowered(b, f"kernel_{n}") for n, (name, b) in enumerate(MADE.items())}
    return dict(zip(made, zip(made.values(), compiled(list(made.values())), strict=True), strict=True))


Kernels = dict[str, tuple[Lowered, Compiled]]


def interpreted(kernels: Kernels, name: str, inputs: list[Array | None]) -> list[tuple[Array, Array]]:
    """What the compiled kernel gives, beside what the interpreter does."""
    made, kernel = kernels[name]
    return list(zip(kernel(inputs, Host(threads=2)), interp.run(made.kernel, inputs), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_node_breaks_the_text(name: str, kernels: Kernels) -> None:
    x, y = np.linspace(-1, 1, 33, dtype=np.float32).reshape(3, 11), np.ones(11, np.float32)
    for mine, wanted in interpreted(kernels, f"named {name}", [x, y]):
        np.testing.assert_allclose(mine, wanted, rtol=1e-6, atol=1e-6)


def test_names_of_nodes_are_seen_in_the_text(kernels: Kernels) -> None:
    assert (
        "splat_1_in" in kernels["named splat/splat_1"][0].source.text
        or "splat" in kernels["named splat/splat_1"][0].source.text
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.value)
def test_constants_arrive_bit_for_bit(dtype: DType, kernels: Kernels) -> None:
    mask = np.array([True, True, False])
    for value, (mine, wanted) in zip(
        remarkable(dtype), interpreted(kernels, f"constants {dtype.value}", [mask]), strict=True
    ):
        expected = np.full(2, value).astype(dtype.numpy)
        assert same_bits(mine[:2], expected) or np.isnan(value), value
        np.testing.assert_array_equal(mine.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("source", DTYPES, ids=lambda d: d.value)
def test_casts_are_as_tensorflow_casts(source: DType, kernels: Kernels) -> None:
    numbers = np.array([0, 1, -1, 2.5, -2.5, 300.7, -1e6, 65519, 65520, 3e9, -3e9, 1e19, 1.00390625, 0.1, 1 / 3])
    with np.errstate(all="ignore"):
        if source is DType.BOOL:
            x = numbers > 0
        elif source in (DType.I32, DType.I64):
            x = np.trunc(np.clip(numbers, -(2.0**31), 2.0**31 - 1)).astype(source.numpy)
        else:
            x = np.append(numbers, [np.inf, -np.inf, np.nan, -0.0]).astype(source.numpy)
    _, kernel = kernels[f"casts {source.value}"]
    for target, mine in zip((t for t in DTYPES if t is not source), kernel([x]), strict=True):
        halves = {DType.F16, DType.BF16}
        by_f32 = DType.F32 not in (source, target) and (source in halves or target in halves)
        wanted = converted(converted(x, DType.F32) if by_f32 else x, target)
        np.testing.assert_array_equal(mine.astype(np.float64), wanted.astype(np.float64), err_msg=target.value)


def test_extents_are_numbers_of_the_call(kernels: Kernels) -> None:
    for rows, columns in ((1, 1), (3, 7), (0, 5), (1000, 3000)):
        _, kernel = kernels["extents"]
        found = kernel([np.ones((rows, columns), np.float32)])
        assert [float(v) for v in found[1:]] == [3.0 * rows * columns] * 4


def test_guards_that_do_not_hold_are_named(kernels: Kernels) -> None:
    def fed(*shapes: tuple[int, ...]) -> list[Array | None]:
        return [np.ones(s, np.float32) for s in shapes]

    made, kernel = kernels["guarded"]
    kernel(fed((2, 4), (4, 4)))
    for shapes, text in (
        (((2, 4), (4, 4, 1)), "ranks"),
        (((2, 5), (4, 4)), "dim 1 of input 0"),
        (((2, 4), (5, 4)), "dim 0 of input 1"),
        (((1, 4), (2, 4)), "at most"),
    ):
        with pytest.raises(GuardFailed, match=text):
            kernel(fed(*shapes))
        with pytest.raises(GuardFailed, match=text):
            interp.run(made.kernel, fed(*shapes))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.value)
def test_strided_memory_of_every_dtype(dtype: DType, kernels: Kernels) -> None:
    for rows in (0, 1, 8, 37):
        x = (np.arange(rows * 9).reshape(rows, 9) % 5 - 2).astype(dtype.numpy)
        for mine, wanted in interpreted(kernels, f"turned {dtype.value}", [x]):
            assert same_bits(mine, wanted)


# -- streaming stores ------------------------------------------------------------------------------------------


def centred(*dims: int | str, twice: bool = False) -> Body:
    """Rows less their sums; `twice`: and the sums of the columns of that, for which it is read again."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(tensor(DType.F32, *dims))
        y = b.apply("sub", x, b.reduce("sum", x, [1], keep_dims=True))
        return [y, b.reduce("sum", y, [0])] if twice else [y]

    return body(build)


def test_only_what_is_not_read_again_goes_past_the_caches() -> None:
    assert "stream(" in lowered(centred("R", "C")).source.text
    again = lowered(centred("R", "C", twice=True))
    read = {s.access.buffer.place for s in statements(again.kernel.nests[-1]) if isinstance(s, Load)}
    assert Place.OUTPUT in read, "the case is another one now"
    assert "stream(" not in again.source.text


def test_a_small_call_has_no_streaming_stores() -> None:
    """Where all dims are known there is nothing to choose at run time."""
    assert "stream" not in lowered(centred(16, 64)).source.text
    assert "stream" in lowered(centred(1 << 14, 1 << 12)).source.text


def test_streaming_stores_are_those_of_the_machine() -> None:
    """Both compilers know the instruction under another name."""
    if toolchain().target.isa == "aarch64":
        pytest.skip("AArch64 has no streaming stores that would gain anything")
    (artifact,) = toolchain().build([lowered(centred("R", "C")).source])
    assert not isinstance(artifact, BuildError)
    code = subprocess.run(["objdump", "-d", str(artifact.path)], capture_output=True, text=True, check=True).stdout
    assert "movnt" in code
    assert "sfence" in code
