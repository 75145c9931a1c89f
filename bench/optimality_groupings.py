"""The best plan of one body: every way to put its anchors into groups, and every set of steps to store between them.

    h = exp x                       the planner: two groups, and each evaluates exp
    r = row sums of h               a cut at h:  one group more, which stores h; the two load it
    t = sum of all of h

  1. The planner decides twice. `choose`: which of the groups that can hold an anchor gets it. `cuts`: which steps are
     stored although nothing forces it. What is legal it finds out itself; here, only its answers are replaced. The
     order in which it takes the anchors is its own.
  2. All answers to `choose` are tried by replay: run once with first answers, then again with the last answer that has
     an alternative moved on by one, until none has. A run is given up when what its groups do already, and what must
     still be done by some group, costs no less than the best plan so far.
  3. Sets of cuts grow one by one. A cut that is worth anything is loaded by another group: that is one more thing that
     must be done. What then is no better than the best plan so far is not tried, nor what contains it.

Invariant: `_Bounds.least_ns` is never above what a plan costs that stores these cuts and has these beginnings of its
groups.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from tf_stitch.errors import Unsupported
from tf_stitch.ir.body import Body, Elementwise, Input, Reduce, Slice
from tf_stitch.lower.common import lower
from tf_stitch.plan import cost
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.plan import StitchPlan
from tf_stitch.plan.target import Target

SLACK = 1e-9  # relative: two costs that differ by less are equal


Task = tuple[str, int]  # "read", "write" or "evaluate" a step: what a loop does, and what must be done


@dataclass(frozen=True)
class Priced:
    """A plan, and what it costs."""

    plan: StitchPlan
    ns: float


def planned(body: Body, target: Target) -> Priced | None:
    """What the planner makes of a body; None where it refuses."""
    try:
        return _priced(plan_groups(body), target)
    except Unsupported:
        return None


@dataclass
class Effort:
    """Plans that may still be tried; is_complete: whether that was enough so far."""

    left: int
    is_complete: bool = True

    def spend(self) -> bool:
        """Whether one more may be tried."""
        self.left -= 1
        self.is_complete = self.is_complete and self.left >= 0
        return self.left >= 0


def best_plan(body: Body, target: Target, effort: Effort, below: float = math.inf) -> Priced | None:
    """The cheapest plan of a body; None where none is legal. Any plan, or None, where none costs less than `below`."""
    best = planned(body, target)
    bounds = _Bounds(body, target)
    limit = min(below, best.ns if best is not None else math.inf) * (1 - SLACK)
    candidates = _candidates(body)
    stack = [frozenset[int]()]
    while stack:
        cuts = stack.pop()
        later = frozenset(i for i in candidates if i > max(cuts, default=-1))
        if bounds.least_ns(cuts, later) >= limit:
            continue
        runs = _Runs(bounds, cuts, limit, effort)
        for plan in runs if bounds.least_ns(cuts) < limit else ():
            if cuts <= _loaded(plan) and cost.stitched_ns(plan, target) < limit:
                with contextlib.suppress(Unsupported):
                    best = _priced(plan, target)
                    runs.limit = limit = best.ns * (1 - SLACK)
        if limit < math.inf or not cuts:  # else it is refused whatever is stored
            stack += [cuts | {i} for i in sorted(later, reverse=True)]
    return best


def _candidates(body: Body) -> list[int]:
    """Steps to store. Not what one step alone reads that needs nothing else and is as large: that step will do."""
    users = body.users()
    found: list[int] = []
    for index, step in enumerate(body.steps):
        if not isinstance(step.op, Elementwise) or is_constant(body, index):
            continue
        follower = body.steps[users[index][0]] if len(users[index]) == 1 and index not in body.outputs else None
        is_followed = (
            follower is not None
            and isinstance(follower.op, Elementwise)
            and all(o == index or is_constant(body, o) for o in follower.operands)
            and cost.size(follower.type) == cost.size(step.type)
        )
        if not is_followed:
            found.append(index)
    return found


def is_constant(body: Body, index: int) -> bool:
    """Whether a step is known before anything is read."""
    step = body.steps[index]
    if isinstance(step.op, Input):
        return False
    return all(is_constant(body, o) for o in step.operands)


class _Draft(Protocol):
    """What the planner shows of a group that grows: its anchors, and what it reads of earlier groups."""

    reductions: list[int]
    stored: list[int]
    loaded: set[int]


@dataclass
class _Runs:
    """Step 2: a plan for each way to put the anchors into groups that may cost less than `limit`."""

    bounds: _Bounds
    cuts: frozenset[int]
    limit: float
    effort: Effort
    script: list[int] = field(default_factory=list[int])
    answered: list[tuple[int, int]] = field(default_factory=list[Any])  # the answer given, of how many
    groups: dict[int, _Draft] = field(default_factory=dict[int, Any])

    def __iter__(self) -> Iterator[StitchPlan]:
        while self.effort.spend():
            self.answered, self.groups = [], {}
            with contextlib.suppress(Unsupported):
                yield plan_groups(self.bounds.body, self.cuts, self._choose)
            while self.answered and self.answered[-1][0] + 1 == self.answered[-1][1]:
                self.answered.pop()
            if not self.answered:
                return
            self.script = [answer for answer, _ in self.answered]
            self.script[-1] += 1

    def _choose(self, options: Iterator[tuple[int, _Draft]], none: None) -> tuple[int, _Draft] | None:
        found = list(options)
        if not found:
            return none
        number = len(self.answered)
        answer = self.script[number] if number < len(self.script) else 0
        self.answered.append((answer, len(found)))
        position, self.groups[position] = found[answer]
        least = self.bounds.least_ns(self.cuts, frozenset(), self.groups)
        return none if least >= self.limit else found[answer]


class _Bounds:
    """The least that plans of a body cost.

    A loop is a set of tasks. All reductions of a group run over the whole of its loop nest, so that reductions over
    nests of different sizes are in different loops: each such *class* has one at least. What no loop is known to do
    that some loop must do is added to the longest, where it costs least.
    """

    def __init__(self, body: Body, target: Target) -> None:
        self.body, self._target = body, target
        self._weights = _weights(body, target)
        self._class_of = {
            index: (body.steps[step.operands[0]].type.size, step.type.size)
            for index, step in enumerate(body.steps)
            if isinstance(step.op, Reduce)
        }

    def least_ns(
        self,
        cuts: frozenset[int],
        more_cuts: frozenset[int] = frozenset(),
        groups: Mapping[int, _Draft] = MappingProxyType({}),
    ) -> float:
        """Of all plans that store `cuts`, and perhaps some of `more_cuts`, and whose groups start with these."""
        ends = frozenset((*self.body.outputs, *cuts, *more_cuts))
        loops = [self._tasks((*g.reductions, *g.stored), g.loaded, ends) for g in groups.values()]
        begun = {self._class_of[r] for g in groups.values() for r in g.reductions}
        for each in dict.fromkeys(self._class_of.values()):
            if each not in begun:
                members = [r for r, its in self._class_of.items() if its == each]
                loops.append(self._tasks(members, frozenset(), ends))
        works = [sum(self._weights.get(task, 0.0) for task in tasks) for tasks in loops]
        rest = sum(self._weights.get(task, 0.0) for task in self._due(cuts).difference(*loops))
        works.sort()
        longest = works.pop() if works else 0.0  # what is added to the longest loop is the cheapest, and all in one
        total = sum(cost.loop_ns(work, self._target) for work in (*works, longest + rest))
        return self._target.launch_ns + total

    def _tasks(self, anchors: Iterable[int], loaded: AbstractSet[int], ends: frozenset[int]) -> set[Task]:
        """What a loop with these anchors does, whatever it is still to hold. It may come to load the ends."""
        roots = set(anchors)
        tasks: set[Task] = {("write", i) for i in roots & set(self.body.outputs)}
        stack, seen = list(roots), set(roots)
        while stack:
            index = stack.pop()
            step = self.body.steps[index]
            is_foreign = index not in roots
            if isinstance(step.op, Input) or (is_foreign and (isinstance(step.op, Reduce) or index in loaded)):
                tasks.add(("read", index))
                continue
            if is_foreign and index in ends:
                continue
            tasks.add(("evaluate", index))
            stack += [o for o in step.operands if o not in seen]
            seen.update(step.operands)
        return tasks

    def _due(self, cuts: frozenset[int]) -> set[Task]:
        """The tasks of every plan that stores `cuts`, and loads them elsewhere."""
        steps = self.body.steps
        read = {i for i, step in enumerate(steps) if isinstance(step.op, Input)} | cuts
        written = {*self.body.outputs, *cuts}
        tasks: set[Task] = {("read", i) for i in read} | {("write", i) for i in written}
        return tasks | {("evaluate", i) for i in range(len(steps))}


def _weights(body: Body, target: Target) -> dict[Task, float]:
    """The work of each task that takes any: at least, of evaluations."""
    found: dict[Task, float] = {}
    partly = any(isinstance(step.op, Slice) for step in body.steps)  # then not all elements need be computed
    for index, step in enumerate(body.steps):
        moved = cost.Bytes.of([cost.size(step.type)]).at()
        found["read", index] = cost.work_ns(moved, 0, target)
        found["write", index] = cost.work_ns(moved * max(body.outputs.count(index), 1), 0, target)
        if not partly:
            found["evaluate", index] = cost.work_ns(0, cost.evaluations(body, [index]).at(), target)
    return {task: work for task, work in found.items() if work}


def _loaded(plan: StitchPlan) -> frozenset[int]:
    return frozenset(i.step for group in plan.groups for i in group.instances if i.loaded)


def _priced(plan: StitchPlan, target: Target) -> Priced:
    """Raises Unsupported where the plan cannot be lowered."""
    lower(plan, "")
    return Priced(plan, cost.stitched_ns(plan, target))
