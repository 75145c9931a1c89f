"""One runtime in a process of its own, in the environment of `make venv-peers`. TensorFlow is used to convert alone.

python -m bench.peers_worker onnx|ort|torch THREADS
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import metadata
from pathlib import Path

from bench.peers_protocol import Answer, Calls, serve, timed

PACKAGES = {"onnx": ("tf2onnx", "onnx"), "ort": ("onnxruntime",), "torch": ("torch",)}


def main(runtime: str, threads: int) -> None:
    calls: Calls = {}

    def prepare(directory: str, onnx: str) -> Answer:
        calls.clear()  # what they hold is not needed any more
        if runtime == "ort":
            from bench import peers_ort

            made = peers_ort.prepared(Path(directory), Path(onnx), threads)
        else:
            from bench import peers_torch

            peers_torch.use(threads)
            made = peers_torch.prepared(Path(directory))
        calls.update(made)
        return {"calls": list(calls)}

    def convert(directory: str, to: str) -> Answer:
        from bench import peers_onnx

        return peers_onnx.convert(directory, to)

    def versions() -> Answer:
        return {package: metadata.version(package) for package in PACKAGES[runtime]}

    serve({"prepare": prepare, "convert": convert, "slice": partial(timed, calls), "versions": versions})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
