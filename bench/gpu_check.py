"""Checks carried kernels on a machine with a GPU: no TensorFlow, no network, no compiler. NumPy and the driver will do.

    python gpu_check.py [DIRECTORY]        what `python -m bench gpu-bundle` has made; this file's own, unless given

Every step is a process under a time limit of its own, and writes a line of JSON to DIRECTORY/results.jsonl when it is
over. Steps that are in there are not run again: where the machine went away half-way, start it once more.

    environment   the GPU, the driver, what is installed
    correctness   every kernel against what NumPy made of the same inputs
    resident      kernels whose blocks wait for each other, by as many of them as the GPU holds, again and again
    sanitizer     memcheck, racecheck and synccheck of the correctness step, where compute-sanitizer is at hand
    pycuda        a kernel loaded and launched by PyCUDA, where that is installed
    timing        microseconds by CUDA events, GB/s, and how that compares with a copy on the same GPU

Kernels are started by the very code that StitchOp starts them by (`launch.so`: kernels/cuda_launch.cc).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LIMITS = {
    "environment": 30.0, "correctness": 90.0, "resident": 30.0, "sanitizer": 120.0, "pycuda": 30.0, "timing": 150.0,
}  # fmt: skip
RESULTS = "results.jsonl"
REPEATS = 20
COPIED_BYTES = 256 << 20
_I64, _P = ctypes.c_longlong, ctypes.c_void_p

Array = np.ndarray[Any, Any]


class Tensor(ctypes.Structure):
    _fields_ = (("data", _P), ("dims", ctypes.POINTER(_I64)), ("rank", _I64))


class Kernel(ctypes.Structure):
    """StitchKernel of abi.h."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("abi", "inputs", "outputs", "symbols", "guards")),
        ("output_ranks", ctypes.POINTER(ctypes.c_int)),
        ("forwards", ctypes.POINTER(ctypes.c_int)),
        ("name", ctypes.c_char_p),
        ("guard_texts", ctypes.POINTER(ctypes.c_char_p)),
        ("shape", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Tensor), ctypes.POINTER(_I64), ctypes.POINTER(_I64))),
        ("run", _P),
    )


class Launch(ctypes.Structure):
    """StitchLaunch of abi.h."""

    _fields_ = (
        ("entry", ctypes.c_char_p),
        ("resident", ctypes.c_int),
        *((name, _I64) for name in ("blocks", "threads", "shared_bytes", "scratch_bytes")),
    )


class Driver:
    """The driver, with a context on the first GPU. What fails raises a RuntimeError with its name."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        self._device = ctypes.c_int()
        self("cuDeviceGet", ctypes.byref(self._device), 0)
        context = _P()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self("cuCtxSetCurrent", context)

    def __call__(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'an unknown error').decode()}")

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def name(self) -> str:
        text = ctypes.create_string_buffer(256)
        self("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode()

    def version(self) -> int:
        value = ctypes.c_int()
        self("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    def memory(self, content: Array | int) -> int:
        """The address of a copy of an array, or of so many bytes."""
        address, size = ctypes.c_uint64(), content if isinstance(content, int) else content.nbytes
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        if not isinstance(content, int) and size:
            self("cuMemcpyHtoD_v2", address, _P(content.ctypes.data), ctypes.c_size_t(size))
        return int(address.value)

    def content(self, address: int, like: Array) -> Array:
        result = np.empty_like(like)
        if result.nbytes:
            size = ctypes.c_size_t(result.nbytes)
            self("cuMemcpyDtoH_v2", _P(result.ctypes.data), ctypes.c_uint64(address), size)
        return result

    def free(self, addresses: Sequence[int]) -> None:
        for address in addresses:
            self("cuMemFree_v2", ctypes.c_uint64(address))

    def wait(self) -> None:
        self("cuCtxSynchronize")

    def microseconds(self, start: Callable[[], None], repeats: int = REPEATS) -> float:
        """The median of what `start` takes on the GPU, after one that does not count."""
        start()
        taken: list[float] = []
        for _ in range(repeats):
            events = [_P(), _P()]
            for event in events:
                self("cuEventCreate", ctypes.byref(event), 0)
            self("cuEventRecord", events[0], None)
            start()
            self("cuEventRecord", events[1], None)
            self("cuEventSynchronize", events[1])
            milliseconds = ctypes.c_float()
            self("cuEventElapsedTime", ctypes.byref(milliseconds), *events)
            taken.append(1000 * milliseconds.value)
            for event in events:
                self("cuEventDestroy_v2", event)
        return statistics.median(taken)


class Carried:
    """A kernel of the bundle with one set of inputs, on the GPU until `free`."""

    def __init__(self, driver: Driver, directory: Path, entry: dict[str, Any]) -> None:
        self._driver = driver
        self.name: str = entry["name"]
        self._code = ctypes.CDLL(str(directory / "launch.so"))
        library = ctypes.CDLL(str(directory / entry["library"]))
        self._kernel = Kernel.in_dll(library, "tf_stitch_kernel")
        self._gpu = ctypes.byref(ctypes.c_byte.in_dll(library, "tf_stitch_gpu_kernel"))
        self.arrays = inputs_of(directory, entry)
        self.expected = _expected(directory, entry)
        self._symbols, shapes = self._shape()
        self.results = [np.empty(s, np.dtype(d)) for s, d in zip(shapes, entry["outputs"], strict=True)]
        self.launch = self._plan()
        self._addresses: list[int] = []
        inputs = [0 if a is None else self._keep(a) for a in self.arrays]
        outputs = [self._keep(r.nbytes) for r in self.results]
        self._inputs, self._outputs = (_P * len(inputs))(*inputs), (_P * len(outputs))(*outputs)
        self._scratch = self._keep(self.launch.scratch_bytes) if self.launch.scratch_bytes else 0
        self.bytes = sum(a.nbytes for a in self.arrays if a is not None) + sum(r.nbytes for r in self.results)

    def start(self) -> None:
        error = ctypes.create_string_buffer(500)
        arguments = (self._inputs, self._outputs, self._symbols, _P(self._scratch), None, error, len(error))
        if self._code.tf_stitch_gpu_launch(self._gpu, *arguments):
            raise RuntimeError(f"{self.name}: {error.value.decode()}")

    def error(self) -> float:
        """Starts it, and how far it is from what is right: 1.0 is as far as it may be."""
        self.start()
        self._driver.wait()
        worst = 0.0
        for address, like, right in zip(self._outputs, self.results, self.expected, strict=True):
            ours = self._driver.content(address or 0, like)
            worst = max(worst, _distance(ours, right))
        return worst

    def free(self) -> None:
        self._driver.free(self._addresses)

    def _keep(self, content: Array | int) -> int:
        self._addresses.append(self._driver.memory(content))
        return self._addresses[-1]

    def _shape(self) -> tuple[Any, list[tuple[int, ...]]]:
        """The symbols and the outputs' shapes."""
        dims = [(_I64 * max(a.ndim, 1))(*a.shape) if a is not None else (_I64 * 1)() for a in self.arrays]
        tensors = [Tensor(None, d, a.ndim if a is not None else 0) for a, d in zip(self.arrays, dims, strict=True)]
        kernel = self._kernel
        ranks = [kernel.output_ranks[n] for n in range(kernel.outputs)]
        symbols, found = (_I64 * max(kernel.symbols, 1))(), (_I64 * max(sum(ranks), 1))()
        guard = kernel.shape((Tensor * max(len(tensors), 1))(*tensors), symbols, found)
        if guard:
            raise RuntimeError(f"{self.name} assumes that {kernel.guard_texts[guard - 1].decode()}")
        ends = np.cumsum([0, *ranks])
        return symbols, [tuple(found[begin:end]) for begin, end in itertools.pairwise(ends)]

    def _plan(self) -> Launch:
        launch, error = Launch(), ctypes.create_string_buffer(500)
        if self._code.tf_stitch_gpu_plan(self._gpu, self._symbols, ctypes.byref(launch), error, len(error)):
            raise RuntimeError(f"{self.name}: {error.value.decode()}")
        return launch


def inputs_of(directory: Path, entry: dict[str, Any]) -> list[Array | None]:
    """Those that lie in the bundle; else made from the seed, above zero, as roots and logarithms want them."""
    if entry["case"]:
        with np.load(directory / entry["case"]) as case:
            return [case.get(f"input_{n}") for n in range(len(entry["inputs"]))]
    random = np.random.default_rng(0)
    found: list[Array | None] = []
    for given in entry["inputs"]:
        values = None if given is None else np.abs(random.standard_normal(given["shape"], np.float32)) + 0.1
        found.append(None if values is None or given is None else values.astype(given["dtype"]))
    return found


def _expected(directory: Path, entry: dict[str, Any]) -> list[Array]:
    if not entry["case"]:
        return []
    with np.load(directory / entry["case"]) as case:
        return [case[f"output_{n}"] for n in range(len(entry["outputs"]))]


def _distance(ours: Array, right: Array) -> float:
    """The largest difference over what is allowed: 16 ulps of the largest value. NaN and infinity are equal or not."""
    if ours.dtype.kind != "f":
        return 0.0 if np.array_equal(ours, right) else float("inf")
    finite = np.isfinite(right)
    if not np.array_equal(ours[~finite], right[~finite], equal_nan=True) or not np.isfinite(ours[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    mine, other = ours[finite].astype(np.float64), right[finite].astype(np.float64)
    allowed = 16 * float(np.finfo(right.dtype).eps) * max(float(np.abs(other).max()), 1e-30)
    return float(np.abs(mine - other).max()) / allowed


# ---- steps: each gives what goes into its line


def environment(_directory: Path, _manifest: list[dict[str, Any]]) -> dict[str, Any]:
    driver = Driver()
    return {
        "gpu": driver.name(),
        "arch": f"sm_{driver.attribute(75)}{driver.attribute(76)}",
        "multiprocessors": driver.attribute(16),
        "driver": driver.version(),
        "python": sys.version.split()[0],
        "installed": [n for n in ("pycuda", "cupy", "jax", "torch") if importlib.util.find_spec(n)],
    }


def correctness(directory: Path, manifest: list[dict[str, Any]]) -> dict[str, Any]:
    driver = Driver()
    errors: dict[str, float | str] = {}
    for entry in manifest:
        if entry["case"]:
            try:
                carried = Carried(driver, directory, entry)
                errors[entry["name"]] = round(carried.error(), 4)
                carried.free()
            except RuntimeError as error:
                errors[entry["name"]] = str(error)
    wrong = sorted(name for name, error in errors.items() if isinstance(error, str) or error > 1.0)
    return {"ok": not wrong, "wrong": wrong, "errors": errors}


def resident(directory: Path, manifest: list[dict[str, Any]]) -> dict[str, Any]:
    """A hang here is one of a barrier: the time limit ends it."""
    driver = Driver()
    blocks: dict[str, int] = {}
    wrong: list[str] = []
    for entry in manifest:
        carried = Carried(driver, directory, entry)
        if carried.launch.resident:
            blocks[entry["name"]] = carried.launch.blocks
            for _ in range(REPEATS):
                carried.start()
            driver.wait()
            if entry["case"] and carried.error() > 1.0:  # a barrier that was not left as it was found
                wrong.append(entry["name"])
        carried.free()
    return {"ok": not wrong, "wrong": wrong, "blocks": blocks}


def sanitizer(directory: Path, _manifest: list[dict[str, Any]]) -> dict[str, Any]:
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {"skipped": "there is no compute-sanitizer"}
    found: dict[str, str] = {}
    for tool in ("memcheck", "racecheck", "synccheck"):
        command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, __file__, str(directory)]
        ended = subprocess.run([*command, "--step", "correctness"], capture_output=True, text=True, check=False)
        found[tool] = "" if ended.returncode == 0 else (ended.stdout + ended.stderr)[-2000:]
    return {"ok": not any(found.values()), "reports": found}


def pycuda(directory: Path, manifest: list[dict[str, Any]]) -> dict[str, Any]:
    """Into PyCUDA's own context, with the module that the launch code would take."""
    if not importlib.util.find_spec("pycuda"):
        return {"skipped": "PyCUDA is not installed"}
    cuda: Any = importlib.import_module("pycuda.driver")
    cuda.init()
    context = cuda.Device(0).retain_primary_context()
    context.push()
    try:
        carried = Carried(Driver(), directory, next(e for e in manifest if e["case"]))
        x = np.arange(1000, dtype=np.float32)
        address = cuda.to_device(x)
        np.testing.assert_array_equal(cuda.from_device_like(address, x), x)
        return {"ok": carried.error() <= 1.0, "kernel": carried.name, "version": list(cuda.get_version())}
    finally:
        context.pop()


def timing(directory: Path, manifest: list[dict[str, Any]]) -> dict[str, Any]:
    driver = Driver()
    source, destination = driver.memory(COPIED_BYTES), driver.memory(COPIED_BYTES)

    def copy() -> None:
        size = ctypes.c_size_t(COPIED_BYTES)
        driver("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(destination), ctypes.c_uint64(source), size, None)

    ceiling = 2 * COPIED_BYTES / driver.microseconds(copy) / 1000
    driver.free((source, destination))
    rows: dict[str, dict[str, float]] = {}
    for entry in manifest:
        carried = Carried(driver, directory, entry)
        taken = driver.microseconds(carried.start)
        speed = carried.bytes / taken / 1000 if taken else 0.0
        rows[entry["name"]] = {
            "us": round(taken, 2),
            "gb_per_s": round(speed, 1),
            "of_copy": round(speed / ceiling, 3) if ceiling else 0.0,
        }
        carried.free()
    return {"copy_gb_per_s": round(ceiling, 1), "kernels": rows}


STEPS: dict[str, Callable[[Path, list[dict[str, Any]]], dict[str, Any]]] = {
    "environment": environment,
    "correctness": correctness,
    "resident": resident,
    "sanitizer": sanitizer,
    "pycuda": pycuda,
    "timing": timing,
}


def run(directory: Path) -> int:
    """All steps that are not done; the number of those that found something wrong."""
    results = directory / RESULTS
    done = {json.loads(line)["step"] for line in results.read_text().splitlines()} if results.exists() else set[str]()
    for step, limit in LIMITS.items():
        if step not in done:
            line = {"step": step, **_in_a_process(directory, step, limit)}
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
    found = [json.loads(line) for line in results.read_text().splitlines()]
    return sum(line.get("ok") is False for line in found)


def _in_a_process(directory: Path, step: str, limit: float) -> dict[str, Any]:
    begin = time.monotonic()
    command = [sys.executable, __file__, str(directory), "--step", step]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"ok": False, "failure": f"stopped after {limit:g} seconds"}
    seconds = round(time.monotonic() - begin, 1)
    if ended.returncode:
        return {"ok": False, "failure": ended.stderr[-2000:], "seconds": seconds}
    return {**json.loads(ended.stdout.splitlines()[-1]), "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks carried kernels on a machine with a GPU.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--step", choices=STEPS, help="this step alone, in this process")
    arguments = parser.parse_args()
    if arguments.step is None:
        return run(arguments.directory)
    manifest = json.loads((arguments.directory / "manifest.json").read_text())
    print(json.dumps(STEPS[arguments.step](arguments.directory, manifest)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
