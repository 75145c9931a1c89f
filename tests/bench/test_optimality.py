"""The search for the best clusters and groups: beside brute force, on graphs whose best is known, and as a command."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from itertools import combinations

import networkx as nx
import pytest
from click.testing import CliRunner

from bench import optimality, optimality_search
from bench.__main__ import bench
from bench.optimality_graphs import random_graph
from bench.optimality_groupings import Effort, best_plan, is_constant
from bench.optimality_search import Bounds, Choices, Prices, Solution, best_solution
from bench.sketch import OPAQUE, Sketch
from tf_stitch.config import Config
from tf_stitch.errors import Unsupported
from tf_stitch.ir.body import Body, BodyBuilder, Elementwise
from tf_stitch.ir.graph import Graph
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower.common import lower
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS
from tf_stitch.passes.cluster import cluster
from tf_stitch.plan import cost
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.target import Target
from tf_stitch.plan.verify import verify_plan

TARGET = Target.baseline("x86-64-v3")
ENOUGH = 1_000_000


def prices_of(graph: Graph) -> Prices:
    return Prices(Choices.of(graph, Config()), TARGET, Effort(ENOUGH))


def best_of(graph: Graph, *, remote: bool = True) -> Solution:
    prices = prices_of(graph)
    return best_solution(prices, TARGET, all_alone(prices), remote=remote)


def all_alone(prices: Prices) -> Solution:
    return Solution(tuple(prices.alone(name) for name in prices.choices.names))


def clusters_of(solution: Solution) -> list[set[str]]:
    return [{name.split("_")[0] for name in part.nodes} for part in solution.parts if part.priced is not None]


# -- beside brute force ----------------------------------------------------------------------------------------


def partitions(names: tuple[str, ...]) -> Iterator[list[set[str]]]:
    if not names:
        yield []
        return
    first, rest = names[0], names[1:]
    for smaller in partitions(rest):
        yield [{first}, *smaller]
        for i, block in enumerate(smaller):
            yield [*smaller[:i], {first, *block}, *smaller[i + 1 :]]


def contracted(graph: Graph, blocks: list[set[str]]) -> nx.DiGraph:
    place = {name: name for name in graph.nodes} | {name: str(i) for i, block in enumerate(blocks) for name in block}
    edges = {(place[v.node], place[n.name]) for n in graph.nodes.values() for v in n.inputs}
    found = nx.DiGraph()
    found.add_nodes_from(place.values())
    found.add_edges_from((a, b) for a, b in edges if a != b)
    return found


def hangs_together(graph: Graph, block: set[str]) -> bool:
    edges = [(v.node, name) for name in block for v in graph.nodes[name].inputs if v.node in block]
    found = nx.Graph(edges)
    found.add_nodes_from(block)
    return nx.is_connected(found)


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_the_search_finds_what_brute_force_finds(seed: int, remote: bool) -> None:
    graph = random_graph(seed, 2 + seed % 5)
    prices = prices_of(graph)
    least = float("inf")
    for blocks in partitions(prices.choices.names):
        if not nx.is_directed_acyclic_graph(contracted(graph, blocks)):
            continue
        if not remote and not all(hangs_together(graph, block) for block in blocks):
            continue
        parts = [prices.best(prices.choices.numbered(sorted(block))) for block in blocks]
        if None not in parts:
            least = min(least, sum(part.ns for part in parts if part is not None))
    assert best_solution(prices, TARGET, all_alone(prices), remote=remote).ns == pytest.approx(least)


def every_plan_ns(body: Body) -> Iterator[float]:
    """Of all cuts and all answers, without bounds."""
    steps = [i for i, s in enumerate(body.steps) if isinstance(s.op, Elementwise) and not is_constant(body, i)]
    for cuts in (frozenset(c) for size in range(len(steps) + 1) for c in combinations(steps, size)):
        script: list[int] = []
        while True:
            answered: list[tuple[int, int]] = []

            def choose(options, none, script=script, answered=answered):
                found = list(options)
                if not found:
                    return none
                answered.append((script[len(answered)] if len(answered) < len(script) else 0, len(found)))
                return found[answered[-1][0]]

            try:
                plan = plan_groups(body, cuts, choose)
                lower(plan, "")
                yield cost.stitched_ns(plan, TARGET)
            except Unsupported:
                pass
            while answered and answered[-1][0] + 1 == answered[-1][1]:
                answered.pop()
            if not answered:
                break
            script = [answer for answer, _ in answered]
            script[-1] += 1


@pytest.mark.parametrize("seed", range(40))
def test_the_best_plan_is_the_best_of_all(seed: int) -> None:
    """The planner may cut where nothing is loaded: brute force does too, and gains nothing by it."""
    graph = random_graph(seed, 5)
    for found in cluster(graph, Config(min_cluster_size=1)).clusters:
        body = prices_of(graph)._body(Choices.of(graph, Config()).numbered(found.nodes))
        assert body is not None
        if sum(isinstance(step.op, Elementwise) for step in body.steps) <= 6:
            best = best_plan(body, TARGET, Effort(ENOUGH))
            assert best is not None
            verify_plan(best.plan)
            assert best.ns == pytest.approx(min(every_plan_ns(body)))


@pytest.mark.parametrize("seed", range(8))
def test_the_best_plan_of_several_loop_nests_is_the_best_of_all(seed: int) -> None:
    """Dear values that two or three reductions over different axes read: here, cuts pay."""
    chance = random.Random(seed)
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    size = chance.choice(((8, 64), (256, 256), (1024, 768)))
    values = [b.input(TensorType(DType.F32, shape_of(*size)))]
    for _ in range(5):
        function = chance.choice(("exp", "tanh", "neg", "add"))
        count = 2 if function == "add" else 1
        values.append(b.apply(function, *(chance.choice(values[-3:]) for _ in range(count))))
    reduced = [b.reduce("sum", chance.choice(values[1:]), axes) for axes in chance.choice(([[1], [0, 1]], [[1], [0]]))]
    scaled = b.apply("mul", chance.choice(values), b.broadcast(reduced[1], shape_of(*size)))
    body = b.finish([*reduced, chance.choice((scaled, values[-1]))])
    best = best_plan(body, TARGET, Effort(ENOUGH))
    assert best is not None
    verify_plan(best.plan)
    assert best.ns == pytest.approx(min(every_plan_ns(body)))


@pytest.mark.parametrize("seed", range(12))
def test_bounds_are_never_above_what_they_bound(seed: int) -> None:
    graph = random_graph(seed, 5)
    prices = prices_of(graph)
    bounds, choices, slack = Bounds.of(prices.choices, TARGET), prices.choices, 1 + 1e-9
    reached, waiting = {0}, [0]
    while waiting:
        done = waiting.pop()
        before = bounds.rest_ns(choices.all & ~done)
        for step in choices.steps_from(done):
            part = prices.best(step)
            if part is not None:
                assert optimality_search._least(bounds, step) <= part.ns * slack
                assert before <= (part.ns + bounds.rest_ns(choices.all & ~(done | step))) * slack
                if done | step not in reached:
                    reached.add(done | step)
                    waiting.append(done | step)
    assert choices.all in reached


# -- what must hold of any -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_solutions_are_partitions_in_an_order_that_can_run(seed: int) -> None:
    graph = random_graph(seed, 10)
    found = optimality.compare(graph)
    names = Choices.of(graph, Config()).names
    for solution in (found.planned, found.regrouped, found.neighbours, found.optimum):
        assert sorted(name for part in solution.parts for name in part.nodes) == sorted(names)
        assert nx.is_directed_acyclic_graph(contracted(graph, [set(part.nodes) for part in solution.parts]))
        for part in solution.parts:
            if part.priced is not None:
                verify_plan(part.priced.plan)
    costs = [s.ns for s in (found.planned, found.regrouped, found.neighbours, found.optimum)]
    assert costs == sorted(costs, reverse=True)
    for part in found.neighbours.parts:
        assert hangs_together(graph, set(part.nodes)) or part in found.regrouped.parts
    done: set[str] = set()
    waits = {name: {a for a in nx.ancestors(contracted(graph, []), name) if a in names} for name in names}
    for part in found.optimum.parts:
        if found.optimum is not found.planned:
            assert all(waits[name] <= done | set(part.nodes) for name in part.nodes)
        done |= set(part.nodes)


# -- graphs whose best is known --------------------------------------------------------------------------------

ROWS, WIDTH = 1024, 256
VALUE = ROWS * WIDTH * 4 / TARGET.bytes_per_ns  # ns of one thread that reads or writes a value of that shape
TANH = ROWS * WIDTH * TARGET.heavy_ns


def loop(work: float) -> float:
    """On all threads: these loops are long."""
    return work / TARGET.threads + TARGET.join_ns


def test_siblings_share_a_loop() -> None:
    s = Sketch()
    x = s.placeholder(ROWS, WIDTH)
    graph = s.graph([s.node("Tanh", x), s.node("Relu", x)])
    assert best_of(graph).ns == pytest.approx(TARGET.launch_ns + loop(3 * VALUE + TANH))
    assert best_of(graph, remote=False).ns == pytest.approx(2 * TARGET.op_ns + loop(2 * VALUE + TANH) + loop(2 * VALUE))


def test_nothing_is_joined_around_what_stays() -> None:
    """exp ─► matmul ─► add ─► neg, and exp ─► add: the sum may not wait for what waits for its cluster."""
    s = Sketch()
    exp = s.node("Exp", s.node("Neg", s.placeholder(ROWS, WIDTH)))
    graph = s.graph([s.node("Relu", s.node("AddV2", s.opaque(exp), exp))])
    best = best_of(graph)
    assert clusters_of(best) == [{"Neg", "Exp"}, {"AddV2", "Relu"}]
    assert best.ns == pytest.approx(2 * TARGET.launch_ns + loop(2 * VALUE + TANH) + loop(3 * VALUE))


def test_a_node_by_itself_stays_tensorflows() -> None:
    s = Sketch()
    graph = s.graph([s.node("Relu", s.placeholder(ROWS, WIDTH))])
    best = best_of(graph)
    assert clusters_of(best) == []
    assert best.ns == pytest.approx(TARGET.op_ns + loop(2 * VALUE))


def test_a_dear_value_of_two_loop_nests_is_stored() -> None:
    """Evaluated by both, it would cost 3 functions more. Stored by a loop of its own, it is written, and read twice."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(ROWS, WIDTH)))
    value = b.apply("tanh", b.apply("erf", b.apply("exp", x)))
    body = b.finish([b.reduce("sum", value, [1]), b.reduce("sum", value, [0, 1])])
    best = best_plan(body, TARGET, Effort(ENOUGH))
    assert best is not None
    assert best.plan.scratch == (value,)
    rows, one = ROWS * 4 / TARGET.bytes_per_ns, 4 / TARGET.bytes_per_ns
    assert best.ns == pytest.approx(
        TARGET.launch_ns + loop(2 * VALUE + 3 * TANH) + loop(VALUE + rows) + loop(VALUE + one)
    )


# -- the graphs, and the command -------------------------------------------------------------------------------


def test_random_graphs_have_choices_of_every_kind() -> None:
    ops = {node.op for seed in range(40) for node in random_graph(seed, 12).nodes.values()}
    assert {"Tanh", "Relu", "AddV2", "Sum", "Softmax", "Reshape", "Transpose", OPAQUE} <= ops
    assert ops - {"Placeholder", "Const", OPAQUE} <= set(OPS)
    for seed in range(40):
        graph = random_graph(seed, 12)
        made = [n for n in graph.nodes.values() if n.op not in ("Placeholder", "Const")]
        assert len(made) == 12
        assert all(graph.consumers[n.name] or any(v.node == n.name for v in graph.returned) for n in made)
        assert random_graph(seed, 12).nodes.keys() == graph.nodes.keys()


def test_the_command(tmp_path) -> None:
    out = tmp_path / "rows.json"
    outcome = CliRunner().invoke(
        bench, ["optimality", "--graphs", "3", "--ops", "5", "--seed", "1", "--json", str(out)]
    )
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(out.read_text())
    assert document["schema"] == 1
    assert [row["seed"] for row in document["rows"]] == [1, 2, 3]
    for row in document["rows"]:
        assert row["over_optimum"] >= row["over_neighbours"] >= row["over_regrouped"] >= 1
    summary = document["summary"]
    assert summary["graphs"] == summary["complete"] == 3
    assert summary["worst_over_optimum"] == max(row["over_optimum"] for row in document["rows"])
    assert "3 graphs, 3 of them searched to the end" in outcome.output


def test_the_picture_shows_both_solutions() -> None:
    s = Sketch()
    x = s.placeholder(ROWS, WIDTH)
    graph = s.graph([s.node("Tanh", x), s.opaque(s.node("Relu", x))])
    found = optimality.compare(graph)
    better = found.planned if found.planned.ns <= found.optimum.ns else found.optimum
    text = optimality.picture(optimality.row_of(7, found, 0.0), found, "optimum")
    assert text.startswith("graph 7: planner")
    cells = {line.split()[0]: re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[1:] if line}
    assert cells["node"] == ["node", "shape", "planner", "optimum", "reads"]
    for name in ("Tanh_1", "Relu_2"):
        assert cells[name][3] == "A"
    assert f"optimum: A {better.ns / 1e3:.2f} µs in 1 group" in text


def test_a_search_that_is_given_up_says_so(monkeypatch) -> None:
    monkeypatch.setattr(optimality, "EFFORT", 0)
    graph = random_graph(13, 12)
    found = optimality.compare(graph)
    assert not found.is_complete
    assert found.optimum.ns <= found.planned.ns
