"""One conversion of a real model, run before and after in fresh processes: what the tests look at."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models import Model

REPOSITORY = Path(__file__).resolve().parents[2]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Conversion:
    """What came of converting one model: its outputs are keyed "size/output"."""

    model: Model
    stitched: Path
    before: str  # digests of the original directory
    after: str
    report: dict[str, Any] = field(repr=False)
    tensorflow_outputs: Arrays = field(repr=False)
    stitched_outputs: Arrays = field(repr=False)
    float64_outputs: Arrays = field(repr=False)
    stats: dict[str, Any]


def converted(model: Model, original: Path, directory: Path) -> Conversion:
    """The model converted by the public function, and everything run at all its sizes."""
    import tf_stitch

    inputs = directory / "inputs.npz"
    calls = {"x".join(map(str, size)): model.inputs(seed=1, size=size) for size in model.sizes}
    arrays = {f"{call}/{name}": value for call, given in calls.items() for name, value in given.items()}
    np.savez(inputs, **arrays)  # pyright: ignore[reportArgumentType]

    before = digest(original)
    report = tf_stitch.convert_saved_model(original, directory / "stitched")
    stats = run(directory / "stitched", inputs, "stitched")
    run(original, inputs, "tensorflow", "float64")
    return Conversion(
        model=model,
        stitched=directory / "stitched",
        before=before,
        after=digest(original),
        report=report.to_json(),
        tensorflow_outputs=dict(np.load(directory / "tensorflow.npz")),
        stitched_outputs=dict(np.load(directory / "stitched.npz")),
        float64_outputs=dict(np.load(directory / "float64.npz")),
        stats=json.loads(stats),
    )


def run(directory: Path, inputs: Path, *ways: str) -> str:
    """Runs a SavedModel in a process of its own, which writes the outputs; the last line it printed."""
    script = Path(__file__).with_name("run_saved_model.py")
    command = [sys.executable, str(script), str(directory), str(inputs), *ways]
    done = subprocess.run(command, env=environment(), text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{ways} of {directory}:\n{done.stderr[-3000:]}"
    return (done.stdout.splitlines() or [""])[-1]


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "TF_STITCH_STRICT": "1"}


def digest(directory: Path) -> str:
    """Of all names and bytes under the directory."""
    sum_ = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        sum_.update(str(path.relative_to(directory)).encode() + b"\0")
        if path.is_file():
            sum_.update(path.read_bytes())
    return sum_.hexdigest()
