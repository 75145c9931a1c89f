"""Statements of a nest as CUDA C++: of one thread, on scalars; loads and stores of neighbours on packs."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from tf_stitch.ir.types import ONE, Dim, DType
from tf_stitch.lower.gpu_schedule import GpuSchedule, Home
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Buffer,
    Compute,
    Coordinate,
    ExtentOf,
    Literal,
    Load,
    LookUp,
    Nest,
    Place,
    Reduced,
    Statement,
    Store,
)
from tf_stitch.lower.nests import scattered
from tf_stitch.ops import REDUCERS
from tf_stitch.render.c_family import STORAGE, dim, expression, literal
from tf_stitch.render.c_family import register as pack_register

_ZERO = Dim(0)
_WORD = re.compile(r"[A-Za-z_]\w*")
COMBINE = {"add": "Sum", "mul": "Product", "max": "Largest", "min": "Smallest", "and": "AllOf", "or": "AnyOf"}
_FUNCTION = {"add": "plus", "mul": "times"}  # of integers, which wrap


def register(dtype: DType) -> str:
    """The type that a value of this dtype is computed in."""
    return "bool" if dtype is DType.BOOL else pack_register(dtype)


def combined(reducer: str, dtype: DType, one: str, other: str) -> str:
    """The statement that combines `other` into the variable `one`."""
    combine = REDUCERS[reducer].combine
    if dtype.is_float and combine in ("add", "mul"):
        return f"{one} {'+' if combine == 'add' else '*'}= {other};"
    if combine in ("and", "or"):
        return f"{one} = {one} {'&' if combine == 'and' else '|'} {other};"
    return f"{one} = {_FUNCTION.get(combine, combine)}({one}, {other});"


class Scope:
    """The names of one nest, as its part of a stage is printed.

    constant: inputs that nothing writes during the launch. index: the type of what counts elements. down: reductions
    that have a sum for each element of a row.
    """

    def __init__(
        self, nest: Nest, schedule: GpuSchedule, constant: frozenset[int], index: str, down: Container[int] = ()
    ) -> None:
        self.index = index
        self.down = down
        self.scattered = frozenset(name for sweep in nest.sweeps for name in scattered(sweep))
        self.nest = nest
        self.schedule = schedule
        self.constant = constant
        self.dtypes: dict[str, DType] = {}
        self.outer: Sequence[str] = ()  # the coordinates of the outer axes
        self.known: set[str] = set()  # a row's scalars that are declared
        self.pointers: dict[tuple[Buffer, tuple[Dim, ...], tuple[Dim, ...]], str] = {}
        self.elements: dict[str, str] = {}  # a name of the current step, and how it is written

    # .. pointers ...............................................................................................

    def point(self, statements: Sequence[Statement], coordinates: Sequence[str]) -> list[str]:
        """A pointer for each access, moved on to the row; `coordinates` are those of the outer axes."""
        self.outer = coordinates
        lines: list[str] = []
        for s in statements:
            if not isinstance(s, Load | Store) or s.access.buffer.place is Place.TILE:
                continue
            key = self._key(s.access)
            if key in self.pointers:
                continue
            buffer = s.access.buffer
            if self._points_itself(s):
                self.pointers[key] = buffer.name
                continue
            name = f"{buffer.name}_at"
            while name in self.pointers.values():
                name += "_"
            self.pointers[key] = name
            const = "" if isinstance(s, Store) else "const "
            parts = [_times(c, d) for c, d in zip(coordinates, s.access.strides, strict=False) if d != _ZERO]
            parts += [dim(term) for term in s.access.offset]
            where = " + ".join([buffer.name, *parts])
            lines.append(f"{const}{STORAGE[buffer.dtype]}* {name} = {where};")
        return lines

    def counted(self, statements: Sequence[Statement]) -> frozenset[str]:
        """The coordinates of outer axes that are values: they are read beside the pointers."""
        numbers = [s for s in statements if isinstance(s, Coordinate)]
        return frozenset(c for s in numbers for c, d in zip(self.outer, s.strides, strict=False) if d != _ZERO)

    def _points_itself(self, s: Load | Store) -> bool:
        """Whether the buffer's own pointer will do: no variable of its name is declared where it is used."""
        outer = s.access.strides[: len(self.nest.outer)]
        moved = s.access.offset or any(d != _ZERO for d in outer)
        packed = self.schedule.vector > 1 and s.access.strides[-1] == ONE  # else a variable of its name is declared
        return not moved and (packed or isinstance(s, Store))

    def _key(self, access: Access) -> tuple[Buffer, tuple[Dim, ...], tuple[Dim, ...]]:
        return access.buffer, access.strides[: len(self.nest.outer)], access.offset

    def _address(self, access: Access, inner: Sequence[str]) -> str:
        """Of an element, `inner` being the coordinates of the inner axes."""
        name = self.pointers[self._key(access)]
        strides = access.strides[len(self.nest.outer) :]
        parts = [_times(c, d) for c, d in zip(inner, strides, strict=True) if d != _ZERO]
        return " + ".join([name, *parts])

    def _load(self, access: Access) -> str:
        """The function of the prelude that reads this memory."""
        if access.buffer.place is Place.INPUT:
            return "load_constant" if access.buffer.index in self.constant else "load"
        return "load_fresh"

    def _loaded(self, s: Load, address: str, vector: int = 1) -> str:
        """`vector` elements from this address on; of a table, 0 where one of the indices is out of range.

        That is what TensorFlow's kernels for GPUs find there: core/kernels/gather_functor_gpu.cu.h and
        gather_nd_op_gpu.cu.cc. All of an address is computed behind the question whether there is one.
        """
        function = self._load(s.access) + (f"<{vector}>" if vector > 1 else "")
        if not s.at:
            return f"{function}({address})"
        names = [self.elements.get(a.value, a.value) for a in s.at]
        inside = [f"within({name}, {dim(a.below)})" for name, a in zip(names, s.at, strict=True)]
        counts = [
            f"{self.index}({n})" if self._index_of(a) != self.index else n for n, a in zip(names, s.at, strict=True)
        ]
        moved = [_times(count, a.stride) for count, a in zip(counts, s.at, strict=True)]
        zero = f"Pack<{register(s.dtype)}, {vector}>{{}}" if vector > 1 else f"{register(s.dtype)}(0)"
        return f"{' && '.join(inside)} ? {function}({' + '.join([address, *moved])}) : {zero}"

    def _index_of(self, a: LookUp) -> str:
        """The type of an index, as one that counts elements."""
        return "int" if self.dtypes[a.value] is DType.I32 else "i64"

    # .. statements of a row ....................................................................................

    def scalars(self, statements: Sequence[Statement]) -> list[str]:
        """Those of them that are not declared yet."""
        lines: list[str] = []
        for s in statements:
            if isinstance(s, Store):
                lines.append(f"store({self._address(s.access, self._first())}, {s.value});")
            elif not isinstance(s, Accumulate) and s.name not in self.known:
                self.known.add(s.name)
                lines += self._scalar(s)
        return lines

    def _first(self) -> list[str]:
        return ["0"] * len(self.nest.inner)

    def _scalar(self, s: Load | Literal | ExtentOf | Coordinate | Compute | Reduced) -> list[str]:
        self.dtypes[s.name] = s.dtype
        match s:
            case Load():
                value = self._loaded(s, self._place(s.access))
            case Literal(_, dtype, bits):
                value = literal(dtype, bits)
            case ExtentOf(_, dtype, extent):
                value = f"{register(dtype)}({dim(extent)})"
            case Coordinate():
                value = self._number(s, self._first())
            case Compute():
                value = self._expression(s)
            case Reduced(name, _, number):
                reduction = self.nest.reductions[number]
                if name == reduction.name:  # it was declared when it was combined
                    return []
                value = reduction.name
        return [f"const {register(s.dtype)} {s.name} = {value};"]

    def _number(self, s: Coordinate, inner: Sequence[str]) -> str:
        """What a Coordinate is at these coordinates of the inner axes."""
        parts = [_times(c, d) for c, d in zip([*self.outer, *inner], s.strides, strict=True) if d != _ZERO and c != "0"]
        return f"{register(s.dtype)}({' + '.join([*parts, *map(dim, s.offset)]) or '0'})"

    def _place(self, access: Access) -> str:
        return self.pointers[self._key(access)]

    def _expression(self, s: Compute) -> str:
        operands = [self.elements.get(o, o) for o in s.operands]
        dtypes = [self.dtypes[o] for o in s.operands]
        integers = not all(d.is_float for d in dtypes)  # a float's own operators read better
        value = expression(s, operands, dtypes, scalars=integers)
        return value.replace("convert<mask>", "convert<bool>")

    # .. statements of an element ...............................................................................

    def step(self, statements: Sequence[Statement], inner: Sequence[str], linear: str, turn: str) -> list[str]:
        """A thread's step along the row: `vector` neighbours, the first of them at the coordinates `inner`.

        linear: the number of the first in the row. turn: of the step, where tiles are in registers; else "".
        """
        self.elements = {}
        before: list[str] = []
        body: list[str] = []
        after: list[str] = []
        vector = self.schedule.vector
        for s in statements:
            match s:
                case Load():
                    self.dtypes[s.name] = s.dtype
                    before += self._element_load(s, inner, linear, turn, body)
                case Literal() | ExtentOf() | Reduced():
                    before += self.scalars([s])
                case Coordinate(name, dtype):
                    self.dtypes[name] = dtype
                    along = [*inner[:-1], f"({inner[-1]} + e)"] if vector > 1 else inner
                    body.append(f"const {register(dtype)} {name} = {self._number(s, along)};")
                case Compute(name, dtype):
                    self.dtypes[name] = dtype
                    body.append(f"const {register(dtype)} {name} = {self._expression(s)};")
                case Accumulate(number, value):
                    reduction = self.nest.reductions[number]
                    operand = self.elements.get(value, value)
                    part = f"{reduction.name}_part"
                    part = self._in_registers(part, turn) if number in self.down else part
                    body.append(combined(reduction.reducer, reduction.dtype, part, operand))
                case Store(access, value, _):
                    self._element_store(access, value, inner, linear, turn, before, body, after)
        if vector == 1:
            return before + body + after
        loop = ["#pragma unroll", f"for (int e = 0; e < {vector}; ++e) {{", *indented(body), "}"]
        return before + loop + after

    def _element_load(self, s: Load, inner: Sequence[str], linear: str, turn: str, body: list[str]) -> list[str]:
        """Lines in front of the loop over a thread's neighbours; those in it are added to `body`."""
        name, access, vector, type_ = s.name, s.access, self.schedule.vector, register(s.dtype)
        if access.buffer.place is Place.TILE:
            if self.schedule.home is Home.REGISTERS:
                self.elements[name] = self._in_registers(access.buffer.name, turn)
                return []
            address = f"{access.buffer.name} + {linear}"
            whole = vector > 1
            one = f"load({address})"
            pack = f"load<{vector}>({address})"
        else:
            one_by_one = name in self.scattered
            along = [*inner[:-1], f"({inner[-1]} + e)"] if one_by_one and vector > 1 else inner
            address = self._address(access, along)
            whole = vector > 1 and access.strides[-1] == ONE and not one_by_one
            one, pack = self._loaded(s, address), self._loaded(s, address, vector)
        if whole:
            self.elements[name] = f"{name}_pack.v[e]"
            return [f"const Pack<{type_}, {vector}> {name}_pack = {pack};"]
        line = f"const {type_} {name} = {one};"
        if vector > 1 and name not in self.scattered:
            return [line]
        body.append(line)
        return []

    def _in_registers(self, name: str, turn: str) -> str:
        place = f"{name}[{turn}]" if turn else name
        return place if self.schedule.vector == 1 else f"{place}.v[e]"

    def _element_store(
        self,
        access: Access,
        value: str,
        inner: Sequence[str],
        linear: str,
        turn: str,
        before: list[str],
        body: list[str],
        after: list[str],
    ) -> None:
        vector, buffer = self.schedule.vector, access.buffer
        value = self.elements.get(value, value)
        if buffer.place is Place.TILE and self.schedule.home is Home.REGISTERS:
            body.append(f"{self._in_registers(buffer.name, turn)} = {value};")
            return
        in_tile = buffer.place is Place.TILE
        address = f"{buffer.name} + {linear}" if in_tile else self._address(access, inner)
        if vector == 1:
            body.append(f"store({address}, {value});")
            return
        pack = f"{buffer.name}_pack"
        while f"Pack<{register(buffer.dtype)}, {vector}> {pack};" in before:  # another piece of the same buffer
            pack += "_"
        before.append(f"Pack<{register(buffer.dtype)}, {vector}> {pack};")
        body.append(f"{pack}.v[e] = {value};")
        after.append(f"store({address}, {pack});")


def _times(coordinate: str, stride: Dim) -> str:
    return coordinate if stride.is_one else f"{coordinate} * {dim(stride)}"


def words(lines: Sequence[str]) -> set[str]:
    """The names that lines speak of."""
    return set(_WORD.findall(" ".join(lines)))


def indented(lines: Sequence[str]) -> list[str]:
    return [line if line.startswith("#") else f"  {line}" for line in lines]


def bare(text: str) -> str:
    """An expression without the parentheses around all of it."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") else text
