"""`python -m bench planner`: what the planner itself costs, on graphs as large as whole training steps.

Four kinds of graphs, each at several numbers of nodes: see FAMILIES. Stages 3 and 4 are run, clustering and planning;
nothing is rendered or compiled. Each graph has a process of its own, so that its peak of memory is its own. Seconds are
CPU seconds. The exponent is the slope of log seconds over log nodes: 1 is linear.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from bench import machine, results
from bench.results import Row, Summary
from bench.sketch import Sketch
from tf_stitch.config import Config
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.passes.cluster import cluster
from tf_stitch.plan.groups import plan_groups

OUTPUT = click.Path(dir_okay=False, path_type=Path)
BARS = {5_000: 1.0, 50_000: 15.0}  # seconds that a graph of so many nodes may take
TOO_SLOW = 5  # exit code


@click.command()
@click.option("--nodes", default="500,5000,50000", show_default=True, help="Numbers of nodes, with commas between.")
@click.option("--graphs", "names", default="", help="Kinds of graphs, with commas between; all, if not given.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
def planner(nodes: str, names: str, json_path: Path | None) -> None:
    """Seconds and memory of clustering and planning, by number of nodes."""
    counts, families = _counts(nodes), _families(names)
    log = Console(stderr=True, highlight=False)
    rows: list[Row] = []
    for name in families:
        for count in counts:
            rows.append(in_own_process(name, count))
            log.print(log_line(rows[-1]), markup=False, soft_wrap=True)
    summary = summarise(rows)
    if json_path is not None:
        results.write(json_path, rows, summary)
    Console().print(table(rows, summary))
    if summary["over_the_bar"]:
        raise SystemExit(TOO_SLOW)


def in_own_process(name: str, nodes: int) -> Row:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(measure, name, nodes).result()


def measure(name: str, nodes: int) -> Row:
    """One graph. Memory is what planning adds to the process's peak."""
    graph = FAMILIES[name](nodes)
    gc.collect()
    before = _peak_bytes()
    started = time.process_time()
    found = cluster(graph, Config())
    clustered = time.process_time()
    for each in found.clusters:
        plan_groups(each.body)
    planned = time.process_time()
    return {
        "graph": name,
        "nodes": len(graph.nodes),
        "wanted_nodes": nodes,
        "clusters": len(found.clusters),
        "clustered_nodes": sum(len(c.nodes) for c in found.clusters),
        "cluster_s": clustered - started,
        "plan_s": planned - clustered,
        "total_s": planned - started,
        "peak_mib": (_peak_bytes() - before) / 2**20,
        "bar_s": BARS.get(nodes),
    }


def summarise(rows: list[Row]) -> Summary:
    return {
        "exponents": {name: exponent([r for r in rows if r["graph"] == name]) for name in _names(rows)},
        "over_the_bar": [f"{r['graph']} {r['nodes']}" for r in rows if r["bar_s"] and r["total_s"] > r["bar_s"]],
        **machine.description(),
    }


def exponent(rows: list[Row]) -> float | None:
    """Of the curve `seconds = c * nodes ** exponent` that fits best; None where there are not two sizes."""
    if len({r["nodes"] for r in rows}) < 2:
        return None
    nodes, seconds = (np.log([r[key] for r in rows]) for key in ("nodes", "total_s"))
    return float(np.polyfit(nodes, seconds, 1)[0])


def log_line(row: Row) -> str:
    return f"{row['graph']} of {row['nodes']} nodes: {row['total_s']:.2f} s, {row['clusters']} clusters"


def table(rows: list[Row], summary: Summary) -> Table:
    over = set(summary["over_the_bar"])
    drawn = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for title in ("graph", "nodes", "clusters", "cluster s", "plan s", "µs/node", "MiB", "exponent"):
        drawn.add_column(title, justify="left" if title == "graph" else "right", no_wrap=True)
    for row in rows:
        is_last = row is [r for r in rows if r["graph"] == row["graph"]][-1]
        found = summary["exponents"][row["graph"]] if is_last else None
        drawn.add_row(
            row["graph"],
            str(row["nodes"]),
            str(row["clusters"]),
            f"{row['cluster_s']:.2f}",
            f"{row['plan_s']:.2f}",
            f"{row['total_s'] / row['nodes'] * 1e6:.0f}",
            f"{row['peak_mib']:.0f}",
            "" if found is None else f"{found:.2f}",
            style="red" if f"{row['graph']} {row['nodes']}" in over else None,
        )
    return drawn


def _names(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(r["graph"] for r in rows))


def _peak_bytes() -> int:
    """Of memory resident at a time. (getrusage would also count what the parent had when it started us.)"""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of numbers", param_hint="--nodes") from None
    if min(counts) < 1:
        raise click.BadParameter("a graph has at least one node", param_hint="--nodes")
    return counts


def _families(text: str) -> list[str]:
    names = text.split(",") if text else list(FAMILIES)
    for name in names:
        if name not in FAMILIES:
            raise click.BadParameter(f"no graphs {name}; there are {', '.join(FAMILIES)}", param_hint="--graphs")
    return names


# -- graphs ----------------------------------------------------------------------------------------------------


def transformer(nodes: int) -> Graph:
    """Blocks of attention and a feed-forward part: layer norms, masked softmax, GELU, residuals."""
    s = Sketch()
    batch, heads, length, width = 4, 4, 128, 256
    x, epsilon = s.placeholder(batch * length, width), s.constant(1e-5)
    masked = s.node("Sub", s.constant(1.0), s.placeholder(batch, 1, 1, length))
    mask = s.node("Mul", masked, s.constant(-1e4))  # computed once, and read by every block
    while len(s) < nodes:
        query = _dense(s, _layer_norm(s, x, epsilon), width)
        scores = s.opaque(_heads(s, query, batch, heads), shape=(batch, heads, length, length))
        weights = s.node("Softmax", s.node("AddV2", s.node("Mul", scores, s.constant(0.125)), mask))
        context = s.opaque(weights, shape=(batch, heads, length, width // heads))
        merged = s.reshape(s.transpose(context, 0, 2, 1, 3), batch * length, width)
        x = s.node("AddV2", x, _dense(s, merged, width))
        inner = _dense(s, _layer_norm(s, x, epsilon), 4 * width)
        half = s.node("Mul", inner, s.constant(0.5))
        erf = s.node("Erf", s.node("Mul", inner, s.constant(math.sqrt(0.5))))
        gelu = s.node("Mul", half, s.node("AddV2", erf, s.constant(1.0)))
        x = s.node("AddV2", x, _dense(s, gelu, width))
    return s.graph([x])


def _dense(s: Sketch, x: Value, width: int) -> Value:
    product = s.opaque(x, shape=(*s.shape(x)[:-1], width))
    return s.node("AddV2", product, s.placeholder(width))


def _layer_norm(s: Sketch, x: Value, epsilon: Value) -> Value:
    centred = s.node("Sub", x, s.reduce("Mean", x, [1]))
    variance = s.reduce("Mean", s.node("Square", centred), [1])
    normed = s.node("Mul", centred, s.node("Rsqrt", s.node("AddV2", variance, epsilon)))
    width = s.shape(x)[-1]
    return s.node("AddV2", s.node("Mul", normed, s.placeholder(width)), s.placeholder(width))


def _heads(s: Sketch, x: Value, batch: int, heads: int) -> Value:
    rows, width = s.shape(x)
    return s.transpose(s.reshape(x, batch, rows // batch, heads, width // heads), 0, 2, 1, 3)


def columns(nodes: int) -> Graph:
    """Feature columns of a recommender: hundreds of small chains side by side, and one node that reads them all."""
    s = Sketch()
    ends: list[Value] = []
    while len(s) < nodes:
        x = s.placeholder(256, 1 + len(ends) % 7)
        clipped = s.node("Maximum", s.node("Minimum", x, s.constant(10.0)), s.constant(0.0))
        scaled = s.node("Mul", s.node("Log1p", clipped), s.constant(0.5))
        ends.append(s.node("Sigmoid", s.node("AddV2", scaled, s.node("Square", scaled))))
    return s.graph([s.opaque(*ends)])


def chain(nodes: int) -> Graph:
    """One element-wise op behind the other."""
    s = Sketch()
    x = first = s.placeholder(64, 256)
    ops = ("Tanh", "Mul", "Abs", "AddV2", "Sqrt", "Sub", "Exp")
    while len(s) < nodes:
        op = ops[len(s) % len(ops)]
        x = s.node(op, x, first) if op in ("Mul", "AddV2", "Sub") else s.node(op, x)
    return s.graph([x])


def residual(nodes: int) -> Graph:
    """A deep convolutional net: scale, shift and PReLU behind each convolution, a sum around each two."""
    s = Sketch()
    channels = 64
    x = s.placeholder(1, 28, 28, channels)
    while len(s) < nodes:
        first = _prelu(s, _scaled(s, s.opaque(x)))
        x = _prelu(s, s.node("AddV2", _scaled(s, s.opaque(first)), x))
    return s.graph([x])


def _scaled(s: Sketch, x: Value) -> Value:
    channels = s.shape(x)[-1]
    return s.node("AddV2", s.node("Mul", x, s.placeholder(channels)), s.placeholder(channels))


def _prelu(s: Sketch, x: Value) -> Value:
    negative = s.node("Mul", s.placeholder(s.shape(x)[-1]), s.node("Minimum", x, s.constant(0.0)))
    return s.node("AddV2", s.node("Relu", x), negative)


FAMILIES: dict[str, Callable[[int], Graph]] = {
    "transformer": transformer,
    "columns": columns,
    "chain": chain,
    "residual": residual,
}
