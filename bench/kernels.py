"""`python -m bench kernels`: how many memory-intensive kernels a step of a model launches, counted by one rule.

What counts is a launch: an op that TensorFlow's executor runs, an instruction of XLA's optimised HLO (a fusion is one),
a StitchOp. It counts when it is memory-intensive, that is, when it is

    no view and no bookkeeping   Reshape, Identity, Shape, a read of a variable, control flow, TensorLists that only
                                 refer to their elements; parameter, tuple, bitcast, while
    not compute-intensive        products, convolutions, FFTs, sorts, with all that is fused into them; custom calls
    not small                    some operand or result has more than 8 elements: neither arithmetic on shapes nor the
                                 counter of a loop

`kernel_rule` has the lists. The same rule holds for all three: what tf_stitch leaves to TensorFlow counts by
TensorFlow's rule, beside the StitchOps. A step is one call of the model on inputs of `Model.sizes[0]`. It is run
and traced, so a loop counts as often as it turns, and a branch if it is taken. TensorFlow's ops are counted after all
of Grappler's optimizers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench import elsewhere, kernel_table, machine, results
from bench.results import Row, Summary
from bench.workloads.models import ALL, PAPER, BuildError, FetchError

WAYS = ("tf", "xla", "stitch")
LONGEST_WAY_S = 900
NAMES = click.Choice(list(ALL))
OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("names", nargs=-1, type=NAMES, metavar="[MODEL]...")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
@click.option("--why", is_flag=True, help="What was left unstitched, and why.")
def kernels(names: tuple[str, ...], json_path: Path | None, why: bool) -> None:
    """Memory-intensive kernels a step, of TensorFlow, XLA and tf_stitch (the paper's five models, or those named)."""
    log = Console(stderr=True, highlight=False)
    rows: list[Row] = []
    for name in names or PAPER:
        rows.append(count(name))
        log.print(kernel_table.log_line(rows[-1]), markup=False, soft_wrap=True)
    outcome = summary(rows)
    if json_path is not None:
        results.write(json_path, rows, outcome)
    kernel_table.show(Console(), rows, outcome, why=why)
    if any(way != "xla" for row in rows for way in row["absent"]):
        sys.exit(1)


def count(name: str) -> Row:
    """A row for one model; what could not be counted is None, and `absent` has the reason."""
    model = ALL[name]
    row: Row = {"model": name, "size": "x".join(map(str, model.sizes[0])), "unstitched": [], "absent": {}}
    try:
        model.path()
    except (FetchError, BuildError) as error:
        row["absent"] = dict.fromkeys(WAYS, f"{name} is not there: {str(error).strip().splitlines()[-1]}")
    for way in WAYS:
        found = {"absent": row["absent"][way]} if way in row["absent"] else _counted_elsewhere(name, way)
        if "absent" in found:
            row["absent"][way] = found["absent"]
        row[f"{way}_kernels"] = found.get("kernels")
        row[f"{way}_by_op"] = found.get("by_op", {})
    row["stitch_ops"] = row["stitch_by_op"].get("StitchOp", 0)
    row["unstitched"] = found.get("unstitched", [])
    row["stitch_over_xla"] = _ratio(row["stitch_kernels"], row["xla_kernels"])
    row["stitch_over_tf"] = _ratio(row["stitch_kernels"], row["tf_kernels"])
    return row


def summary(rows: Iterable[Row]) -> Summary:
    """Geometric means over the models that have both counts."""
    rows = list(rows)
    return {
        "fewer_than_xla": _fewer(row["stitch_over_xla"] for row in rows),
        "fewer_than_tf": _fewer(row["stitch_over_tf"] for row in rows),
        "models_with_xla": [row["model"] for row in rows if row["stitch_over_xla"] is not None],
        **machine.description(),
    }


def _fewer(ratios: Iterator[float | None]) -> float | None:
    mean = results.geomean(ratios)
    return None if mean is None else 1 - mean


def _ratio(a: int | None, b: int | None) -> float | None:
    return a / b if a and b else None


def _counted_elsewhere(name: str, way: str) -> dict[str, Any]:
    return elsewhere.answer(["_count_kernels", name, way], LONGEST_WAY_S, way)
