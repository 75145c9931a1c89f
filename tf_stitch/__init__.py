"""tf_stitch makes TensorFlow models faster: clusters of memory-intensive ops become one generated kernel
each.

    @tf_stitch.function                                      like tf.function, and stitched
    with tf_stitch.stitching(): ...                          every tf.function that is called inside
    tf_stitch.enable()                                       every tf.function of the process
    tf_stitch.convert_saved_model("model", "stitched")       a SavedModel, kernels inside

Importing the package imports nothing else: TensorFlow comes with the first name that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tf_stitch.api import (
        convert_saved_model,
        disable,
        enable,
        explain,
        function,
        load_op_library,
        reset_stats,
        stats,
        stitching,
    )
    from tf_stitch.config import Config
    from tf_stitch.errors import StitchError

__all__ = [
    "Config",
    "StitchError",
    "__version__",
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

_HOMES = {"Config": "tf_stitch.config", "StitchError": "tf_stitch.errors"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tf_stitch' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES.get(name, "tf_stitch.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
