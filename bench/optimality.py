"""`python -m bench optimality`: how far the planner's clusters and groups are from the best there are.

For each random graph (optimality_graphs.py), costs in the planner's model (plan/cost.py), of:

    planned      the planner's clusters, with its groups
    regrouped    the planner's clusters, each with the best groups there are       (optimality_groupings.py)
    neighbours   the best clusters whose nodes read each other                     (optimality_search.py)
    optimum      the best clusters of any nodes

Each is at most the one before. Where the search was given up (too many plans of one graph), the last three are the best
that was found, and `is_complete` is false. Nodes that stay TensorFlow's in any case are in none of the costs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from bench import machine, results
from bench.optimality_graphs import random_graph
from bench.optimality_groupings import SLACK, Effort
from bench.optimality_search import Choices, Prices, Solution, best_solution, planned_solution
from bench.results import Row, Summary
from tf_stitch.config import Config
from tf_stitch.ir.graph import Graph
from tf_stitch.passes.cluster import cluster
from tf_stitch.passes.clustering import Clustering
from tf_stitch.plan.target import Target

OUTPUT = click.Path(dir_okay=False, path_type=Path)
BASELINE = "x86-64-v3"  # so that the figures do not depend on this machine
EFFORT = 5_000  # plans of one graph: more than nineteen of twenty random ones need
PICTURES = 3


@dataclass(frozen=True)
class Comparison:
    """The planner beside the best, on one graph."""

    graph: Graph
    clustering: Clustering
    planned: Solution
    regrouped: Solution
    neighbours: Solution
    optimum: Solution
    is_complete: bool


@click.command()
@click.option("--graphs", default=200, show_default=True, type=click.IntRange(1), help="How many random graphs.")
@click.option("--ops", default=12, show_default=True, type=click.IntRange(1, 16), help="Nodes of each.")
@click.option("--seed", default=0, show_default=True, help="Of the first graph; the others' follow.")
@click.option("--neighbours", is_flag=True, help="Show the graphs that are worst with clusters of neighbours only.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
def optimality(graphs: int, ops: int, seed: int, neighbours: bool, json_path: Path | None) -> None:
    """The planner's clusters beside the best, in its cost model."""
    console, log = Console(highlight=False), Console(stderr=True)
    best = "neighbours" if neighbours else "optimum"
    rows: list[Row] = []
    worst: list[tuple[Row, Comparison]] = []
    for number in track(range(seed, seed + graphs), "graphs", console=log, transient=True):
        started = time.process_time()
        found = compare(random_graph(number, ops))
        rows.append(row_of(number, found, time.process_time() - started))
        worst = sorted([*worst, (rows[-1], found)], key=lambda entry: -entry[0][f"over_{best}"])[:PICTURES]
    summary = summarise(rows)
    if json_path is not None:
        results.write(json_path, rows, summary)
    for row, found in worst:
        if row[f"over_{best}"] > 1:
            console.print(picture(row, found, best), markup=False, soft_wrap=True)
    console.print(closing(summary), markup=False, soft_wrap=True)


def compare(graph: Graph) -> Comparison:
    config, target, effort = Config(), Target.baseline(BASELINE), Effort(EFFORT)
    prices = Prices(Choices.of(graph, config), target, effort)
    clustering = cluster(graph, config)
    planned = planned_solution(clustering, prices)
    regrouped = planned_solution(clustering, prices, regrouped=True)
    near = best_solution(prices, target, regrouped, remote=False)
    optimum = best_solution(prices, target, near)
    return Comparison(graph, clustering, planned, regrouped, near, optimum, effort.is_complete)


def row_of(seed: int, found: Comparison, seconds: float) -> Row:
    costs = {name: getattr(found, name).ns for name in ("planned", "regrouped", "neighbours", "optimum")}
    over = {f"over_{name}": _ratio(costs["planned"], ns) for name, ns in costs.items() if name != "planned"}
    return {
        "seed": seed,
        "choices": sum(len(part.nodes) for part in found.planned.parts),
        **{f"{name}_ns": ns for name, ns in costs.items()},
        **over,
        "clusters": len(found.clustering.clusters),
        "optimum_clusters": sum(part.priced is not None for part in found.optimum.parts),
        "left_out": _left_out(found),
        "is_complete": found.is_complete,
        "cpu_s": seconds,
    }


def _ratio(planned: float, best: float) -> float:
    """1 where they differ by no more than rounding; also where both are 0, of a graph that is TensorFlow's alone."""
    return 1.0 if planned * (1 - SLACK) <= best else planned / best


def _left_out(found: Comparison) -> list[str]:
    """Why the planner stitched none of the nodes that the optimum stitches."""
    stitched = {name for part in found.optimum.parts if part.priced is not None for name in part.nodes}
    return [f"{r.reason.name}: {r.detail}" for r in found.clustering.rejections if r.node in stitched]


def summarise(rows: list[Row]) -> Summary:
    def shares(name: str) -> Summary:
        ratios = [row[f"over_{name}"] for row in rows]
        return {
            f"at_{name}": sum(ratio == 1 for ratio in ratios) / len(ratios),
            f"geomean_over_{name}": results.geomean(ratios),
            f"worst_over_{name}": max(ratios),
        }

    left_out = Counter(reason.split(":")[0] for row in rows for reason in row["left_out"])
    return {
        "graphs": len(rows),
        "complete": sum(row["is_complete"] for row in rows),
        **shares("regrouped"),
        **shares("neighbours"),
        **shares("optimum"),
        "left_out": dict(left_out.most_common()),
        "slowest_cpu_s": max(row["cpu_s"] for row in rows),
        **machine.description(),
    }


# -- what is shown ---------------------------------------------------------------------------------------------


def closing(summary: Summary) -> str:
    lines = [f"{summary['graphs']} graphs, {summary['complete']} of them searched to the end"]
    for name, what in (
        ("regrouped", "the best groups for its clusters"),
        ("neighbours", "the best clusters of neighbours"),
        ("optimum", "the best clusters of any nodes"),
    ):
        lines.append(
            f"planner over {what}: {summary[f'at_{name}']:.0%} of graphs are there, geometric mean"
            f" {summary[f'geomean_over_{name}']:.3f}, worst {summary[f'worst_over_{name}']:.2f}"
        )
    if summary["left_out"]:
        counts = ", ".join(f"{count} {reason}" for reason, count in summary["left_out"].items())
        lines.append(f"nodes that only the optimum stitches, by the planner's reason: {counts}")
    return "\n".join(lines)


def picture(row: Row, found: Comparison, best: str) -> str:
    """Both solutions, as text: a line a node, with a letter for its cluster in each."""
    other: Solution = getattr(found, best)
    lines = [
        f"graph {row['seed']}: planner {_us(found.planned.ns)}, {best} {_us(other.ns)}, {row[f'over_{best}']:.2f} times"
    ]
    mine, theirs = _letters(found.planned), _letters(other)
    reasons = {r.node: f"{r.reason.name} {r.detail}".strip() for r in found.clustering.rejections}
    graph = found.graph
    table = [("node", "shape", "planner", best, "reads")]
    for name, node in graph.nodes.items():
        if node.op == "Const":
            continue
        reads = [v.node for v in node.inputs if graph.nodes[v.node].op != "Const"]
        notes = ["returned"] if any(v.node == name for v in graph.returned) else []
        if name in reasons and name in theirs:
            notes.append(reasons[name])
        shape = str(node.types[0]).removeprefix("f32")
        table.append((name, shape, mine.get(name, ""), theirs.get(name, ""), "; ".join([" ".join(reads), *notes])))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines += [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in table
    ]
    lines.append(f"  planner: {_parts(found.planned, mine)}")
    lines.append(f"  {best}: {_parts(other, theirs)}")
    return "\n".join([*lines, ""])


def _letters(solution: Solution) -> dict[str, str]:
    """A letter for each node's cluster, a dot for a node that is left alone."""
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    found: dict[str, str] = {}
    for part in solution.parts:
        found |= dict.fromkeys(part.nodes, "." if part.priced is None else next(letters))
    return found


def _parts(solution: Solution, letters: dict[str, str]) -> str:
    clusters = [
        f"{letters[part.nodes[0]]} {_us(part.ns)} in {_groups(len(part.priced.plan.groups))}"
        for part in solution.parts
        if part.priced is not None
    ]
    rest = _total(part.ns for part in solution.parts if part.priced is None)
    return ", ".join([*clusters, *([f"alone {rest}"] if rest else [])])


def _total(ns: Iterable[float]) -> str:
    total = sum(ns)
    return _us(total) if total else ""


def _groups(number: int) -> str:
    return "1 group" if number == 1 else f"{number} groups"


def _us(ns: float) -> str:
    return f"{ns / 1e3:.2f} µs"
