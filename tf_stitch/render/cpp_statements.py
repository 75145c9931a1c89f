"""The statements of a nest as C++: scalars at the head of a function, vectors in its loop."""

from __future__ import annotations

from collections.abc import Sequence

from tf_stitch.ir.types import ONE, Dim, DType
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Compute,
    Coordinate,
    ExtentOf,
    Literal,
    Load,
    LookUp,
    Nest,
    Place,
    Reduced,
    Reduction,
    Statement,
    Store,
)
from tf_stitch.render.c_family import STORAGE, dim, expression, literal, register

_ZERO = Dim(0)


def accumulator_type(reduction: Reduction) -> str:
    """What a reduction's blocks are added up in: a sum of f32 in f64, so that long rows lose nothing there."""
    if reduction.dtype is DType.F32 and reduction.reducer == "sum":
        return "f64"
    return register(reduction.dtype)


def scalar_type(type_: str) -> str:
    return "Mask<1>" if type_ == "mask" else f"Pack<{type_}, 1>"


def pack_literal(dtype: DType, bits: bytes) -> str:
    value = literal(dtype, bits)
    return f"splat<1>({value})" if dtype is DType.BOOL else f"splat<{register(dtype)}, 1>({value})"


class Scope:
    """The names of one function: which are scalars, which vectors, and where each access points."""

    def __init__(self, nest: Nest, streams: bool = False) -> None:
        """streams: whether outputs may go past the caches."""
        self.nest = nest
        self.streams = streams
        self.dtypes: dict[str, DType] = {}
        self.vectors: set[str] = set()
        self.places: dict[Access, str] = {}

    def pointers(self, statements: Sequence[Statement]) -> list[str]:
        """One pointer per access, advanced to the row (and moved on by the loops over further inner axes)."""
        lines: list[str] = []
        taken: set[str] = set()
        for s in statements:
            if not isinstance(s, Load | Store) or s.access in self.places:
                continue
            access, name = s.access, f"{s.access.buffer.name}_at"
            while name in taken:
                name += "_"
            taken.add(name)
            self.places[access] = name
            base = access.buffer.name if access.buffer.place is Place.TILE else f"call.{access.buffer.name}"
            repeated = any(access.buffer == r.tile for r in self.nest.repeats)
            offset = " - begin" if repeated else self._row_offset(access)
            const = "const " if access.buffer.place is Place.INPUT else ""
            lines.append(f"{const}{STORAGE[access.buffer.dtype]}* {name} = {base}{offset};")
        return lines

    def _row_offset(self, access: Access | Coordinate) -> str:
        outer = self.nest.outer
        parts: list[str] = []
        for axis, stride in enumerate(access.strides[: len(outer)]):
            if stride == _ZERO or outer[axis].is_one:
                continue
            coordinate = "row" if len(outer) == 1 else f"o{axis}"
            parts.append(coordinate if stride.is_one else f"{coordinate} * {dim(stride, 'call.')}")
        parts += [dim(term, "call.") for term in access.offset]
        return "".join(f" + {p}" for p in parts)

    def _inner_offset(self, access: Access | Coordinate) -> str:
        """The part of an address that the loops over the inner axes before the last add."""
        first = len(self.nest.outer)
        parts: list[str] = []
        for axis, stride in enumerate(access.strides[first:-1]):
            if stride != _ZERO:
                parts.append(f" + i{axis} * {dim(stride, 'call.')}")
        return "".join(parts)

    # .. statements .............................................................................................

    def _assign(self, name: str, dtype: DType, value: str, vector: bool) -> list[str]:
        self.dtypes[name] = dtype
        if vector:
            self.vectors.add(name)
        return [f"const auto {name} = {value};"]

    def scalar(self, s: Statement) -> list[str]:
        match s:
            case Load(name, dtype, access, at):
                return self._assign(name, dtype, f"load<1>({self.places[access]}{self._looked_up(at)})", False)
            case Literal(name, dtype, bits):
                return self._assign(name, dtype, pack_literal(dtype, bits), False)
            case ExtentOf(name, dtype, extent):
                type_ = register(dtype)
                return self._assign(name, dtype, f"splat<{type_}, 1>({type_}({dim(extent, 'call.')}))", False)
            case Coordinate(name, dtype):
                type_ = register(dtype)
                return self._assign(name, dtype, f"splat<{type_}, 1>({type_}(0{self._row_offset(s)}))", False)
            case Compute(name, dtype, _, operands):
                value = expression(s, list(operands), [self.dtypes[o] for o in operands])
                return self._assign(name, dtype, value, False)
            case Reduced(name, dtype, number):
                reduction = self.nest.reductions[number]
                value = f"state.{reduction.name}"
                if accumulator_type(reduction) != register(dtype):
                    value = f"convert<{register(dtype)}>({value})"
                return self._assign(name, dtype, value, False)
            case Store(access, value):
                return [f"store({self.places[access]}, {value});"]
            case Accumulate():
                raise AssertionError("a scalar is never accumulated")

    def vector(self, s: Statement) -> list[str]:
        match s:
            case Load(name, dtype, access, at):
                return self._assign(name, dtype, self._vector_load(access, at), True)
            case Literal() | ExtentOf() | Reduced():
                return self.scalar(s)
            case Coordinate(name, dtype):
                return self._assign(name, dtype, self._coordinates(s), True)
            case Compute(name, dtype, _, operands):
                wide = [self._wide(o) for o in operands]
                value = expression(s, wide, [self.dtypes[o] for o in operands])
                return self._assign(name, dtype, value, True)
            case Store(access, value):
                return [self._vector_store(access, self._wide(value))]
            case Accumulate(number, value):
                return [f"partial{number}.add({self._wide(value)}, count);"]

    def _wide(self, name: str) -> str:
        return name if name in self.vectors else f"splat<L>({name})"

    def _looked_up(self, at: Sequence[LookUp]) -> str:
        """What indices that are scalars add to an address."""
        return "".join(f" + i64({a.value}.v) * {dim(a.stride, 'call.')}" for a in at)

    def _vector_load(self, access: Access, indices: Sequence[LookUp] = ()) -> str:
        stride, at = access.strides[-1], f"{self.places[access]}{self._inner_offset(access)}"
        at += self._looked_up([i for i in indices if i.value not in self.vectors])
        if any(i.value in self.vectors for i in indices):
            places = [self._strided(i) for i in indices if i.value in self.vectors]
            if stride != _ZERO:
                step = dim(stride, "call.")
                places.append(f"iota<i64, L>(n * ({step}), {step})")
            return f"load_at<L>({at}, {' + '.join(places)}, count)"
        if stride == _ZERO:
            return f"splat<L>(load<1>({at}))"
        if stride == ONE:
            return f"load<L>({at} + n, count)"
        step = dim(stride, "call.")
        return f"load_strided<L>({at} + n * ({step}), {step}, count)"

    def _coordinates(self, s: Coordinate) -> str:
        """The number of each lane."""
        type_, step = register(s.dtype), dim(s.strides[-1], "call.")
        first = f"0{self._row_offset(s)}{self._inner_offset(s)} + n * {step}"
        return f"iota<{type_}, L>({type_}({first}), {type_}({step}))"

    def _strided(self, index: LookUp) -> str:
        """What an index of each lane adds to where the lane reads."""
        value = index.value if self.dtypes[index.value] is DType.I64 else f"convert<i64>({index.value})"
        return value if index.stride == ONE else f"{value} * splat<i64, L>({dim(index.stride, 'call.')})"

    def is_streamed(self, access: Access) -> bool:
        return self.streams and access.strides[-1] == ONE and access.buffer.place is Place.OUTPUT

    def _vector_store(self, access: Access, value: str) -> str:
        stride, at = access.strides[-1], f"{self.places[access]}{self._inner_offset(access)}"
        if self.is_streamed(access):
            return f"stream({at} + n, {value}, count, call.streams);"
        if stride == ONE:
            return f"store({at} + n, {value}, count);"
        step = dim(stride, "call.")
        return f"store_strided({at} + n * ({step}), {step}, {value}, count);"
