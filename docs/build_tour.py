"""Writes the dumps that docs/tour.md shows into it: `python -m docs.build_tour`, with `--check` only compares.

A block stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; what is around the blocks is written by hand.
The target is a fixed one, so that every machine writes the same.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from tf_stitch import pipeline
from tf_stitch.config import Config
from tf_stitch.debug.graph_text import print_clustering, print_graph, print_rewritten
from tf_stitch.frontend.explainable import of_function
from tf_stitch.ir.printer import print_body
from tf_stitch.lower.printer import print_kernel, print_schedules
from tf_stitch.plan.printer import print_plan
from tf_stitch.plan.target import Target
from tf_stitch.report import explain
from tf_stitch.report.explain import NoToolchain

TOUR = Path(__file__).with_name("tour.md")
_CPU = "x86-64-v3"
_BLOCK = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->\n)", re.DOTALL)


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-6) * gamma + beta


SIGNATURE = (
    tf.TensorSpec([None, 768], tf.float32),
    tf.TensorSpec([768], tf.float32),
    tf.TensorSpec([768], tf.float32),
)


def blocks() -> dict[str, str]:
    """The dumps by name, each in its fence."""
    (graph,) = of_function(layer_norm, SIGNATURE, {}).graphs
    seen: dict[str, Any] = {}
    target = Target.baseline(_CPU)
    toolchain = NoToolchain(target.requires)
    (stitched,) = pipeline.stitch_all([graph], Config(), target, toolchain, observer=seen.__setitem__)
    (made,) = stitched.clusters
    kernel, schedules = seen["kernel"]
    explanation = explain.explain(layer_norm, *SIGNATURE, config=Config(cpu_baseline=_CPU))
    found = {
        "graph": print_graph(graph),
        "clusters": print_clustering(graph, seen["clustering"]),
        "body": print_body(made.cluster.body),
        "plan": print_plan(made.plan),
        "kernel": f"{print_kernel(kernel)}\n{print_schedules(schedules)}",
        "rewritten": re.sub(r"key=\w+", "key=…", print_rewritten(stitched)),
        "explained": str(explanation),
    }
    fenced = {name: f"```\n{text.rstrip()}\n```\n" for name, text in found.items()}
    return fenced | {"source": f"```cpp\n{made.source.text.rstrip()}\n```\n"}


def current(text: str) -> str:
    """`text` with its blocks as they should be.

    Raises:
      KeyError: for a block of a name that there is not.
    """
    made = blocks()
    return _BLOCK.sub(lambda match: match[1] + made[match[2]] + match[3], text)


def main() -> None:
    written = TOUR.read_text(encoding="utf-8")
    wanted = current(written)
    if written == wanted:
        return
    if "--check" in sys.argv:
        sys.stdout.writelines(
            difflib.unified_diff(written.splitlines(True), wanted.splitlines(True), "docs/tour.md", "as it should be")
        )
        sys.exit("docs/tour.md is out of date; run `python -m docs.build_tour`.")
    TOUR.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
