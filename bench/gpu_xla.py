"""What XLA launches on GPUs that are not there, and what that moves, read from what its compiler leaves behind.

    TensorFlow: StableHLO of a function  ->  xla_gpu_worker, in an environment with jax  ->  HLO and thunks  ->  counts

A thunk is what XLA's runtime executes; each that runs a kernel or copies counts by the rule of `kernel_rule`, as the
instruction of its name. Its bytes are the buffers of that instruction: operands, each once, and results. Products by
NVIDIA's libraries and fills of memory (memset thunks) are named in `others` and don't count. The compiler has no GPU to
time its choices on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import kernel_hlo
from bench.elsewhere import ROOT
from bench.kernel_rule import Kind, kernels

WORKER = Path(__file__).with_name("xla_gpu_worker.py")
LONGEST_S = 1800
ENVIRONMENT = "TF_STITCH_XLA_GPU"  # names another directory than the default
DEFAULT = ROOT / ".venv-xla-gpu"

# 001: kCustomKernel [source | next=002 (1)] fusion_16 grid: [2048, 1, 1] ...
_THUNK = re.compile(r"^\s*\d+: k(?P<kind>\w+)\s+\[[^\]]*\]\s+(?P<name>\S+)")
_PRODUCTS = re.compile("Cublas|Gemm|Cudnn|Convolution|Fft|Cholesky|TriangularSolve|CustomCall")
_FILLS = frozenset({"Memzero", "Memset32BitValue"})
_LOOPS = frozenset({"While", "Conditional"})


@dataclass(frozen=True)
class XlaCount:
    """by_op: what the kernels compute. others: thunks that don't count, by kind."""

    kernels: int
    bytes: int
    by_op: dict[str, int] = field(default_factory=dict[str, int])
    others: dict[str, int] = field(default_factory=dict[str, int])


class Uncounted(Exception):
    """XLA's figures cannot be had; the reason, for people."""


def python() -> Path:
    """The Python of the environment with jax.

    Raises:
      Uncounted: where there is none.
    """
    found = Path(os.environ.get(ENVIRONMENT, DEFAULT)) / "bin" / "python"
    if not found.exists():
        raise Uncounted(f"no jax for GPUs in {found.parents[1]}: make venv-xla-gpu")
    return found


def compiled(modules: Mapping[str, bytes], archs: Sequence[str], directory: Path) -> dict[str, str]:
    """Leaves HLO and thunks of all modules (serialized StableHLO, by name) in a directory; returns versions.

    Raises:
      Uncounted: where there is no environment for it, or it does not work.
    """
    for name, module in modules.items():
        (directory / f"{name}.stablehlo").write_bytes(module)
    command = [str(python()), str(WORKER), str(directory), ",".join(archs)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("PYTHONPATH", None)
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        raise Uncounted(f"XLA was not ready after {LONGEST_S} s") from None
    if run.returncode:
        said = [line for line in run.stderr.splitlines() if line.strip()]
        raise Uncounted(f"XLA's compiler ended with {run.returncode}: {said[-1] if said else 'it said nothing'}")
    return json.loads((directory / "versions.json").read_text())


def found_in(directory: Path, name: str, arch: str) -> XlaCount:
    """The count of one module for one GPU.

    Raises:
      Uncounted: where it was refused, or holds loops, whose turns nobody knows.
    """
    error = directory / f"{name}.{arch}.error"
    if error.exists():
        raise Uncounted(f"XLA refuses {name} for {arch}: {error.read_text().strip().splitlines()[0]}")
    hlo, thunks = ((directory / f"{name}.{arch}.{suffix}").read_text() for suffix in ("hlo", "thunks"))
    return count(hlo, thunks)


def count(hlo: str, thunks: str) -> XlaCount:
    """By the text of the optimised HLO and of the thunk sequence.

    Raises:
      Uncounted: for loops and branches.
      ValueError: for a thunk that no instruction has the name of.
    """
    times: Counter[str] = Counter()
    others: Counter[str] = Counter()
    moved = kernel_hlo.moved(hlo)
    by_thunk = {re.sub(r"\W", "_", name): name for name in moved}
    for line in thunks.splitlines():
        match = _THUNK.match(line)
        if match is None:
            continue
        kind, name = match["kind"], match["name"]
        if kind in _LOOPS:
            raise Uncounted(f"{name} is a {kind.lower()}: how often it runs is not known")
        if kind in _FILLS:
            others[kind] += 1
        elif name in by_thunk:
            times[by_thunk[name]] += 1
        elif _PRODUCTS.match(kind):
            others[Kind.COMPUTE.name] += 1
        else:
            raise ValueError(f"thunk {name} of kind {kind} is no instruction of the entry computation")
    launches = kernel_hlo.launches(hlo, times)
    for launch in launches:
        if launch.kind is not Kind.MEMORY:
            others[launch.kind.name] += launch.times
    counting = [launch for launch in launches if launch.kind is Kind.MEMORY]
    by_op: Counter[str] = Counter()
    for launch in counting:
        by_op[launch.op] += launch.times
    bytes_ = sum(moved[launch.name] * launch.times for launch in counting)
    return XlaCount(kernels(launches), bytes_, dict(by_op.most_common()), dict(others))


def stablehlo(function: Any, specs: Sequence[Any]) -> bytes:
    """Of a function of tensors, as TensorFlow writes it for the CPU: without CUDA it writes no other."""
    import tensorflow as tf

    made = tf.function(function, input_signature=list(specs), autograph=False, jit_compile=True)
    return made.experimental_get_compiler_ir(*specs)(stage="stablehlo_serialized", platform_name="CPU")
