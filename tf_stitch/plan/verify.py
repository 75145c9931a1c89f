"""The invariants of a StitchPlan, checked in tests and at debug level. A failure is a bug of ours, no user's.

Index maps are checked by what they mean: for some values of the symbols, each map is evaluated at all
coordinates of its loop nest, and every step must be read where its operation says:

    y = transpose x by (1, 0), read at (i, j)      ->      x is read at (j, i), for all i and j

The other rules:
  - a group reads inputs, and what an earlier group stores;
  - a step is computed at maps within its shape; a reduction at one, which has each of its rows once;
  - every output and every step in scratch is stored by one group, each element once; a concatenation in pieces;
  - the schemes say what the groups do.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.ir.body import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Extent,
    Gather,
    Input,
    Iota,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    Windows,
)
from tf_stitch.ir.symbols import completed
from tf_stitch.ir.verify import BrokenInvariant
from tf_stitch.plan.pieces import pieces_of, read_steps, stored_steps
from tf_stitch.plan.plan import Scheme

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from tf_stitch.ir.body import Body
    from tf_stitch.ir.symbols import Derivations
    from tf_stitch.ir.types import Dim
    from tf_stitch.plan.indexing import IndexMap
    from tf_stitch.plan.plan import Group, Instance, StitchPlan

    Array = np.ndarray[Any, np.dtype[np.int64]]
    Indices = tuple[Array, ...]

_SIZES = (1, 3, 2, 5, 7)  # of symbols: mostly odd, so that nothing divides by chance
_LARGEST = 1 << 16  # coordinates that are all looked at; of more, some
_SOME = 1 << 10


def verify_plan(plan: StitchPlan) -> None:
    """Checks every invariant that the module lists.

    Raises:
      BrokenInvariant: naming the group, the step and the rule.
    """
    _verify_stores(plan)
    _verify_schemes(plan)
    for symbols in sampled_symbols(symbols_of(plan.body), plan.body.derivations):
        for whole in dict.fromkeys((*plan.body.outputs, *plan.scratch)):
            _verify_pieces(plan.body, whole, symbols)
    for number, group in enumerate(plan.groups):
        with naming(f"group {number}"):
            _verify_group(plan, number)
            for symbols in sampled_symbols(symbols_of(plan.body), plan.body.derivations):
                if _holds(plan.body, symbols):
                    _Sample(plan.body, group, symbols).verify()


def _holds(body: Body, symbols: Mapping[str, int]) -> bool:
    return all(small.evaluate(symbols) <= large.evaluate(symbols) for small, large in body.requires)


@contextlib.contextmanager
def naming(where: str) -> Generator[None]:
    """Puts `where` in front of what is broken."""
    try:
        yield
    except BrokenInvariant as broken:
        raise BrokenInvariant(f"{where}: {broken}") from None


def symbols_of(body: Body) -> list[str]:
    """The symbols of a body's dims, in order of appearance."""
    dims = [d for type_ in body.inputs if type_ is not None for d in type_.dims]
    dims += [d for step in body.steps for d in step.type.dims]
    dims += [step.op.dim for step in body.steps if isinstance(step.op, Extent)]
    dims += [term for _, derivation in body.derivations for term in derivation.terms]
    return list(dict.fromkeys(s for d in dims for s in d.symbols))


def sampled_symbols(names: list[str], derivations: Derivations = ()) -> Iterator[dict[str, int]]:
    """Values of the symbols to try: all 1, one of them 0, and small ones that differ. What is derived follows."""
    derived = dict(derivations)
    names = [name for name in names if name not in derived]
    yield completed(dict.fromkeys(names, 1), derivations)
    if not names:
        return
    for shift in range(2):
        sizes = {name: _SIZES[(i + shift + 1) % len(_SIZES)] for i, name in enumerate(names)}
        yield completed(sizes, derivations)
    yield completed({name: 0 if i == len(names) - 1 else 3 for i, name in enumerate(names)}, derivations)


def check(holds: bool | np.bool_, rule: str) -> None:
    if not holds:
        raise BrokenInvariant(rule)


# -- structure -----------------------------------------------------------------------------------------------


def _verify_stores(plan: StitchPlan) -> None:
    stored = [group.instances[i].step for group in plan.groups for i in group.stores]
    check(len(set(stored)) == len(stored), "a step is stored once")
    inputs = {i for i, s in enumerate(plan.body.steps) if isinstance(s.op, Input)}
    wanted = set(stored_steps(plan.body, [*plan.body.outputs, *plan.scratch]))
    check(wanted - inputs <= set(stored) <= wanted, "what is stored are the outputs and the scratch")
    check(not set(plan.scratch) & set(plan.body.outputs), "an output needs no scratch")


def _verify_pieces(body: Body, whole: int, symbols: Mapping[str, int]) -> None:
    """The pieces of a step cover it, each element once."""
    size = body.steps[whole].type.size.evaluate(symbols)
    if size > _LARGEST:
        return
    at: list[Array] = [np.zeros(0, np.int64)]
    for piece in pieces_of(body, whole):
        extents = tuple(d.evaluate(symbols) for d in body.steps[piece.step].type.dims)
        offsets = np.full(extents, sum(term.evaluate(symbols) for term in piece.offset), np.int64)
        for coordinate, stride in zip(np.indices(extents, np.int64, sparse=True), piece.strides, strict=True):
            offsets = offsets + coordinate * stride.evaluate(symbols)
        at.append(np.ravel(offsets))
    once = np.array_equal(np.sort(np.concatenate(at)), np.arange(size))
    check(once, f"the pieces of step {whole} cover it once, with {symbols}")


def _verify_group(plan: StitchPlan, number: int) -> None:
    body, group = plan.body, plan.groups[number]
    earlier = {g.instances[i].step for g in plan.groups[:number] for i in g.stores}
    wholes = {s for s in (*body.outputs, *plan.scratch) if earlier.issuperset(stored_steps(body, [s]))}
    identities = [axis.identity for axis in group.outer + group.inner]
    check(len(set(identities)) == len(identities), "axes are told apart by their identities")
    computed: list[int] = []
    for position, instance in enumerate(group.instances):
        step = body.steps[instance.step]
        where = f"step {instance.step}, {step.op}"
        check(len(instance.index_map) == len(step.type.dims), f"{where}: a map has an index for each axis")
        used = {axis for index in instance.index_map for axis, _ in index.terms}
        check(used <= set(identities), f"{where}: a map speaks of the axes of its group")
        if instance.loaded:
            check(not instance.operands, f"{where}: what is loaded reads nothing")
            check(
                isinstance(step.op, Input) or instance.step in earlier | wholes,
                f"{where}: what is loaded is an input, or stored by an earlier group",
            )
            continue
        check(not isinstance(step.op, Input | Concat), f"{where}: an input is loaded, and so is a concatenation")
        check(all(0 <= o < position for o in instance.operands), f"{where}: operands come first")
        operands = tuple(group.instances[o].step for o in instance.operands)
        check(operands == step.elements, f"{where}: instances read what their steps read")
        if isinstance(step.op, Reduce):
            computed.append(instance.step)
    check(len(set(computed)) == len(computed), "a reduction is computed at one map")
    again = [s for g in plan.groups[:number] for s in _reductions(body, g) if s in computed]
    check(not again, f"reductions {again} are computed by an earlier group")
    anchors = {group.dominant, *group.sub_dominants}
    check(set(computed) <= anchors, "reductions dominate or are sub-dominant")
    check({group.instances[i].step for i in group.stores} <= anchors, "and so are stored steps")
    stored = [group.instances[i] for i in group.stores]
    ours = all(not i.loaded or isinstance(body.steps[i.step].op, Input) for i in stored)
    check(ours, "what is stored is computed here, or a copy of an input")


def _reductions(body: Body, group: Group) -> list[int]:
    return [i.step for i in group.instances if not i.loaded and isinstance(body.steps[i.step].op, Reduce)]


def _verify_schemes(plan: StitchPlan) -> None:
    body = plan.body
    instances = [i for group in plan.groups for i in group.instances]
    silent = (Constant, Extent, Input)
    computed = {i.step for i in instances if not i.loaded and not isinstance(body.steps[i.step].op, silent)}
    check(set(plan.schemes) == computed, "every step that is computed has a scheme")
    crossing = {i.step for i in instances if i.loaded and not isinstance(body.steps[i.step].op, Input)}
    whole = (*body.outputs, *(s for s in crossing if isinstance(body.steps[s].op, Concat)))
    check(
        set(plan.scratch) == crossing - set(body.outputs) - set(stored_steps(body, whole)),
        "what crosses groups is in scratch, or an output",
    )
    read = read_steps(body)
    for step, scheme in plan.schemes.items():
        where = f"step {step}, {scheme.name}"
        check((scheme is Scheme.GLOBAL) == (step in crossing), f"{where}: GLOBAL is what crosses groups")
        check(scheme is not Scheme.INDEPENDENT or step not in read, f"{where}: nothing reads it")
        reduction = isinstance(body.steps[step].op, Reduce)
        check(scheme is not Scheme.LOCAL or not reduction, f"{where}: a reduction is no register of a lane")


# -- index maps ----------------------------------------------------------------------------------------------


class _Sample:
    """One group's maps at all its coordinates, for some values of the symbols; at some where there are many."""

    def __init__(self, body: Body, group: Group, symbols: Mapping[str, int]) -> None:
        self.body = body
        self.group = group
        self.symbols = symbols
        axes = group.outer + group.inner
        extents = self._extents(axis.extent for axis in axes)
        self.rows = math.prod(extents[: len(group.outer)])
        self.length = math.prod(extents[len(group.outer) :])
        self.complete = self.rows * self.length <= _LARGEST
        if self.complete:
            points = np.reshape(np.arange(self.rows * self.length), (self.rows, self.length))
        else:
            points = np.random.default_rng(0).integers(0, self.rows * self.length, (_SOME, 1))
        # Of shape [rows, elements of a row].
        self.coordinates: dict[int, Array] = {}
        for axis, extent in zip(reversed(axes), reversed(extents), strict=True):
            self.coordinates[axis.identity] = points % max(extent, 1)
            points = points // max(extent, 1)

    def verify(self) -> None:
        if not self.length:
            return
        for instance in self.group.instances:
            step = self.body.steps[instance.step]
            where = f"step {instance.step}, {step.op}, with {self.symbols or 'no symbols'}"
            shape, mine = self._extents(step.type.dims), self._indices(instance.index_map)
            for index, extent in zip(mine, shape, strict=True):
                inside = not index.size or (index.min() >= 0 and index.max() < extent)
                check(inside, f"{where}: an index is within its axis")
            for operand in instance.operands:
                self._verify_operand(instance, self.group.instances[operand], where)
            if self.complete and isinstance(step.op, Reduce) and not instance.loaded:
                check(self._covers(mine, shape, 1), f"{where}: a reduction has each row once")
        for position in self.group.stores if self.complete else ():
            instance = self.group.instances[position]
            shape = self._extents(self.body.steps[instance.step].type.dims)
            stored = self._indices(instance.index_map)
            once = any(self._covers(stored, shape, width) for width in (1, self.length))
            check(once, f"step {instance.step} is stored once for each element, with {self.symbols}")

    def _verify_operand(self, instance: Instance, read: Instance, where: str) -> None:
        step, source = self.body.steps[instance.step], self.body.steps[read.step]
        mine, theirs = self._indices(instance.index_map), self._indices(read.index_map)
        shape, extents = self._extents(step.type.dims), self._extents(source.type.dims)
        match step.op:
            case Elementwise() | Gather():
                wanted = mine
            case Broadcast():
                wanted = tuple(i * (e != 1) for i, e in zip(mine, extents, strict=True))
            case Transpose(permutation):
                wanted = tuple(mine[permutation.index(axis)] for axis in range(len(permutation)))
            case Slice(begin, steps):
                wanted = tuple(b + s * i for b, s, i in zip(begin, steps, mine, strict=True))
            case Windows(axis, by, dilation):
                wanted = (*mine[:axis], by * mine[axis] + dilation * mine[axis + 1], *mine[axis + 2 :])
            case Reshape():
                check(
                    np.array_equal(self._linear(mine, shape), self._linear(theirs, extents)),
                    f"{where}: the operand is read at the same linear index",
                )
                return
            case Reduce(_, axes):
                self._verify_reduced(axes, mine, theirs, extents, where)
                return
            case Input() | Constant() | Extent() | Iota() | Concat():
                raise BrokenInvariant(f"{where}: it reads nothing")
        for axis, (have, want) in enumerate(zip(theirs, wanted, strict=True)):
            check(np.array_equal(have, want), f"{where}: axis {axis} of its operand is read elsewhere")

    def _verify_reduced(
        self, axes: tuple[int, ...], mine: Indices, theirs: Indices, extents: tuple[int, ...], where: str
    ) -> None:
        kept = [a for a in range(len(extents)) if a not in axes]
        check(all(np.array_equal(mine[a], theirs[a]) for a in kept), f"{where}: kept axes are read as they are")
        if not self.complete:
            return
        reduced = self._linear(tuple(theirs[a] for a in axes), tuple(extents[a] for a in axes))
        every = np.sort(reduced, axis=1) == np.arange(self.length)
        size = math.prod(extents[a] for a in axes)
        check(size == self.length and bool(every.all()), f"{where}: a row has each reduced element once")

    def _covers(self, indices: Indices, shape: tuple[int, ...], width: int) -> bool:
        """Whether the first `width` columns meet each element of `shape` once; other columns repeat one."""
        linear = self._linear(indices, shape)
        if width == 1 and not np.array_equal(linear, np.broadcast_to(linear[:, :1], linear.shape)):
            return False
        met = np.sort(np.ravel(linear[:, :width]))
        return np.array_equal(met, np.arange(math.prod(shape)))

    def _indices(self, index_map: IndexMap) -> Indices:
        found: list[Array] = []
        for index in index_map:
            value = self._filled(index.offset)
            for axis, stride in index.terms:
                value = value + self.coordinates[axis] * stride.evaluate(self.symbols)
            found.append(value)
        return tuple(found)

    def _linear(self, indices: Indices, shape: tuple[int, ...]) -> Array:
        linear = self._filled(0)
        for index, extent in zip(indices, shape, strict=True):
            linear = linear * extent + index
        return linear

    def _filled(self, value: int) -> Array:
        shape = (self.rows, self.length) if self.complete else (_SOME, 1)
        return np.full(shape, value, np.int64)

    def _extents(self, dims: Iterator[Dim] | tuple[Dim, ...]) -> tuple[int, ...]:
        return tuple(d.evaluate(self.symbols) for d in dims)
