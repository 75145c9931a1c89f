"""The process that counts the kernels of one model under TensorFlow, XLA or tf_stitch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import click

from bench.kernel_rule import Kind, Launch, kernels
from bench.workloads.models import ALL

# Of ops that are not in a graph that tf_stitch was given: they came later, or are in a function that is called.
NOT_SEEN = "NOT_SEEN"


@click.command(name="_count_kernels", hidden=True)
@click.argument("name")
@click.argument("way", type=click.Choice(["tf", "xla", "stitch"]))
@click.argument("out", type=click.Path(path_type=Path))
def count_kernels(name: str, way: str, out: Path) -> None:
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    model = ALL[name]
    loaded = tf.saved_model.load(str(model.path()))
    inputs = {key: tf.constant(value) for key, value in model.inputs().items()}

    def step(**inputs: Any) -> Any:
        return loaded.signatures[model.signature](**inputs)

    count = {"tf": _under_tensorflow, "xla": _under_xla, "stitch": _stitched}[way]
    out.write_text(json.dumps(count(step, inputs)))


def _under_tensorflow(step: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    from bench import kernel_graph

    function = tf.function(step, autograph=False)
    return _counts(kernel_graph.launches(lambda: function(**inputs)))


def _under_xla(step: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    from bench import kernel_hlo, kernel_trace

    function = tf.function(step, autograph=False, jit_compile=True)
    try:
        function(**inputs)
    except tf.errors.OpError as error:
        return {"absent": error.message.strip().splitlines()[0]}
    hlo = function.experimental_get_compiler_ir(**inputs)(stage="optimized_hlo")
    return _counts(kernel_hlo.launches(hlo, kernel_trace.executed_instructions(lambda: function(**inputs))))


def _stitched(step: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
    import tf_stitch
    from bench import kernel_graph

    function = tf_stitch.function(step, autograph=False)
    with _recorded_rejections() as reasons:
        launches = kernel_graph.launches(lambda: function(**inputs))
    if fallbacks := tf_stitch.stats()["fallbacks"]:
        return {"absent": f"kernels fell back to TensorFlow's ops: {fallbacks}"}
    return _counts(launches) | {"unstitched": _unstitched(launches, reasons)}


@contextmanager
def _recorded_rejections() -> Iterator[dict[str, str]]:
    """Node → reason code, of the graphs that are stitched inside. Explaining them once more would rename nodes."""
    from tf_stitch.frontend.engine import Engine

    reasons: dict[str, str] = {}
    stitch = Engine.stitch

    def recorded(*args: Any, **kwargs: Any) -> Any:
        results = stitch(*args, **kwargs)
        reasons.update((r.node, r.reason.name) for result in results for r in result.rejections)
        return results

    with mock.patch.object(Engine, "stitch", recorded):
        yield reasons


def _counts(launches: Iterable[Launch]) -> dict[str, Any]:
    """kernels: the count; by_op: what it is made of; others: launches that don't count, by kind."""
    launches = tuple(launches)
    by_op: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for launch in launches:
        if launch.kind is Kind.MEMORY:
            by_op[launch.op] += launch.times
        else:
            others[launch.kind.name] += launch.times
    return {"kernels": kernels(launches), "by_op": dict(by_op.most_common()), "others": dict(others)}


def _unstitched(launches: Iterable[Launch], reasons: dict[str, str]) -> list[dict[str, Any]]:
    """Kernels that were left to TensorFlow, by op and reason; the node that runs most often as the example."""
    groups: dict[tuple[str, str], list[Launch]] = {}
    for launch in launches:
        if launch.kind is Kind.MEMORY and launch.op != "StitchOp":
            groups.setdefault((launch.op, reasons.get(launch.name, NOT_SEEN)), []).append(launch)
    rows = [
        {
            "op": op,
            "reason": reason,
            "kernels": sum(launch.times for launch in group),
            "nodes": len(group),
            "example": max(group, key=lambda launch: launch.times).name,
        }
        for (op, reason), group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["kernels"], row["op"], row["reason"]))
