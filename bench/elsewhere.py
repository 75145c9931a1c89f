"""A question answered by a process of its own: a compiler that crashes takes only itself along."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHATTER = ("WARNING: All log messages", "I0000 ", "W0000 ")  # of TensorFlow, at its start


def answer(question: Sequence[str], limit_s: float, who: str, **environment: str) -> dict[str, Any]:
    """The JSON that `python -m bench QUESTION… FILE` writes into the file; else {"absent": why}.

    who: was not ready, where it takes longer than `limit_s` seconds.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **environment}
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "answer.json"
        command = [sys.executable, "-m", "bench", *question, str(out)]
        try:
            run = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            return {"absent": f"{who} was not ready after {limit_s} s"}
        if out.exists():
            return json.loads(out.read_text(encoding="utf-8"))
        return {"absent": last_words(run.returncode, run.stderr)}


def last_words(returncode: int, said: str) -> str:
    """Why a process ended that wrote `said`: its last line, or what it was killed by."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(CHATTER)]
    if returncode < 0:
        fatal = next((line.partition("] ")[2] for line in lines if line.startswith("F0")), "")
        return f"ended by {signal.Signals(-returncode).name}{': ' if fatal else ''}{fatal}"
    return lines[-1][:300] if lines else f"ended with {returncode}"
