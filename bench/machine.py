"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("tensorflow", "tensorflow_cpu", "numpy", "tf_stitch")
_THAT_MATTER = ("TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS", "XLA_FLAGS", "OMP_NUM_THREADS")


def versions() -> dict[str, str]:
    installed = {d.name.replace("-", "_"): d.version for d in metadata.distributions()}
    if "tensorflow_cpu" in installed:  # the same thing under another name
        installed.setdefault("tensorflow", installed["tensorflow_cpu"])
    return {"python": platform.python_version()} | {p: installed[p] for p in _PACKAGES if p in installed}


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    widest = next((isa for isa in ("avx512f", "avx2", "asimd") if isa in named.get("flags", "").split()), "")
    return " ".join(filter(None, (named.get("model name", platform.processor()), widest)))


def description() -> dict[str, object]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "versions": versions(),
        "environment": {name: os.environ[name] for name in _THAT_MATTER if name in os.environ},
    }
