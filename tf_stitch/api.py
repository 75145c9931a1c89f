"""The public functions, behind which TensorFlow is imported. `import tf_stitch` does not load this module."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tf_stitch.runtime import stitch_op  # first: it says what is wrong with an installation

from tf_stitch.frontend import grappler  # isort: skip
from tf_stitch.frontend.function import disable, enable, function, stitching
from tf_stitch.frontend.saved_model import convert_saved_model

if TYPE_CHECKING:
    from tf_stitch.config import Config

__all__ = [
    "convert_saved_model",
    "disable",
    "enable",
    "explain",
    "function",
    "load_op_library",
    "reset_stats",
    "stats",
    "stitching",
]


def load_op_library() -> None:
    """Registers StitchOp, so that a converted SavedModel loads. Any other name of this module does so too."""


def stats() -> dict[str, Any]:
    """What tf_stitch did in this process since the last `reset_stats`.

    compiles: how often the compiler ran for a function; compile_seconds: how long it took, in CPU seconds.
    kernels: clusters of functions that got a kernel. calls: of StitchOps, those of converted models and of races
      included.
    fallbacks: of these calls, the ones that ran the unstitched ops, by reason.
    graphs: that Grappler handed over; stitched, memoised, failed: of these.
    rejections: nodes of these graphs that were not stitched, by reason code.
    by_kernel: calls and fallbacks for each kernel's key.
    """
    counts = grappler.install().counts()
    counters = stitch_op.counters()
    return {
        "compiles": counts.compiled,
        "compile_seconds": counts.compile_seconds,
        "kernels": counts.kernels,
        "calls": counters["total"]["calls"],
        "fallbacks": {reason: n for reason, n in counters["total"]["fallbacks"].items() if n},
        "graphs": counts.graphs,
        "stitched": counts.stitched,
        "memoised": counts.memoised,
        "failed": counts.failed,
        "rejections": counts.rejections,
        "by_kernel": counters["keys"],
    }


def reset_stats() -> None:
    """Sets what `stats` counts to 0."""
    grappler.install().reset()
    stitch_op.reset_counters()


def explain(target: str | os.PathLike[str] | Any, *args: Any, config: Config | None = None, **kwargs: Any) -> Any:
    """Why each op was stitched, or not: of a SavedModel's directory, or of a function called with `args`."""
    from tf_stitch.report import explain as report

    return report.explain(target, *args, config=config, **kwargs)
