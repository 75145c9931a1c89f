"""A task in a process of its own: TensorFlow makes its pools once, and what crashes takes only itself along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.elsewhere import ROOT, last_words

Result = dict[str, Any]
COMMAND = (sys.executable, "-m", "bench", "_measure")
AUTO_CLUSTERING = "--tf_xla_cpu_global_jit"


@dataclass(frozen=True)
class Failure:
    """A process that gave no result, and why, in a sentence."""

    reason: str


def run(task: str, asked: dict[str, Any], cache: Path, timeout_s: float) -> Result | Failure:
    """What the task gives: see `models_worker.TASKS`. asked: its arguments. cache: of kernels."""
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_STITCH_CACHE_DIR": str(cache),
    }
    if asked.get("auto"):
        environment["TF_XLA_FLAGS"] = " ".join(filter(None, (os.environ.get("TF_XLA_FLAGS"), AUTO_CLUSTERING)))
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as said:
        asked_at, result_at = Path(directory) / "asked.json", Path(directory) / "result.json"
        asked_at.write_text(json.dumps(asked))
        command = [*COMMAND, task, str(asked_at), str(result_at)]
        # The worker ends when its stdin is closed, which is when this process is gone.
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=said, stderr=said
        ) as process:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return Failure(f"not ready after {timeout_s:.0f} s")
        if process.returncode == 0 and result_at.exists():
            result = json.loads(result_at.read_text())
            return Failure(result["failed"]) if "failed" in result else result
        said.seek(0)
        return Failure(last_words(process.returncode, said.read()))
