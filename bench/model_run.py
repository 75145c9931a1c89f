"""A SavedModel's signature under TensorFlow and XLA, and a stitched copy of it, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bench import baselines, timing, trace
from bench.harness import relative_error
from bench.timing import Effort, Spread

Row = dict[str, Any]

# Two runs agree when no output differs by more than this, relative to its largest value.
TOLERANCE = 1e-5
EFFORT = Effort(budget_s=10, slice_s=0.05, fewest_rounds=7, most_rounds=40)


@dataclass(frozen=True)
class Variant:
    """One way to run the model, for a single input tensor."""

    name: str
    call: Callable[[tf.Tensor], dict[str, tf.Tensor]]


def variants(original: Path, stitched: Path) -> tuple[Variant, ...]:
    """Each is a tf.function around the signature, so that all cost the same to call."""
    return (
        Variant("tf", tf.function(_signature(original), autograph=False)),
        Variant("xla", tf.function(_signature(original), autograph=False, jit_compile=True)),
        Variant("stitch", tf.function(_signature(stitched), autograph=False)),
    )


def measure(name: str, runs: tuple[Variant, ...], x: np.ndarray, effort: Effort = EFFORT) -> Row:
    """A row for one input. Differences are to the original under TensorFlow."""
    tensor = tf.constant(x)
    outputs = {run.name: _arrays(run.call(tensor)) for run in runs}
    differences = {n: relative_error(o, outputs["tf"]) for n, o in outputs.items()}
    by_name = {run.name: run for run in runs}
    ops = {n: trace.executed_ops(lambda n=n: by_name[n].call(tensor)) for n in ("tf", "stitch")}
    samples = timing.interleaved({r.name: lambda r=r: r.call(tensor) for r in runs}, effort)
    spreads = {n: Spread.of(s.wall, [0.0], 1) for n, s in samples.items()}
    return {
        "workload": name,
        "shape": "x".join(map(str, x.shape)),
        "threads": None,  # as many as TensorFlow likes
        **{f"{n}_ms": spreads[n].median for n in spreads},
        "tf_over_stitch": spreads["tf"].median / spreads["stitch"].median,
        "xla_over_stitch": spreads["xla"].median / spreads["stitch"].median,
        "tf_ops": _total(ops["tf"]),
        "stitch_ops": _total(ops["stitch"]),
        "stitch_kernels": ops["stitch"]["StitchOp"] if ops["stitch"] is not None else None,
        "xla_kernels": baselines.xla_kernels(by_name["xla"].call, (tensor,)),
        "max_difference": differences["stitch"],
        "xla_max_difference": differences["xla"],
        "quartiles_ms": {n: [s.q1, s.q3] for n, s in spreads.items()},
        "disagree": [n for n, d in differences.items() if d > TOLERANCE and n == "stitch"],
    }


def _signature(path: Path) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    model = tf.saved_model.load(str(path))
    (argument,) = model.signatures["serving_default"].structured_input_signature[1]
    # By way of the model: its variables live only as long as it does.
    return lambda x: model.signatures["serving_default"](**{argument: x})


def _arrays(outputs: dict[str, tf.Tensor]) -> tuple[np.ndarray, ...]:
    return tuple(outputs[key].numpy().astype(np.float64) for key in sorted(outputs))


def _total(ops: Any) -> int | None:
    return sum(ops.values()) if ops is not None else None
