"""`python -m bench calls`: what a call of a function costs that computes next to nothing.

Functions of 1, 4 and 16 tensors, with and without variables, called again and again with tensors of the same shapes:
under tf.function and tf_stitch.function, in turns, one call each. Microseconds are medians of wall time. What is
measured is what stands before the first op and after the last: `frontend/repeats` on our side.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench import machine, results
from bench.results import Row, Summary
from bench.timing import Effort, interleaved

OUTPUT = click.Path(dir_okay=False, path_type=Path)
SIZES = ((1, 0), (4, 0), (16, 0), (4, 32))  # tensors, variables
WARM_UP = 50
SLOWER = 5  # exit code


@click.command()
@click.option("--calls", "count", default=2000, show_default=True, help="Calls of each function.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
def calls(count: int, json_path: Path | None) -> None:
    """Microseconds of a call that computes next to nothing, under tf.function and tf_stitch.function."""
    rows = [measure(tensors, variables, count) for tensors, variables in SIZES]
    summary = summarise(rows)
    if json_path is not None:
        results.write(json_path, rows, summary)
    Console().print(table(rows))
    if summary["slower"]:
        raise SystemExit(SLOWER)


def measure(tensors: int, variables: int, count: int) -> Row:
    """One function. It reads each variable and gives back each tensor."""
    import tensorflow as tf

    import tf_stitch

    held = [tf.Variable(tf.ones([])) for _ in range(variables)]
    inputs = {f"x{n}": tf.constant([float(n)]) for n in range(tensors)}

    def body(**given: Any) -> list[Any]:
        return [tf.identity(v) for v in given.values()] + [v.read_value() for v in held]

    functions = {"tf": tf.function(body), "stitch": tf_stitch.function(body)}
    found = in_turns({name: lambda f=f: f(**inputs) for name, f in functions.items()}, count)
    return {
        "tensors": tensors,
        "variables": variables,
        **{f"{name}_us": us for name, us in found.items()},
        "tf_over_stitch": found["tf"] / found["stitch"],
    }


def in_turns(functions: dict[str, Callable[[], Any]], count: int) -> dict[str, float]:
    """Median microseconds of each, after a warm-up; one call a turn."""
    rounds = WARM_UP + count
    samples = interleaved(functions, Effort(budget_s=0.0, slice_s=0.0, fewest_rounds=rounds, most_rounds=rounds))
    return {name: statistics.median(found.wall[WARM_UP:]) * 1e6 for name, found in samples.items()}


def summarise(rows: list[Row]) -> Summary:
    slower = [f"{r['tensors']} tensors, {r['variables']} variables" for r in rows if r["tf_over_stitch"] < 1]
    return {"slower": slower, **machine.description()}


def table(rows: list[Row]) -> Table:
    drawn = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for title in ("tensors", "variables", "tf.function µs", "tf_stitch.function µs", "tf/stitch"):
        drawn.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        drawn.add_row(
            str(row["tensors"]),
            str(row["variables"]),
            f"{row['tf_us']:.0f}",
            f"{row['stitch_us']:.0f}",
            f"{row['tf_over_stitch']:.2f}",
            style="red" if row["tf_over_stitch"] < 1 else None,
        )
    return drawn
