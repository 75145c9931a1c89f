"""Compiles CUDA C++ with PyCUDA's compiler, which runs nvcc; in a process of its own, as `nvrtc` does.

    python pycuda_nvcc.py NVCC                                    says what is there, as JSON
    python pycuda_nvcc.py NVCC CODE SOURCE OUTPUT [OPTION ...]    compiles; what nvcc has to say goes to stderr

CODE is "sm_80" for a cubin, "compute_80" for PTX. PyCUDA imports with the driver's library (libcuda.so.1) alone. It is
told of no context, so no GPU is needed; and to keep no files: we have a cache of our own.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any


def _describe(nvcc: str) -> dict[str, Any]:
    pycuda: Any = importlib.import_module("pycuda")
    importlib.import_module("pycuda.driver")  # what compiling fails without

    def asked(question: str) -> list[str]:
        return subprocess.run([nvcc, question], check=True, capture_output=True, text=True).stdout.split("\n")

    release = next(line for line in asked("--version") if "release" in line).split("release")[1]
    version = f"PyCUDA {pycuda.VERSION_TEXT}, nvcc{release}"
    return {"version": version, "archs": [line for line in asked("--list-gpu-code") if line.startswith("sm_")]}


def _compile(nvcc: str, code: str, source: str, options: list[str]) -> bytes:
    compiler: Any = importlib.import_module("pycuda.compiler")
    target = "cubin" if code.startswith("sm_") else "ptx"
    return compiler.compile(
        source, nvcc=nvcc, options=options, no_extern_c=True, arch=code, cache_dir=False, target=target
    )


def _main(nvcc: str, *arguments: str) -> int:
    warnings.simplefilter("always")  # what nvcc warns of arrives as one
    try:
        if not arguments:
            print(json.dumps(_describe(nvcc)))
            return 0
        code, source, output, *options = arguments
        Path(output).write_bytes(_compile(nvcc, code, Path(source).read_text(encoding="utf-8"), options))
    except Exception as error:  # noqa: BLE001 - PyCUDA's own, and whatever else says why there is no kernel
        print(getattr(error, "stderr", None) or f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
