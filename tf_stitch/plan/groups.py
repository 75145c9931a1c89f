"""From a Body to Groups: dominants, their loop nests, and what is computed where (AStitch, section 4).

    residual + layer norm over [B, S, 768]                       one group
      t = x + r ; m = sum t ; d = t - m/768 ; v = sum d*d        outer (B, S), inner (768)
      y = d * rsqrt(v/768 + eps) * gamma + beta                  dominant: sum t; sub-dominants: sum d*d, y

  1. Anchors are the reductions, the outputs, and what is dear and would be computed again and again
     (a rsqrt over [C] that is broadcast over all rows), and what products of matrices read (factors.py). For a
     concatenation its pieces are (pieces.py).
  2. Each anchor in turn, reductions first, joins the earliest group that can hold it, or opens a new one. To hold
     it, a group must find a map for it (the linear order of its loop nest, or the map its neighbours have), and
     then everything that the anchor reads, back to the inputs, must get a map by index propagation. A group before
     those that the anchor reads can hold it, too, while no group reads it: it goes behind them. A reduction does not
     join where all it reads would be read crosswise (orientation.py).

         sum of dy down the columns | rows of x and dy | sum of dy*x^ down the columns: joins the first, which goes last
  3. A group is one loop nest. Reading a reduction of the same group is REGIONAL; reading what an earlier group
     made is GLOBAL: the earlier group stores it.

Invariants: a reduction is computed at exactly one map, which covers all outer axes of its group; groups read only
earlier groups; every stored step is computed once for each of its elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import (
    Body,
    Broadcast,
    Concat,
    Constant,
    Extent,
    Gather,
    Input,
    Iota,
    Reduce,
    Reshape,
    Windows,
)
from tf_stitch.ir.types import Dim, Shape, product
from tf_stitch.plan.drafts import Draft
from tf_stitch.plan.factors import computes_factors, factors
from tf_stitch.plan.indexing import (
    ZERO,
    Axis,
    IndexMap,
    Straddle,
    axes_of,
    delinearise,
    operand_map,
    result_map,
    row_major,
)
from tf_stitch.plan.orientation import goes_another_way
from tf_stitch.plan.pieces import read_steps, stored_steps
from tf_stitch.plan.plan import Group, Instance, Scheme, StitchPlan
from tf_stitch.plan.repeated import dear_and_repeated

_STREAMS = 6  # through memory, of a group that is joined by what it has no elements in common with
_MAX_CUTS = 32  # of axes, in one group; a reshape chain of real models needs three or four


def plan_groups(
    body: Body,
    cuts: frozenset[int] | None = None,
    choose: Callable[[Iterator[Any], None], Any] = next,
    *,
    dominant_merging: bool = True,
) -> StitchPlan:
    """Plans a body.

    cuts: the steps that get a group of their own beside reductions and outputs; None for what is dear and repeated.
    choose: given the groups that can hold an anchor, earliest first and a new one last, returns one of them, or its
      second argument where there is none. The two are for a search that tries what the planner does not.
    dominant_merging: let anchors share a group; without it each is the dominant of its own.

    Raises:
      Unsupported: where no legal plan was found; the reason is SCHEME.
    """
    stored = factors(body)
    if cuts is not None:
        return _finish(body, _assign(body, stored | cuts, choose, None, dominant_merging=dominant_merging))
    dear = stored
    while True:
        drafts = _assign(body, dear, choose, _spaces(body), dominant_merging=dominant_merging)
        redundant = dear_and_repeated(body, drafts) - dear
        if not redundant:
            return _finish(body, drafts)
        dear |= redundant


def _assign(
    body: Body,
    dear: set[int],
    choose: Callable[[Iterator[Any], None], Any],
    spaces: list[int] | None,
    *,
    dominant_merging: bool,
) -> list[Draft]:
    """Step 2: a group for every anchor."""
    identities = count()
    drafts: list[Draft] = []
    home: dict[int, int] = {}  # anchor -> the group that computes it
    reductions = [i for i, s in enumerate(body.steps) if isinstance(s.op, Reduce)]
    read = read_steps(body)
    concats = {i: stored_steps(body, [i]) for i, s in enumerate(body.steps) if isinstance(s.op, Concat) and i in read}
    outputs = [*stored_steps(body, body.outputs), *(piece for pieces in concats.values() for piece in pieces)]
    first_of_all = {*reductions, *dear, *(piece for pieces in concats.values() for piece in pieces)}
    dependencies = _anchor_dependencies(body, first_of_all | set(concats))
    order = sorted(first_of_all) + sorted(set(outputs) - first_of_all)
    readers = Counter[int]()  # how many groups read a step
    for anchor in order:
        over = _runs_over(body, anchor)
        space = -1 if spaces is None else spaces[over]
        size = body.steps[over].type.size
        earliest = max((home[d] for d in dependencies[anchor] if d in home), default=0)
        first = earliest if dominant_merging else len(drafts)
        related = [p for p, d in enumerate(drafts) if space in d.spaces or size in d.sizes]
        tried = [p for p in related if p >= first]
        if dominant_merging:
            tried += [p for p in related if p < first and not any(readers[a] for a in drafts[p].proposals)]
        homes = _homes(body, drafts, anchor, home, concats, tried, first, identities)
        if spaces is not None:
            homes = (found for found in homes if not _is_crosswise(body, drafts, *found, anchor))
        chosen: tuple[int, Draft] | None = choose(homes, None)
        if chosen is None:
            raise Unsupported(Reason.SCHEME, f"no loop nest computes {body.steps[anchor].origin}")
        position, grown = chosen
        moved = position < first
        if moved:
            drafts.append(drafts.pop(position))
            last = len(drafts) - 1
            home = {a: last if p == position else p - (p > position) for a, p in home.items()}
            position = last
        before = drafts[position].loaded if position < len(drafts) else set[int]()
        for step in grown.loaded - before:
            readers.update((step, *concats.get(step, ())))
        for step in before - grown.loaded:
            readers.subtract((step, *concats.get(step, ())))
        drafts[position : position + 1] = [grown]
        grown.spaces.add(space)
        grown.sizes = _room(body, grown)
        home[anchor] = position
        for whole, pieces in concats.items():  # it is there to be read once the last of its pieces is
            if (moved or anchor in pieces) and home.keys() >= pieces.keys():
                home[whole] = max(home[piece] for piece in pieces)
    for anchor in outputs:  # a reduction that is an output is stored by its own group
        if anchor not in drafts[home[anchor]].stored:
            drafts[home[anchor]].stored.append(anchor)
    return drafts


def _homes(
    body: Body,
    drafts: list[Draft],
    anchor: int,
    home: dict[int, int],
    concats: Mapping[int, Collection[int]],
    positions: Sequence[int],
    first: int,
    identities: count[int],
) -> Iterator[tuple[int, Draft]]:
    """The groups at `positions` that can hold an anchor, with it in them; a new one last.

    concats: the pieces of each concatenation. first: a group before this one would go behind all others.
    """
    for position in positions:
        before = {a for a, p in home.items() if (p < position if position >= first else p != position)}
        before -= {whole for whole, pieces in concats.items() if whole in before and not before.issuperset(pieces)}
        grown = _grow(body, drafts[position], anchor, before)
        if grown is not None:
            yield position, grown
    grown = _grow(body, _seed(body, anchor, identities), anchor, set(home))
    if grown is not None:
        yield len(drafts), grown


def _is_crosswise(body: Body, drafts: Sequence[Draft], position: int, grown: Draft, anchor: int) -> bool:
    """Whether a reduction would read crosswise all that it reads, in the nest of those that are there."""
    if position == len(drafts) or anchor not in grown.reductions:
        return False
    before, alone = drafts[position], grown.copy()
    alone.proposals = {anchor: grown.proposals[anchor]}
    _propagate(body, alone, {*grown.loaded, *before.reductions})
    return goes_another_way(body, alone, before)


def _spaces(body: Body) -> list[int]:
    """A number for each step, the same for steps that run over the same elements: one reads the other's, one to one.

    Neither a broadcast, windows, a concatenation nor a scalar connects: two updates of variables, scaled by one norm,
    have nothing in common.
    """
    connects = [not (isinstance(s.op, Broadcast | Concat | Windows) or s.type.size.is_one) for s in body.steps]
    parent = list(range(len(body.steps)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for index, step in enumerate(body.steps):
        for operand in step.elements:
            if connects[index] and connects[operand]:
                parent[root(index)] = root(operand)
    return [root(i) for i in range(len(parent))]


def _room(body: Body, draft: Draft) -> frozenset[Dim]:
    """The sizes of anchors of another space that a group is tried for: its own, while few streams run through.

    Each anchor brings streams through memory, and those of many large tensors, which all begin on a page, have to share
    a few lines of L1.
    """
    read = sum(isinstance(body.steps[s].op, Input) and not body.steps[s].type.size.is_one for s in draft.maps)
    if read + len(draft.loaded) + len(draft.stored) >= _STREAMS:
        return frozenset()
    return frozenset({_extent(draft.outer + draft.inner), _extent(draft.outer)})


def _runs_over(body: Body, anchor: int) -> int:
    """The step whose elements an anchor's loop nest runs over."""
    step = body.steps[anchor]
    return step.operands[0] if isinstance(step.op, Reduce) else anchor


def _anchor_dependencies(body: Body, anchors: set[int]) -> list[frozenset[int]]:
    """For each step, the anchors that it reads, directly or not."""
    found: list[frozenset[int]] = []
    for step in body.steps:
        mine: set[int] = set()
        for operand in step.operands:
            mine |= found[operand]
            if operand in anchors:
                mine.add(operand)
        found.append(frozenset(mine))
    return found


def _seed(body: Body, anchor: int, identities: count[int]) -> Draft:
    """An empty group with the natural loop nest of an anchor: a reduction's kept and reduced axes, or all axes."""
    step = body.steps[anchor]
    if isinstance(step.op, Reduce):
        dims = body.steps[step.operands[0]].type.dims
        axes = step.op.axes
        outer = [Axis(next(identities), d) for a, d in enumerate(dims) if a not in axes and not d.is_one]
        inner = [Axis(next(identities), d) for a, d in enumerate(dims) if a in axes and not d.is_one]
        return Draft(outer, inner or [Axis(next(identities), Dim(1))], anchor)
    return Draft([Axis(next(identities), d) for d in step.type.dims if not d.is_one], [], anchor)


def _grow(body: Body, draft: Draft, anchor: int, elsewhere: set[int]) -> Draft | None:
    """The group with `anchor` in it, or None. Cuts axes where a reshape asks for it.

    elsewhere: the anchors of the groups before.
    """
    draft = draft.copy()
    is_reduction = isinstance(body.steps[anchor].op, Reduce)
    if is_reduction and not draft.inner:
        return None
    anchors = list(draft.proposals)
    (draft.reductions if is_reduction else draft.stored).append(anchor)
    missing = [anchor]
    for _ in range(_MAX_CUTS):
        try:
            for new in missing:
                draft.proposals[new] = _propose(body, draft, new)
                _propagate(body, draft, elsewhere)
            return None if computes_factors(body, draft) else draft
        except Straddle as straddle:  # all maps speak of the axis that is cut: start over with its parts
            _cut(draft, straddle)
            draft.proposals, draft.maps = {}, {}
            missing = [*anchors, anchor]
        except Unsupported:
            return None
    return None


def _cut(draft: Draft, straddle: Straddle) -> None:
    identities = count(1 + max(axis.identity for axis in draft.outer + draft.inner) + 1000)
    for axes in (draft.outer, draft.inner):
        for position, axis in enumerate(axes):
            if axis.identity == straddle.axis:
                outer = axis.extent.divided_by(straddle.inner)
                assert outer is not None, "Straddle promises that the cut is exact"
                axes[position : position + 1] = [
                    Axis(next(identities), outer),
                    Axis(next(identities), straddle.inner),
                ]
                return


def _propagate(body: Body, draft: Draft, elsewhere: set[int]) -> None:
    """Step 2's second half: from the anchors back to the inputs, a map for every step that is read.

    Steps are visited from last to first, so all readers of a step have said at which maps they read it before it
    hands its own operands theirs.
    """
    extents = draft.extents
    outer_axes = frozenset(a.identity for a in draft.outer)
    maps: dict[int, list[IndexMap]] = {anchor: [index_map] for anchor, index_map in draft.proposals.items()}
    draft.loaded = set()
    for index in range(max(maps), -1, -1):
        if index not in maps:
            continue
        step = body.steps[index]
        wanted = list(dict.fromkeys(maps[index]))
        maps[index] = wanted
        match step.op:
            case Input() | Constant() | Extent() | Iota():
                continue
            case Reduce(_, axes):
                if index in elsewhere:
                    draft.loaded.add(index)
                    continue
                if index not in draft.reductions:
                    raise Unsupported(Reason.SCHEME, "a reduction of another group, not yet placed")
                if len(wanted) != 1 or axes_of(wanted[0]) != outer_axes:
                    raise Unsupported(Reason.SCHEME, "a reduction that is read at two maps")
                operand = step.operands[0]
                dims = body.steps[operand].type.dims
                reduced = delinearise(row_major(draft.inner), tuple(dims[a] for a in axes), extents)
                inner = dict(zip(axes, reduced, strict=True))
                maps.setdefault(operand, []).append(tuple(inner.get(a, wanted[0][a]) for a in range(len(dims))))
            case Concat() if index not in elsewhere:
                raise Unsupported(Reason.SCHEME, "a concatenation of which a piece is not yet stored")
            case _:
                if index in elsewhere and index not in draft.stored and not _is_known(body, index):
                    draft.loaded.add(index)
                    continue
                for operand in dict.fromkeys(step.elements):
                    shape = body.steps[operand].type.dims
                    for index_map in wanted:
                        maps.setdefault(operand, []).append(
                            operand_map(step.op, index_map, step.type.dims, shape, extents)
                        )
    draft.maps = maps


def _is_known(body: Body, index: int) -> bool:
    """Whether a step only repeats a number that is known: nobody loads that from where it is stored."""
    while isinstance(body.steps[index].op, Broadcast | Reshape):
        index = body.steps[index].operands[0]
    return isinstance(body.steps[index].op, Constant | Extent)


def _propose(body: Body, draft: Draft, anchor: int) -> IndexMap:
    """The map of an anchor: what its neighbours in the group imply, else the linear order of the loop nest."""
    step = body.steps[anchor]
    extents = draft.extents
    if isinstance(step.op, Reduce):
        dims = body.steps[step.operands[0]].type.dims
        kept = tuple(d for a, d in enumerate(dims) if a not in step.op.axes)
        reduced = tuple(d for a, d in enumerate(dims) if a in step.op.axes)
        if _extent(draft.outer) != product(kept) or _extent(draft.inner) != product(reduced):
            raise Unsupported(Reason.SCHEME, "a reduction over another loop nest")
        indices = iter(_spread(draft.outer, kept, extents))
        return tuple(ZERO if a in step.op.axes else next(indices) for a in range(len(dims)))
    implied = _implied(body, draft, anchor)
    if implied is not None:
        return implied
    if step.type.size == _extent(draft.outer + draft.inner):
        return _spread(draft.outer + draft.inner, step.type.dims, extents)
    if step.type.size == _extent(draft.outer):
        return _spread(draft.outer, step.type.dims, extents)
    raise Unsupported(Reason.SCHEME, "an output of another size than the loop nest")


def _extent(axes: Sequence[Axis]) -> Dim:
    return product(axis.extent for axis in axes)


def _spread(axes: Sequence[Axis], shape: Shape, extents: dict[int, Dim]) -> IndexMap:
    """The linear order of `axes` as a map over `shape`; axis by axis where they match."""
    real = [d for d in shape if not d.is_one]
    if [a.extent for a in axes if not a.extent.is_one] == real:
        indices = iter([row_major([a]) for a in axes if not a.extent.is_one])
        return tuple(ZERO if d.is_one else next(indices) for d in shape)
    return delinearise(row_major(axes), shape, extents)


def _implied(body: Body, draft: Draft, anchor: int) -> IndexMap | None:
    """The map that follows from a step already mapped, going forward over ops that can be inverted."""
    path: list[int] = []
    step = anchor
    while step not in draft.maps:
        op = body.steps[step].op
        operands = [o for o in body.steps[step].operands if not isinstance(body.steps[o].op, Broadcast | Constant)]
        if isinstance(op, Broadcast | Concat | Gather | Reduce) or not operands:
            return None
        path.append(step)
        mapped = [o for o in operands if o in draft.maps]
        step = mapped[0] if mapped else operands[0]
    for index_map in draft.maps[step]:
        followed = _follow(body, draft, step, list(reversed(path)), index_map)
        if followed is not None and _covers(draft, followed, body.steps[anchor].type.size):
            return followed
    return None


def _follow(body: Body, draft: Draft, start: int, path: list[int], index_map: IndexMap) -> IndexMap | None:
    """The map of the last step of `path` if `start`, which the first of them reads, is read at `index_map`."""
    before = start
    for step in path:
        shapes = body.steps[before].type.dims, body.steps[step].type.dims
        try:
            index_map = result_map(body.steps[step].op, index_map, *shapes, draft.extents)
        except Unsupported:
            return None
        before = step
    return index_map


def _covers(draft: Draft, index_map: IndexMap, size: Dim) -> bool:
    """Whether a map gives each element of a value of this size one place in the loop nest, or one row."""
    used = axes_of(index_map)
    for axes in (draft.outer + draft.inner, draft.outer):
        if size == _extent(axes) and used == frozenset(a.identity for a in axes if not a.extent.is_one):
            return True
    return False


def _finish(body: Body, drafts: list[Draft]) -> StitchPlan:
    """Drafts to frozen groups, with what crosses between groups stored, and a scheme for every step."""
    crossing = sorted({step for draft in drafts for step in draft.loaded})
    whole = [*body.outputs, *(step for step in crossing if isinstance(body.steps[step].op, Concat))]
    stored = stored_steps(body, whole)
    groups: list[Group] = []
    for draft in drafts:
        wanted = {*crossing, *stored}  # a dear step that only its own group reads is not stored after all
        draft.stored = [s for s in draft.stored if s in wanted]
        draft.stored += [s for s in crossing if s in draft.reductions and s not in draft.stored]
        groups.append(_freeze(body, draft))
    scratch = tuple(s for s in crossing if s not in body.outputs and s not in stored)
    return StitchPlan(body, tuple(groups), scratch, _schemes(body, groups, set(crossing)))


def _freeze(body: Body, draft: Draft) -> Group:
    instances: list[Instance] = []
    place: dict[tuple[int, IndexMap], int] = {}
    extents = draft.extents
    for index in sorted(draft.maps):
        step = body.steps[index]
        for index_map in draft.maps[index]:
            loaded = index in draft.loaded or isinstance(step.op, Input)
            operands: list[int] = []
            if not loaded:
                for operand in step.elements:
                    shape = body.steps[operand].type.dims
                    if isinstance(step.op, Reduce):
                        wanted = draft.maps[operand]
                        reduced = delinearise(row_major(draft.inner), tuple(shape[a] for a in step.op.axes), extents)
                        inner = dict(zip(step.op.axes, reduced, strict=True))
                        at = tuple(inner.get(a, index_map[a]) for a in range(len(shape)))
                        assert at in wanted
                    else:
                        at = operand_map(step.op, index_map, step.type.dims, shape, extents)
                    operands.append(place[operand, at])
            place[index, index_map] = len(instances)
            instances.append(Instance(index, index_map, tuple(operands), loaded))
    stores = tuple(place[s, draft.maps[s][0]] for s in draft.stored)
    others = tuple(s for s in dict.fromkeys(draft.reductions + draft.stored) if s != draft.dominant)
    return Group(tuple(draft.outer), tuple(draft.inner), draft.dominant, others, tuple(instances), stores)


def _schemes(body: Body, groups: Sequence[Group], crossing: set[int]) -> dict[int, Scheme]:
    schemes: dict[int, Scheme] = {}
    read = read_steps(body)
    for group in groups:
        outer = frozenset(a.identity for a in group.outer)
        for instance in group.instances:
            step = instance.step
            if instance.loaded or isinstance(body.steps[step].op, Constant | Extent):
                continue
            rows_only = bool(group.inner) and axes_of(instance.index_map) <= outer
            if step in crossing:
                schemes[step] = Scheme.GLOBAL
            elif step not in read:
                schemes[step] = Scheme.INDEPENDENT
            elif isinstance(body.steps[step].op, Reduce) or rows_only:
                schemes[step] = Scheme.REGIONAL
            else:
                schemes[step] = Scheme.LOCAL
    return schemes
