"""StitchPlan -> Kernel, as far as all targets agree: loop nests, sweeps, tiles, accesses, guards.

Group                        Nest (layer norm)
t = x + r                    sweep 0: t = x + r; tile[t] = t; sum_0 += t
m = sum t          ->        sweep 1: t = tile[t]; d = t - m; sum_1 += d*d
v = sum (t-m)^2              sweep 2: t = tile[t]; d = t - m; y = d * rstd * gamma + beta; store y
y = ...

1. Level of a value: how many reductions must be complete before it can be computed. A reduction is carried out in
the sweep of its operand's level; a store likewise.
2. A value that a later sweep needs again is kept in a tile if computing it again is dear (a HEAVY function, two
or more loads, a strided load), otherwise it is computed again from what it reads.
3. Axes are collapsed: neighbours that every access crosses as one become one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tf_stitch.ir.body import (
    Constant,
    Elementwise,
    Extent,
    Gather,
    Iota,
    Reduce,
    View,
)
from tf_stitch.ir.types import ONE, Dim, TensorType, product, terms_of
from tf_stitch.lower.dims import solve_symbols
from tf_stitch.lower.forwarding import forwards
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Bound,
    Buffer,
    Compute,
    Coordinate,
    ExtentOf,
    Kernel,
    Literal,
    Load,
    LookUp,
    Nest,
    Place,
    Reduced,
    Reduction,
    Statement,
    Store,
    Sweep,
    runs_down,
)
from tf_stitch.lower.memory import Buffers, access_of, buffers_of
from tf_stitch.lower.names import Names
from tf_stitch.ops import is_heavy
from tf_stitch.plan.indexing import ZERO
from tf_stitch.plan.pieces import memory_strides
from tf_stitch.plan.plan import Group, StitchPlan

_ZERO = Dim(0)
_Crossing = TypeVar("_Crossing", Access, Coordinate)


def lower(plan: StitchPlan, name: str) -> Kernel:
    """The loop IR of a plan.

    Raises:
      Unsupported: with UNKNOWN_DIM, where a dim cannot be computed from the inputs' dims.
    """
    body = plan.body
    symbols, guards = solve_symbols(body)
    buffers = buffers_of(plan)
    nests = tuple(_Nester(plan, group, buffers).nest() for group in plan.groups)
    outputs = tuple(body.steps[o].type for o in body.outputs)
    bounds = tuple(Bound(small, large, f"{small} is at most {large}") for small, large in body.requires)
    kernel = Kernel(name, body.inputs, outputs, symbols, guards, buffers.scratch, nests, (), bounds, body.indices)
    return replace(kernel, forwards=forwards(kernel))


# -- nests -----------------------------------------------------------------------------------------------------


@dataclass
class _Value:
    """An instance while its nest is built. `level`: reductions to wait for; `element`: it varies along the row."""

    level: int
    element: bool
    access: Access | None = None
    coordinate: Coordinate | None = None
    at: tuple[LookUp, ...] = ()


class _Nester:
    """Builds the Nest of one group."""

    def __init__(self, plan: StitchPlan, group: Group, buffers: Buffers) -> None:
        self.body = plan.body
        self.group = group
        self.buffers = buffers
        self.names = Names()
        self.axes = group.outer + group.inner
        self.values: list[_Value] = []
        self.name_of: list[str] = []
        self.source: list[int] = []  # of each instance: the one that computes it, past all movement
        self.operands: list[tuple[int, ...]] = []
        self.reductions: dict[int, int] = {}  # instance -> number
        self.tiles: dict[int, Buffer] = {}  # instance -> tile
        self._computed: dict[int, int] = {}  # element instance -> first sweep that computes it, where there are tiles

    def nest(self) -> Nest:
        stores = self._stores()
        self._analyse()
        counted = [v.coordinate.strides for v in self.values if v.coordinate is not None]
        split = self._collapse([a.strides for a in (*self._accesses(), *(access for _, access in stores))] + counted)
        outer, inner = split
        stores = [(self.source[i], self._moved(access)) for i, access in stores]
        levels = self._classify(stores)
        if not runs_down(outer, self._accesses()):  # down columns a tile would be as long as the columns
            self._plan_tiles(levels)
        reductions = self._reductions()
        sweeps = [self._sweep(level, roots) for level, roots in enumerate(levels)]
        finish = self._finish([s for s in stores if not self._fills_rows(s[1])])
        return Nest(
            outer, inner, tuple(sweeps), finish, reductions, tuple(self.tiles.values()), self._nanoseconds(sweeps)
        )

    # .. analysis ..............................................................................................

    def _type(self, instance: int) -> TensorType:
        return self.body.steps[self.group.instances[instance].step].type

    def _stores(self) -> list[tuple[int, Access]]:
        found: list[tuple[int, Access]] = []
        for instance in self.group.stores:
            item = self.group.instances[instance]
            found += [(instance, access_of(h, item.index_map, self.axes)) for h in self.buffers.stored[item.step]]
        return found  # instances as the plan numbers them; `nest` goes on with their sources

    def _name_of_loaded(self, buffer: Buffer) -> str:
        """That of the buffer; but for one that the nest stores to as well, whose name is needed for that."""
        stores = (h for i in self.group.stores for h in self.buffers.stored[self.group.instances[i].step])
        return f"{buffer.name}_there" if any(h.buffer == buffer for h in stores) else buffer.name

    def _analyse(self) -> None:
        """Level, row or element, access and name of each instance."""
        for number, item in enumerate(self.group.instances):
            step = self.body.steps[item.step]
            if not item.loaded and isinstance(step.op, View):
                source = self.source[item.operands[0]]
                self.source.append(source)
                self.operands.append(self.operands[source])
                self.name_of.append(self.name_of[source])
                self.values.append(self.values[source])
                continue
            self.source.append(number)
            self.operands.append(tuple(self.source[o] for o in item.operands))
            if item.loaded:
                home = self.buffers.loaded[item.step]
                self.name_of.append(self.names.take(self._name_of_loaded(home.buffer)))
                access = access_of(home, item.index_map, self.axes)
                self.values.append(_Value(0, self._runs_along(access.strides), access))
                continue
            self.name_of.append(self.names.fresh(step.origin))
            operands = [self.values[o] for o in self.operands[number]]
            if isinstance(step.op, Gather):
                access, at = self._looked_up(number, step.op.axes)
                along = self._runs_along(access.strides) or any(v.element for v in operands)
                self.values.append(_Value(0, along, access, at=at))
                continue
            if isinstance(step.op, Iota):
                self.values.append(self._counted(number))
                continue
            level = max((v.level for v in operands), default=0)
            element = any(v.element for v in operands)
            if isinstance(step.op, Reduce):
                level, element = level + 1, False
            self.values.append(_Value(level, element))

    def _runs_along(self, strides: Sequence[Dim]) -> bool:
        """Whether what has these strides varies along the row."""
        inner = {axis.identity for axis in self.group.inner}
        return any(s != _ZERO and a.identity in inner for a, s in zip(self.axes, strides, strict=True))

    def _counted(self, number: int) -> _Value:
        """An Iota: what its index map says is its value."""
        item = self.group.instances[number]
        (index,) = item.index_map
        along = dict(index.terms)
        strides = tuple(along.get(axis.identity, _ZERO) for axis in self.axes)
        dtype = self.body.steps[item.step].type.dtype
        coordinate = Coordinate(self.name_of[number], dtype, strides, terms_of([Dim(index.offset)]))
        return _Value(0, self._runs_along(strides), coordinate=coordinate)

    def _looked_up(self, number: int, axes: Sequence[int]) -> tuple[Access, tuple[LookUp, ...]]:
        """Where a Gather reads its table."""
        item = self.group.instances[number]
        table = self.body.steps[item.step].operands[0]
        home = self.buffers.loaded[table]
        access = access_of(home, tuple(item.index_map[a] if a >= 0 else ZERO for a in axes), self.axes)
        names = [self.name_of[o] for o in self.operands[number]]
        dims = self.body.steps[table].type.dims
        at = (LookUp(names[-1 - a], m, d) for a, m, d in zip(axes, home.strides, dims, strict=True) if a < 0)
        return access, tuple(at)

    def _accesses(self) -> list[Access]:
        return [v.access for v in self.values if v.access is not None]

    def _collapse(self, crossed: Sequence[tuple[Dim, ...]]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """Step 3. Also makes the last axis of an element-wise group its vector axis."""
        extents = [axis.extent for axis in self.axes]
        boundary = len(self.group.outer) if self.group.inner else len(extents)
        runs: list[list[int]] = []
        for position in range(len(extents)):
            joined = bool(runs) and position != boundary
            if joined:
                before = runs[-1][-1]
                joined = all(strides[before] == strides[position] * extents[position] for strides in crossed)
            if joined:
                runs[-1].append(position)
            else:
                runs.append([position])
        outer_runs = [r for r in runs if r[0] < boundary]
        inner_runs = [r for r in runs if r[0] >= boundary]
        if not self.group.inner:
            inner_runs, outer_runs = outer_runs[-1:], outer_runs[:-1]
        self._runs = outer_runs + inner_runs
        if not inner_runs:  # a scalar
            self._runs.append([])
            inner_runs.append([])
        for number, value in enumerate(self.values):
            if value.access is not None and self.source[number] == number:
                value.access = self._moved(value.access)
            if value.coordinate is not None and self.source[number] == number:
                value.coordinate = self._moved(value.coordinate)
        if not self.group.inner:
            self._vector_axis_decides()
        return tuple(self._extent(r) for r in outer_runs), tuple(self._extent(r) for r in inner_runs)

    def _extent(self, run: Sequence[int]) -> Dim:
        """Of the collapsed axis that a run of axes becomes."""
        return product(self.axes[position].extent for position in run)

    def _moved(self, crossing: _Crossing) -> _Crossing:
        """An access, or a coordinate, over the collapsed axes."""
        # The strides of a scalar are those of its only element: any.
        return replace(crossing, strides=tuple(crossing.strides[run[-1]] if run else ONE for run in self._runs))

    def _vector_axis_decides(self) -> None:
        """In an element-wise group, what varies along the vector axis is an element and all else is a row's scalar."""
        for value, operands in zip(self.values, self.operands, strict=True):
            crossing = value.access or value.coordinate
            along = crossing is not None and crossing.strides[-1] != _ZERO
            value.element = along or any(self.values[o].element for o in operands)

    def _classify(self, stores: list[tuple[int, Access]]) -> list[list[tuple[int, Access | None]]]:
        """For each sweep its roots: operands to accumulate (no access) and elements to store."""
        roots: list[tuple[int, int, Access | None]] = []
        for number, item in enumerate(self.group.instances):
            if isinstance(self.body.steps[item.step].op, Reduce) and not item.loaded:
                self.reductions[number] = len(self.reductions)
                roots.append((self.values[number].level - 1, number, None))
        for instance, access in stores:
            if self._fills_rows(access):
                roots.append((self.values[instance].level, instance, access))
        count = 1 + max((level for level, _, _ in roots), default=0)
        return [[(i, a) for level, i, a in roots if level == sweep] for sweep in range(count)]

    def _fills_rows(self, access: Access) -> bool:
        """Whether a store has a place for each element of a row; of a row's scalar, too, that is broadcast."""
        inner = [a for a, run in enumerate(self._runs) if not run or run[0] >= len(self.group.outer)]
        return not self.group.inner or any(access.strides[a] != _ZERO for a in inner)

    def _reductions(self) -> tuple[Reduction, ...]:
        found: list[Reduction] = []
        for instance in self.reductions:
            op = self.body.steps[self.group.instances[instance].step].op
            assert isinstance(op, Reduce)
            level = self.values[instance].level - 1
            found.append(Reduction(self.name_of[instance], op.function, self._type(instance).dtype, level))
        return tuple(found)

    # .. tiles .................................................................................................

    def _plan_tiles(self, levels: list[list[tuple[int, Access | None]]]) -> None:
        """Step 2: which elements are kept in a tile from the first sweep that computes them on."""
        computed = self._computed
        size = product(axis.extent for axis in self.group.inner)
        for sweep, roots in enumerate(levels):
            stack = [self._operand(i) if a is None else i for i, a in roots]
            seen: set[int] = set()
            while stack:
                instance = stack.pop()
                if instance in seen or not self.values[instance].element or instance in self.tiles:
                    continue
                seen.add(instance)
                if computed.get(instance, sweep) < sweep and self._is_dear(instance):
                    dtype = self._type(instance).dtype
                    name = f"{self.name_of[instance]}_tile"
                    self.tiles[instance] = Buffer(Place.TILE, len(self.tiles), name, dtype, size)
                    continue
                computed.setdefault(instance, sweep)
                stack.extend(self.operands[instance])

    def _operand(self, reduction: int) -> int:
        return self.operands[reduction][0]

    def _is_dear(self, root: int) -> bool:
        """Whether to keep an element rather than compute it again: what it would have to load and evaluate."""
        loads: set[int] = set()
        stack, seen = [root], {root}
        while stack:
            instance = stack.pop()
            value = self.values[instance]
            if not value.element:
                continue
            if instance in self.tiles:
                loads.add(instance)
                continue
            if value.access is not None:
                if value.access.strides[-1] not in (ONE, _ZERO) or any(
                    self.values[o].element for o in self.operands[instance]
                ):
                    return True
                loads.add(instance)
                continue
            op = self.body.steps[self.group.instances[instance].step].op
            if isinstance(op, Elementwise) and is_heavy(op.function):
                return True
            for operand in self.operands[instance]:
                if operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        return len(loads) > 1

    # .. statements ............................................................................................

    def _sweep(self, sweep: int, roots: list[tuple[int, Access | None]]) -> Sweep:
        row: dict[int, Statement] = {}
        elements: dict[int, list[Statement]] = {}

        def need(root: int) -> None:
            stack: list[tuple[int, bool]] = [(root, False)]
            while stack:
                instance, ready = stack.pop()
                if instance in row or instance in elements:
                    continue
                value = self.values[instance]
                tile = self.tiles.get(instance)
                from_tile = tile is not None and self._computed[instance] < sweep
                complete = from_tile or instance in self.reductions
                if not ready and not complete:
                    stack.append((instance, True))
                    stack.extend((o, False) for o in reversed(self.operands[instance]))
                    continue
                if not value.element:
                    row[instance] = self._statement(instance)
                elif from_tile:
                    assert tile is not None
                    elements[instance] = [self._tile_load(instance, tile)]
                else:
                    elements[instance] = [self._statement(instance)]
                    if tile is not None:
                        access = self._tile_access(tile)
                        elements[instance].append(Store(access, self.name_of[instance], tile.dtype))

        tail: list[Statement] = []
        for instance, access in roots:
            if access is None:
                operand = self._operand(instance)
                need(operand)
                tail.append(Accumulate(self.reductions[instance], self.name_of[operand]))
            else:
                need(instance)
                tail.append(Store(access, self.name_of[instance], self._type(instance).dtype))
        return Sweep(tuple(row.values()), tuple(s for group in elements.values() for s in group) + tuple(tail))

    def _finish(self, stores: list[tuple[int, Access]]) -> tuple[Statement, ...]:
        row: dict[int, Statement] = {}

        def need(instance: int) -> None:
            if instance in row:
                return
            if instance not in self.reductions:
                for operand in self.operands[instance]:
                    need(operand)
            row[instance] = self._statement(instance)

        for instance, _ in stores:
            need(instance)
        tail = [Store(access, self.name_of[i], self._type(i).dtype) for i, access in stores]
        return tuple(row.values()) + tuple(tail)

    def _statement(self, instance: int) -> Statement:
        item, value, name = self.group.instances[instance], self.values[instance], self.name_of[instance]
        step = self.body.steps[item.step]
        dtype = step.type.dtype
        if value.access is not None:
            return Load(name, dtype, value.access, value.at)
        if value.coordinate is not None:
            return value.coordinate
        if instance in self.reductions:
            return Reduced(name, dtype, self.reductions[instance])
        match step.op:
            case Constant(bits):
                return Literal(name, dtype, bits)
            case Extent(dim):
                return ExtentOf(name, dtype, dim)
            case Elementwise(function):
                return Compute(name, dtype, function, tuple(self.name_of[o] for o in self.operands[instance]))
            case _:
                raise AssertionError(f"{step.op} is no statement: the index maps have done it")

    def _tile_access(self, tile: Buffer) -> Access:
        strides: list[Dim] = [_ZERO] * (len(self._runs) - len(self._inner_extents()))
        return Access(tile, tuple(strides) + memory_strides(tuple(self._inner_extents())))

    def _inner_extents(self) -> list[Dim]:
        first = len(self.group.outer)
        return [self._extent(run) for run in self._runs if run and run[0] >= first]

    def _tile_load(self, instance: int, tile: Buffer) -> Statement:
        return Load(self.name_of[instance], tile.dtype, self._tile_access(tile))

    def _nanoseconds(self, sweeps: list[Sweep]) -> float:
        total = 0.0
        for sweep in sweeps:
            for statement in sweep.elements:
                if isinstance(statement, Load | Store):
                    total += 0.05
                elif isinstance(statement, Compute):
                    total += 0.25 if is_heavy(statement.function) else 0.02
        return max(total, 0.05)
