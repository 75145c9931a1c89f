"""`python -m bench compile`: what first calls cost, of one shape and of fifty.

Two subjects. A cluster is traced anew for each shape, as a tf.function of tensors is. A model whose batch is unknown is
traced once, and called at each batch size. Each way has a process of its own, with no kernel in the cache. CPU
seconds are those of first calls, less those of second calls at the same shapes: of tracing, optimizing and compiling,
that is, and of the compilers that run as processes.
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
        results.write(json_path, rows, machine.description(), command="compile")
    Console().print(render(rows))
    if any(set(row["refused"]) - {"xla"} for row in rows):
        sys.exit(FAILED)


def measured(
    subjects: dict[str, str],
    counts: Sequence[int],
    threads: int,
    limit_s: float,
    run: Callable[..., Result | Failure] = models_process.run,
) -> Iterator[Row]:
    """A row for each subject ("cluster" or "model") and number of shapes.

    first_calls_s: way → seconds of the first calls. compile_cpu_s: way → CPU seconds of them, less those of second
    calls. kernels: that tf_stitch compiled. refused: way → why it has no figures.
    """
    for kind, name in subjects.items():
        missing = _missing(name) if kind == "model" else None
        found: dict[str, Result | Failure] = {}
        for way in WAYS:
            with tempfile.TemporaryDirectory() as cache:
                asked = {"kind": kind, "name": name, "way": way, "counts": sorted(counts), "threads": threads}
                found[way] = Failure(missing) if missing else run("compile", asked, Path(cache), limit_s)
        by_way = {way: result["by_count"] for way, result in found.items() if not isinstance(result, Failure)}
        for count in sorted(counts):
            costs = {way: by_count[str(count)] for way, by_count in by_way.items()}
            yield {
                "name": name,
                "kind": kind,
                "shapes": count,
                "threads": threads,
                "first_calls_s": {way: cost["first_calls_s"] for way, cost in costs.items()},
                "compile_cpu_s": {way: cost["compile_cpu_s"] for way, cost in costs.items()},
                "kernels": costs["stitch"]["kernels"] if "stitch" in costs else None,
                "refused": {way: result.reason for way, result in found.items() if isinstance(result, Failure)},
            }


def _missing(name: str) -> str | None:
    try:
        ALL[name].path()
    except (FetchError, BuildError) as error:
        return str(error).strip().splitlines()[-1]
    return None


def render(rows: Sequence[Row]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in ("subject", "shapes", "by"):
        table.add_column(title, no_wrap=True, justify="right" if title == "shapes" else "left")
    for title in ("first calls s", "compile CPU s", "kernels"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        for way in WAYS:
            subject = (f"{row['kind']} {row['name']}", str(row["shapes"])) if way == WAYS[0] else ("", "")
            seconds = (_seconds(row[cost].get(way)) for cost in ("first_calls_s", "compile_cpu_s"))
            kernels = str(row["kernels"]) if way == "stitch" and row["kernels"] is not None else ""
            table.add_row(*subject, way, *seconds, kernels)
    reasons = dict.fromkeys(f"{r['name']}, {way}: {why}" for r in rows for way, why in r["refused"].items())
    lines = [Text(reason, style="yellow") for reason in reasons]
    return Group(table, *lines, Text("CPU s: of first calls, compilers included, less that of second calls"))


def log_line(row: Row) -> str:
    seconds = ", ".join(f"{way} {_seconds(row['compile_cpu_s'].get(way))}" for way in WAYS)
    return f"{row['name']}, {row['shapes']} shape{'s' if row['shapes'] > 1 else ''}: {seconds} CPU s"


def _seconds(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


# ---- in the process that measures ---------------------------------------------------------------------------


def costs(kind: str, name: str, way: str, counts: Sequence[int], **_: Any) -> Result:
    """by_count: number of shapes → first_calls_s, compile_cpu_s, and for tf_stitch the kernels that were compiled."""
    calls = {"cluster": _cluster_calls, "model": _model_calls}[kind](name, way, max(counts))
    by_count: dict[str, Row] = {}
    first_calls_s = compile_cpu_s = 0.0
    for number, call in enumerate(calls, 1):
        (wall_s, first_cpu_s), (_wall_s, second_cpu_s) = _timed(call), _timed(call)
        first_calls_s += wall_s
        compile_cpu_s += max(0.0, first_cpu_s - second_cpu_s)
        if number in counts:
            by_count[str(number)] = {
                "first_calls_s": first_calls_s,
                "compile_cpu_s": compile_cpu_s,
                "kernels": _kernels() if way == "stitch" else None,
            }
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
    from bench.workloads.clusters import ON_CPUS

    workload = next((w for w in ON_CPUS if w.name == name), None)
    if workload is None:
        raise LookupError(f"no workload {name}; there are: {', '.join(w.name for w in ON_CPUS)}")
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
