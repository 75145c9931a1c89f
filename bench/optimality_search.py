"""The best clustering of a small graph, found by looking at all that may be better.

    a ─► b ─► MatMul ─► d            states: what is done      {} ─► {a b} ─► {a b d}
         └────► c ──────┘            steps: one more cluster       {a b}   {c d}  or  {d}, {c}

  1. A partition of the nodes into clusters whose contraction is acyclic can be run cluster by cluster. So partitions
     are paths through sets of done nodes, each closed under "what it reads"; what is left to TensorFlow is done as soon
     as it can be, at no cost. A cluster is a step from one such set to a larger one. It may be any nodes: neighbours or
     not. A node may also stay alone, which costs what TensorFlow takes for it.
  2. The best path is found by A*: always go on from where cost so far plus the least that the rest can cost is
     smallest. A step enters with the least that it can cost; what it does cost (expanding, planning, and all the
     groupings of optimality_groupings.py) is found out when it is its turn: most never have theirs.
  3. What is no better than the planner's own solution is dropped.

Invariants: `Bounds.least_ns` of a set of nodes is never above the cost of any clusters that they are put in, and what
it says of two sets together never above the sum of what it says of each.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from bench import optimality_groupings as groupings
from bench.optimality_groupings import SLACK, Effort, Priced
from tf_stitch.config import Config
from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Body, Elementwise, Input, Reshape, Slice
from tf_stitch.ir.graph import Graph
from tf_stitch.passes import legality
from tf_stitch.passes.cluster import values_read
from tf_stitch.passes.clustering import Clustering, Rejection
from tf_stitch.passes.expand import Expansion, expand
from tf_stitch.passes.precedents import Precedents
from tf_stitch.plan import cost
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.target import Target

Nodes = int  # a set of choices: bit i is `Choices.names[i]`


@dataclass(frozen=True)
class Part:
    """A cluster, or one node that is left alone (plan is None)."""

    nodes: tuple[str, ...]
    ns: float
    priced: Priced | None = None


@dataclass(frozen=True)
class Solution:
    """Parts in an order in which they can run; every choice is in one of them."""

    parts: tuple[Part, ...]

    @property
    def ns(self) -> float:
        return sum(part.ns for part in self.parts)


@dataclass(frozen=True)
class Choices:
    """The nodes of a graph that may be stitched, in topological order, and what they have to do with each other.

    before: of each, the nodes that it waits for, whatever the path. strangers: those that it may not share a cluster
    with: there is a path through what is left to TensorFlow, or legality.py says so. near: those that it reads, or that
    read it.
    """

    graph: Graph
    names: tuple[str, ...]
    alone: tuple[Expansion, ...]
    before: tuple[Nodes, ...]
    strangers: tuple[Nodes, ...]
    near: tuple[Nodes, ...]

    @staticmethod
    def of(graph: Graph, config: Config) -> Choices:
        examined = _stitchable(graph, config)
        alone = {name: found for name, found in examined.items() if found is not None}
        number = {name: i for i, name in enumerate(alone)}
        before: dict[str, Nodes] = {}
        through: dict[str, Nodes] = {}  # of those, the ones with a path through a node that is no choice
        for name, node in graph.nodes.items():
            waits = {v.node for v in node.inputs} | set(node.controls)
            mine = through_mine = 0
            for other in waits & set(before):
                mine |= before[other] | (1 << number[other] if other in number else 0)
                through_mine |= through[other]
            before[name] = mine
            through[name] = through_mine if name in number else mine
        names = tuple(alone)
        places = {name: legality.Place.of([graph.nodes[name]]) for name in names}
        strangers = [through[name] for name in names]
        for i, first in enumerate(names):
            for j, second in enumerate(names[:i]):
                if isinstance(places[first].with_(places[second]), Reason):
                    strangers[i] |= 1 << j
        for i in range(len(names)):
            for j in range(i):
                strangers[j] |= (strangers[i] >> j & 1) << i
        near = [0] * len(names)
        for i, name in enumerate(names):
            for j in (number[v.node] for v in graph.nodes[name].inputs if v.node in number):
                near[i] |= 1 << j
                near[j] |= 1 << i
        return Choices(
            graph, names, tuple(alone.values()), tuple(before[n] for n in names), tuple(strangers), tuple(near)
        )

    @property
    def all(self) -> Nodes:
        return (1 << len(self.names)) - 1

    def named(self, nodes: Nodes) -> tuple[str, ...]:
        return tuple(name for i, name in enumerate(self.names) if nodes >> i & 1)

    def numbered(self, names: Sequence[str]) -> Nodes:
        return sum(1 << self.names.index(name) for name in names)

    def hangs_together(self, nodes: Nodes) -> bool:
        """Whether each of the nodes reads another of them, or is read by one, and so on to all."""
        reached, grown = 0, nodes & -nodes
        while grown != reached:
            reached = grown
            for i, near in enumerate(self.near):
                if reached >> i & 1:
                    grown |= near & nodes
        return reached == nodes

    def steps_from(self, done: Nodes) -> Iterator[Nodes]:
        """Every legal cluster that can run when `done` has."""

        def grow(first: int, mine: Nodes) -> Iterator[Nodes]:
            for i in range(first, len(self.names)):
                bit = 1 << i
                if not done & bit and not self.strangers[i] & mine and not self.before[i] & ~(done | mine):
                    yield mine | bit
                    yield from grow(i + 1, mine | bit)

        return grow(0, 0)


def _stitchable(graph: Graph, config: Config) -> dict[str, Expansion | None]:
    """Each node by itself, None where it may not be stitched."""
    read = values_read(graph)
    found: dict[str, Expansion | None] = {}
    for name, node in graph.nodes.items():
        nobody_else = Precedents(graph, plan_groups)  # under the node's own names
        examined = legality.examine(graph, node, read[name], config, nobody_else)
        found[name] = None if isinstance(examined, Rejection) or not examined.outputs else examined
    return found


# -- bounds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """A value that is in memory if another cluster than its maker's reads it, looked at through all its views.

    makers: nodes that compute it (equal nodes are one), none for what the graph is given. readers: nodes that read it
    as a whole, and are more than views. leaves: others read it, whatever the clusters.
    """

    ns: float
    makers: Nodes
    readers: Nodes
    leaves: bool


@dataclass(frozen=True)
class Bounds:
    """Least costs, from what must be read, written and evaluated.

    evaluated_ns: of each choice, the HEAVY functions that no other choice evaluates for it.
    chain: of each choice, the clusters on the longest path from it on, if no two strangers share one.
    """

    target: Target
    stored: tuple[_Stored, ...]
    evaluated_ns: tuple[float, ...]
    chain: tuple[int, ...]

    @staticmethod
    def of(choices: Choices, target: Target) -> Bounds:
        whole = _Whole(choices)
        return Bounds(target, whole.stored(target), whole.evaluated_ns(target), _chains(choices))

    def cluster_ns(self, nodes: Nodes) -> float:
        """The least that these nodes can cost as one cluster."""
        work = sum(self._evaluated(nodes))
        for value in self.stored:
            made, read = value.makers & nodes, value.readers & nodes
            is_written = made and (value.leaves or value.readers & ~nodes)
            if is_written or (read and not made):
                work += value.ns
        return self.target.launch_ns + cost.loop_ns(work, self.target)

    def rest_ns(self, nodes: Nodes) -> float:
        """The least that these nodes can cost, in whatever clusters. They are all that is not done yet."""
        work = sum(self._evaluated(nodes)) + sum(ns for ns, owner in self._owned if owner & nodes)
        launches = max((length for i, length in enumerate(self.chain) if nodes >> i & 1), default=0)
        return launches * min(self.target.launch_ns, self.target.op_ns) + cost.loop_ns(work, self.target)

    def _evaluated(self, nodes: Nodes) -> Iterator[float]:
        return (ns for i, ns in enumerate(self.evaluated_ns) if nodes >> i & 1)

    @cached_property
    def _owned(self) -> tuple[tuple[float, Nodes], ...]:
        """What is read or written whatever the clusters, each with the one node that it is charged to."""
        owned: list[tuple[float, Nodes]] = []
        for value in self.stored:
            if not value.makers and value.readers:
                owned.append((value.ns, value.readers & -value.readers))
            if value.makers and value.leaves and value.makers.bit_count() == 1:
                owned.append((value.ns, value.makers))
        return tuple(owned)


def _chains(choices: Choices) -> tuple[int, ...]:
    """Strangers that wait for each other: each has a cluster of its own. An Identity costs nothing, and is no link."""
    counts = [bool(_has_steps(found.body)) for found in choices.alone]
    length = [0] * len(choices.names)
    for i in reversed(range(len(choices.names))):
        later = (
            length[j]
            for j in range(i + 1, len(choices.names))
            if choices.before[j] >> i & 1 and choices.strangers[j] >> i & 1
        )
        length[i] = max(later, default=0) + counts[i]
    return tuple(length)


def _has_steps(body: Body) -> bool:
    return any(not isinstance(step.op, Input) for step in body.steps)


class _Whole:
    """All choices as one body: there, equal steps of different nodes are one, and views can be looked through."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        outputs = [value for found in choices.alone for value in found.outputs]
        found = expand(choices.graph, choices.names, outputs)
        self._body = found.body
        steps = dict(zip(found.outputs, found.body.outputs, strict=True))
        self._root_of = {value: self._root(step) for value, step in steps.items()}
        numbers = {step.op.index: i for i, step in enumerate(found.body.steps) if isinstance(step.op, Input)}
        self._root_of |= {value: numbers[i] for i, value in enumerate(found.inputs) if i in numbers}

    def _root(self, step: int) -> int:
        while isinstance(self._body.steps[step].op, Reshape):
            step = self._body.steps[step].operands[0]
        return step

    def stored(self, target: Target) -> tuple[_Stored, ...]:
        graph, choices = self._choices.graph, self._choices
        inside = set(choices.names)
        makers: dict[int, Nodes] = {}
        readers: dict[int, Nodes] = {}
        leaves: set[int] = set()
        for number, (name, alone) in enumerate(zip(choices.names, choices.alone, strict=True)):
            read = [
                self._root_of[v] for v, type_ in zip(alone.inputs, alone.body.inputs, strict=True) if type_ is not None
            ]
            made = [self._root_of[v] for v in alone.outputs]
            for root in made:
                if root not in read:  # else it is a view
                    makers[root] = makers.get(root, 0) | 1 << number
            if any(root not in read for root in made):
                for root in read:
                    readers[root] = readers.get(root, 0) | 1 << number
            for value in alone.outputs:
                users = (u for u in graph.consumers[name] if value in graph.nodes[u].inputs)
                if value in graph.returned or any(u not in inside for u in users):
                    leaves.add(self._root_of[value])
        return tuple(
            _Stored(
                cost.work_ns(cost.Bytes.of([cost.size(self._body.steps[root].type)]).at(), 0, target),
                makers.get(root, 0),
                readers.get(root, 0),
                root in leaves,
            )
            for root in {*makers, *readers}
        )

    def evaluated_ns(self, target: Target) -> tuple[float, ...]:
        """None of what is only read in slices: not all of its elements need be evaluated."""
        partly: set[int] = set()
        for index in reversed(range(len(self._body.steps))):
            step = self._body.steps[index]
            if isinstance(step.op, Slice) or index in partly:
                partly.update(step.operands)
        found = dict.fromkeys(self._choices.names, 0.0)
        for index, step in enumerate(self._body.steps):
            if isinstance(step.op, Elementwise) and index not in partly:
                found[step.origin] += cost.work_ns(0, cost.evaluations(self._body, [index]).at(), target)
        return tuple(found.values())


# -- prices and the search -------------------------------------------------------------------------------------


class Prices:
    """What sets of nodes cost as one part; each is found out once.

    effort: the plans that may be tried, for all sets together.
    """

    def __init__(self, choices: Choices, target: Target, effort: Effort) -> None:
        self.choices, self._target, self._effort = choices, target, effort
        self._bodies: dict[tuple[str, ...], Body | None] = {}
        self._planned: dict[Nodes, Part | None] = {}
        self._best: dict[Nodes, tuple[float, Part | None]] = {}

    def planned(self, nodes: Nodes, below: float = math.inf) -> Part | None:
        """A node alone, or a cluster with the planner's groups; None where they cannot be one."""
        del below
        if nodes not in self._planned:
            body = self._body(nodes)
            priced = groupings.planned(body, self._target) if body is not None else None
            self._planned[nodes] = self._cheaper(nodes, priced)
        return self._planned[nodes]

    def best(self, nodes: Nodes, below: float = math.inf) -> Part | None:
        """The cheapest that these nodes can be, if that is less than `below`; None where they cannot be one."""
        known_below, part = self._best.get(nodes, (0.0, None))
        if known_below < below and (part is None or part.ns >= known_below):
            body = self._body(nodes)
            priced = groupings.best_plan(body, self._target, self._effort, below) if body is not None else None
            part = self._cheaper(nodes, priced)
            self._best[nodes] = below, part
        return part

    def _cheaper(self, nodes: Nodes, priced: Priced | None) -> Part | None:
        names = self.choices.named(nodes)
        alone = self.alone(names[0]) if len(names) == 1 else None
        if priced is None or (alone is not None and alone.ns <= priced.ns):
            return alone
        return Part(names, priced.ns, priced)

    def alone(self, name: str) -> Part:
        found = self.choices.alone[self.choices.names.index(name)]
        return Part((name,), cost.apart_ns(found.body, self._target))

    def _body(self, nodes: Nodes) -> Body | None:
        graph, names = self.choices.graph, self.choices.named(nodes)
        if names not in self._bodies:
            outputs = [
                value
                for i, name in enumerate(self.choices.names)
                if nodes >> i & 1
                for value in self.choices.alone[i].outputs
                if value in graph.returned
                or any(u not in names and value in graph.nodes[u].inputs for u in graph.consumers[name])
            ]
            try:
                self._bodies[names] = expand(graph, names, outputs).body
            except Unsupported:
                self._bodies[names] = None
        return self._bodies[names]


def planned_solution(clustering: Clustering, prices: Prices, *, regrouped: bool = False) -> Solution:
    """What the planner does, in the model. regrouped: its clusters, each with the best groups."""
    choices = prices.choices
    price = prices.best if regrouped else prices.planned
    parts: list[Part] = []
    for found in clustering.clusters:
        part = price(choices.numbered(found.nodes))
        assert part is not None, "a cluster has been planned before"
        parts.append(part)
    inside = {name for part in parts for name in part.nodes}
    parts += [prices.alone(name) for name in choices.names if name not in inside]
    return Solution(tuple(parts))


def best_solution(prices: Prices, target: Target, known: Solution, *, remote: bool = True) -> Solution:
    """The cheapest partition; `known` where none is cheaper.

    remote: whether a cluster may be any nodes; else each must read another of it, or be read by one.
    """
    search = _Search(prices.choices, Bounds.of(prices.choices, target), remote)
    return search.best(prices.best, search.best(prices.planned, known))


@dataclass(frozen=True)
class _Search:
    """Step 2."""

    choices: Choices
    bounds: Bounds
    remote: bool

    def best(self, price: Callable[[Nodes, float], Part | None], known: Solution) -> Solution:
        """The cheapest partition at these prices; `known` where none is cheaper."""
        choices, limit = self.choices, known.ns * (1 - SLACK)
        ticket = count()
        reached: dict[Nodes, float] = {0: 0.0}
        came: dict[Nodes, tuple[Nodes, Part]] = {}
        settled: set[Nodes] = set()
        queue: list[tuple[float, int, Nodes, Nodes]] = []  # least total, ticket, where from, and the step or 0

        def enter(least: float, done: Nodes, step: Nodes) -> None:
            if least < limit:
                heapq.heappush(queue, (least, next(ticket), done, step))

        enter(0.0, 0, 0)
        while queue:
            _, _, done, step = heapq.heappop(queue)
            after = done | step
            if after in settled:
                continue
            rest = self.bounds.rest_ns(choices.all & ~after)
            if step:  # it is its turn to be priced
                best_so_far = reached.get(after, limit - rest)
                part = price(step, best_so_far - reached[done])
                if part is not None and reached[done] + part.ns < best_so_far:
                    reached[after], came[after] = reached[done] + part.ns, (done, part)
                    enter(reached[after] + rest, after, 0)
                continue
            if done == choices.all:
                return Solution(_path(came, done))
            settled.add(done)
            for step in choices.steps_from(done):
                after = done | step
                if after not in settled and (self.remote or choices.hangs_together(step)):
                    rest = self.bounds.rest_ns(choices.all & ~after)
                    enter(reached[done] + _least(self.bounds, step) + rest, done, step)
        return known


def _least(bounds: Bounds, step: Nodes) -> float:
    least = bounds.cluster_ns(step)
    if step.bit_count() == 1:  # alone it has the cheaper dispatch, and none at all where it is nothing but a name
        least -= bounds.target.launch_ns
    return least


def _path(came: dict[Nodes, tuple[Nodes, Part]], done: Nodes) -> tuple[Part, ...]:
    parts: list[Part] = []
    while done:
        done, part = came[done]
        parts.append(part)
    return tuple(reversed(parts))
