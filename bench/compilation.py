"""`python -m bench compile`: what first calls cost, of one shape and of fifty.

Two subjects. A cluster is traced anew for each shape, as a tf.function of tensors is. A model whose batch is unknown is
traced once, and called at each batch size. Each way has a process of its own, with no kernel in the cache. Seconds are
those of first calls, less those of second calls at the same shapes: of tracing, optimizing and compiling, that is. CPU
seconds are with the compilers that run as processes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench import clusters, machine, models_process, results
from bench.models_process import Failure, Result
from bench.results import Row
from bench.workloads.models import ALL, BuildError, FetchError

WAYS = ("tf", "xla", "stitch")
OUTPUT = click.Path(dir_okay=False, path_type=Path)
FAILED = 1  # exit code


@click.command("compile")
@click.option("--cluster", default="residual_layernorm", show_default=True, help="A workload of `bench clusters`.")
@click.option("--model", default="mtcnn-pnet", show_default=True, type=click.Choice(list(ALL)))
@click.option("--shapes", default="1,50", show_default=True, help="Numbers of shapes, with commas between.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--limit", type=click.FloatRange(1), default=300, show_default=True, help="Seconds for one way.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
def compilation(cluster: str, model: str, shapes: str, threads: int, limit: float, json_path: Path | None) -> None:
    """First calls of TensorFlow, XLA and tf_stitch, with one shape and with many."""
    counts = clusters.thread_counts(shapes)
    log = Console(stderr=True, highlight=False)
    rows: list[Row] = []
    for row in measured({"cluster": cluster, "model": model}, counts, threads, limit):
        rows.append(row)
        log.print(log_line(row), markup=False, soft_wrap=True)
    if json_path is not None:
        results.write(json_path, rows, {"command": "compile", **machine.description()})
    Console().print(render(rows))
    if any(row["absent"] and row["way"] != "xla" for row in rows):
        sys.exit(FAILED)


def measured(
    subjects: dict[str, str],
    counts: Sequence[int],
    threads: int,
    limit_s: float,
    run: Callable[..., Result | Failure] = models_process.run,
) -> Iterator[Row]:
    """A row for each kind of subject ("cluster" or "model"), way and number of shapes."""
    for kind, name in subjects.items():
        missing = _missing(name) if kind == "model" else None
        for way in WAYS:
            with tempfile.TemporaryDirectory() as cache:
                asked = {"kind": kind, "name": name, "way": way, "counts": sorted(counts), "threads": threads}
                found = Failure(missing) if missing else run("compile", asked, Path(cache), limit_s)
            for count in sorted(counts):
                costs = {} if isinstance(found, Failure) else found["by_count"][str(count)]
                reason = found.reason if isinstance(found, Failure) else None
                yield {
                    "subject": name,
                    "kind": kind,
                    "way": way,
                    "shapes": count,
                    "threads": threads,
                    "wall_s": costs.get("wall_s"),
                    "cpu_s": costs.get("cpu_s"),
                    "kernels": costs.get("kernels"),
                    "absent": reason,
                }


def _missing(name: str) -> str | None:
    try:
        ALL[name].path()
    except (FetchError, BuildError) as error:
        return str(error).strip().splitlines()[-1]
    return None


def render(rows: Sequence[Row]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in ("", "subject", "way"):
        table.add_column(title, no_wrap=True)
    for title in ("shapes", "first calls s", "CPU s", "kernels"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["kind"],
            row["subject"],
            row["way"],
            str(row["shapes"]),
            _seconds(row["wall_s"]),
            _seconds(row["cpu_s"]),
            "" if row["kernels"] is None else str(row["kernels"]),
        )
    reasons = dict.fromkeys(f"{r['subject']}, {r['way']}: {r['absent']}" for r in rows if r["absent"])
    lines = [Text(reason, style="yellow") for reason in reasons]
    return Group(table, *lines, Text("seconds of first calls, less those of second ones; kernels: that were compiled"))


def log_line(row: Row) -> str:
    cost = row["absent"] or f"{_seconds(row['wall_s'])} s, {_seconds(row['cpu_s'])} CPU s"
    return f"{row['subject']}, {row['way']}, {row['shapes']} shape{'s' if row['shapes'] > 1 else ''}: {cost}"


def _seconds(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


# ---- in the process that measures ---------------------------------------------------------------------------


def costs(kind: str, name: str, way: str, counts: Sequence[int], **_: Any) -> Result:
    """by_count: number of shapes → wall_s, cpu_s, and for tf_stitch the kernels that were compiled."""
    calls = {"cluster": _cluster_calls, "model": _model_calls}[kind](name, way, max(counts))
    by_count: dict[str, Row] = {}
    wall = cpu = 0.0
    for number, call in enumerate(calls, 1):
        first, second = _timed(call), _timed(call)
        wall, cpu = wall + max(0.0, first[0] - second[0]), cpu + max(0.0, first[1] - second[1])
        if number in counts:
            by_count[str(number)] = {"wall_s": wall, "cpu_s": cpu, "kernels": _kernels() if way == "stitch" else None}
    return {"by_count": by_count}


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    import time

    from bench import timing

    start = time.perf_counter()
    cpu_s = timing.cpu_seconds_of(call)
    return time.perf_counter() - start, cpu_s


def _kernels() -> int:
    import tf_stitch

    return len(tf_stitch.stats()["by_kernel"])


def _cluster_calls(name: str, way: str, count: int) -> Iterator[Callable[[], object]]:
    """The workload at `count` numbers of rows, up to those of its own shape or a little more."""
    import tensorflow as tf

    from bench import models_ways
    from bench.workloads import chain
    from bench.workloads.clusters import WORKLOADS

    workload = next((w for w in WORKLOADS if w.name == name), None)
    if workload is None:
        raise LookupError(f"no workload {name}; there are: {', '.join(w.name for w in WORKLOADS)}")
    function = models_ways.COMPILED[way](chain.unrolled(workload, 1))
    first, *rest = workload.quick[0]
    for number in range(1, count + 1):
        shape = (number * max(1, first // count), *rest)
        arguments = [tf.constant(array) for array in workload.arrays(shape, 1)]
        yield lambda arguments=arguments: function(*arguments)


def _model_calls(name: str, way: str, count: int) -> Iterator[Callable[[], object]]:
    """The model at batch sizes from 1; its function is traced for an unknown batch."""
    import tensorflow as tf

    from bench import models_ways

    model = ALL[name]
    loaded: Any = tf.saved_model.load(str(model.path()))
    signature = loaded.signatures[model.signature]
    types = signature.structured_input_signature[1]
    if any(spec.shape.rank is None or (spec.shape.rank and spec.shape[0] is not None) for spec in types.values()):
        raise ValueError(f"the batch of {name} is known, so it has one shape only; name another model")

    def step(**inputs: Any) -> Any:
        return signature(**inputs)

    function = models_ways.COMPILED[way](step)
    concrete: Any = None
    for number in range(1, count + 1):
        arrays = model.inputs(size=(number, *model.sizes[0][1:]))
        inputs = {key: tf.constant(array) for key, array in arrays.items()}

        def call(inputs: dict[str, Any] = inputs) -> object:
            nonlocal concrete
            if concrete is None:
                concrete = function.get_concrete_function(**types)
            return concrete(**inputs)

        yield call
