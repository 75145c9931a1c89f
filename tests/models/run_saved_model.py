"""Run a SavedModel in a process that has loaded nothing else.

    python run_saved_model.py DIRECTORY INPUTS.npz HOW…

HOW is `tensorflow`, `float64` or `stitched` (tf_stitch is loaded, and its counters are printed as JSON).
INPUTS.npz holds the arrays of several calls, named "call/input"; HOW.npz beside it gets "call/output".
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def main(directory: str, inputs: str, *ways: str) -> None:
    for how in ways:
        run = {"tensorflow": _tensorflow, "stitched": _stitched, "float64": _float64}[how](directory)
        results: Arrays = {}
        for call, arrays in _calls(inputs).items():
            for name, value in run(arrays).items():
                results[f"{call}/{name}"] = value.astype("S") if value.dtype == object else value
        np.savez(Path(inputs).with_name(how), **results)  # pyright: ignore[reportArgumentType]
    if "stitched" in ways:
        import tf_stitch

        print(json.dumps(tf_stitch.stats()))


def _calls(path: str) -> Mapping[str, Arrays]:
    calls: dict[str, Arrays] = defaultdict(dict)
    with np.load(path) as arrays:
        for key, value in arrays.items():
            call, _, name = key.partition("/")
            calls[call][name] = value
    return calls


def _tensorflow(directory: str) -> Callable[[Arrays], Arrays]:
    import tensorflow as tf

    loaded = tf.saved_model.load(directory)
    signature = loaded.signatures["serving_default"]

    def run(arrays: Arrays, loaded: Any = loaded) -> Arrays:  # holds `loaded`, which owns the variables
        results = signature(**{name: tf.constant(value) for name, value in arrays.items()})
        return {name: tensor.numpy() for name, tensor in results.items()}

    return run


def _stitched(directory: str) -> Callable[[Arrays], Arrays]:
    import tf_stitch

    tf_stitch.load_op_library()
    return _tensorflow(directory)


def _float64(directory: str) -> Callable[[Arrays], Arrays]:
    from bench import float64

    return float64.from_saved_model(directory)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main(*sys.argv[1:])
