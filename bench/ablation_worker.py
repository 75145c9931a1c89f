"""The process that runs one model in all steps of the ablation, and under TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import click
import numpy as np

from bench.ablation_steps import ABLATIONS
from bench.kernel_rule import Kind, Launch, kernels
from bench.timing import Effort
from bench.workloads.models import ALL

if TYPE_CHECKING:
    from tf_stitch.pipeline import Stitched

Function = Callable[..., Any]
EFFORT = Effort(budget_s=15, slice_s=0.05, fewest_rounds=7, most_rounds=40)


@click.command(name="_ablation", hidden=True)
@click.argument("name")
@click.argument("threads", type=int)
@click.argument("out", type=click.Path(path_type=Path))
def ablate(name: str, threads: int, out: Path) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.get_logger().setLevel("ERROR")
    model = ALL[name]
    loaded = tf.saved_model.load(str(model.path()))

    def step(**inputs: Any) -> Any:
        return loaded.signatures[model.signature](**inputs)

    inputs = {key: tf.constant(value) for key, value in model.inputs().items()}
    out.write_text(json.dumps(compared(step, inputs, threads, model.tolerance)), encoding="utf-8")


def compared(
    step: Function, inputs: dict[str, Any], threads: int, tolerance: float, effort: Effort = EFFORT
) -> dict[str, Any]:
    """`ways` and `disagree` of a row. `tolerance`: how far outputs may be off, relative to the largest value."""
    import tensorflow as tf

    import tf_stitch
    from bench import kernel_graph, timing

    functions: dict[str, Function] = {"tf": tf.function(step, autograph=False)}
    ways: dict[str, dict[str, Any]] = {"tf": _counted(kernel_graph.launches(lambda: functions["tf"](**inputs)))}
    for ablated in ABLATIONS:
        config = tf_stitch.Config().without(ablated.off)
        functions[ablated.name] = function = tf_stitch.function(step, autograph=False, config=config)
        with _recorded() as stitched:
            launches = kernel_graph.launches(lambda f=function: f(**inputs))
        ways[ablated.name] = _counted(launches) | _bytes(launches, stitched)
    right = _arrays(functions["tf"](**inputs))
    disagree = [name for name, f in functions.items() if not _agree(_arrays(f(**inputs)), right, tolerance)]
    samples = timing.interleaved({n: lambda f=f: f(**inputs) for n, f in functions.items()}, effort)
    for name, taken in samples.items():
        spread = timing.Spread.of(taken.cpu if threads == 1 else taken.wall, [0.0], 1)
        ways[name] |= {"ms": spread.median, "q1": spread.q1, "q3": spread.q3, "best": spread.best}
    if fallbacks := tf_stitch.stats()["fallbacks"]:
        return {"absent": f"kernels fell back to TensorFlow's ops: {fallbacks}"}
    return {"ways": ways, "disagree": disagree}


@contextmanager
def _recorded() -> Iterator[list[Stitched]]:
    """What is stitched inside."""
    from tf_stitch.frontend.engine import Engine

    made: list[Stitched] = []
    stitch = Engine.stitch

    def recorded(*args: Any, **kwargs: Any) -> Any:
        found = stitch(*args, **kwargs)
        made.extend(found)
        return found

    with mock.patch.object(Engine, "stitch", recorded):
        yield made


def _counted(launches: Sequence[Launch]) -> dict[str, Any]:
    stitch_ops = kernels(launch for launch in launches if launch.op == "StitchOp")
    return {"kernels": kernels(launches), "stitch_ops": stitch_ops, "bytes": None, "unsized": None}


def _bytes(launches: Sequence[Launch], stitched: Sequence[Stitched]) -> dict[str, Any]:
    """bytes: what memory-intensive kernels read and write in a step; of a StitchOp, what each of its loop nests does.

    unsized: launches that are not in it, since nobody knows their sizes before they run.
    """
    moved = _moved_by_node(stitched)
    known = {(launch.name, launch.op): moved.get(launch.name) for launch in launches if launch.kind is Kind.MEMORY}
    memory = [(launch.times, known[launch.name, launch.op]) for launch in launches if launch.kind is Kind.MEMORY]
    return {
        "bytes": sum(times * count for times, count in memory if count is not None),
        "unsized": sum(times for times, count in memory if count is None),
    }


def _moved_by_node(stitched: Sequence[Stitched]) -> dict[str, int]:
    """Node → bytes, of StitchOps and of what was left; a size that is not known leaves a node out."""
    from tf_stitch.ir.types import DType
    from tf_stitch.plan import cost
    from tf_stitch.report.sizes import known_sizes

    moved: dict[str, int] = {}
    for made in stitched:
        for cluster in made.clusters:
            sizes = known_sizes(made.graph, cluster.kernel, cluster.cluster.inputs)
            nests = [cost.moved_by(cluster.plan, group).given(sizes) for group in cluster.plan.groups]
            if all(not term.symbols for nest in nests for term in nest.terms):
                moved[f"stitch/{cluster.cluster.name}"] = sum(nest.at() for nest in nests)
        for rejection in made.rejections:
            node = made.graph.nodes[rejection.node]
            types = [made.graph.type_of(value) for value in dict.fromkeys(node.inputs)] + list(node.types)
            if all(t.shape is not None and t.size.is_static and t.dtype is not DType.OTHER for t in types):
                moved[node.name] = sum(t.size.coefficient * t.dtype.size for t in types)
    return moved


def _arrays(outputs: Any) -> list[np.ndarray]:
    import tensorflow as tf

    return [output.numpy() for output in tf.nest.flatten(outputs)]


def _agree(outputs: Sequence[np.ndarray], right: Sequence[np.ndarray], tolerance: float) -> bool:
    """Whether each is `right` but for `tolerance`, relative to its largest value; what is no float, to the letter."""
    return all(
        np.allclose(got, want, rtol=0, atol=tolerance * _largest(want), equal_nan=True)
        if np.issubdtype(want.dtype, np.floating)
        else np.array_equal(got, want)
        for got, want in zip(outputs, right, strict=True)
    )


def _largest(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max(initial=0.0))
