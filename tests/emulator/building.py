"""Builds emulated modules with g++: preprocess, rewrite (`dialect`), compile, link with the runtime of one flavour.

Everything is kept by content in a directory of the user below the temporary one: a second test run compiles nothing.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tests.emulator.dialect import kernels, with_shared_memory

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
EMULATOR = KERNELS / "emulator"
SANITIZERS = ("thread", "address")
FLAVOURS = ("plain", "portable", "counting", *SANITIZERS)

_RUNTIME = "context memory shared scheduler meetings atomics failure counters launch".split()
_DRIVER = "contexts memory_calls streams modules absent".split()
_COMMON = ["-std=c++20", "-fPIC", "-fvisibility=hidden", "-fno-omit-frame-pointer", f"-I{KERNELS}"]
# The arithmetic of a GPU kernel is what is written: no contraction. Pointers are cast as CUDA code casts them.
_DEVICE = [*_COMMON, "-O1", "-g", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions", "-w"]
_PREPROCESS = [*_DEVICE, "-DTF_STITCH_EMULATOR", "-include", str(EMULATOR / "device.h")]
_PREPROCESS += ["-fno-working-directory", "-E", "-x", "c++", "kernel.cu"]
_DEVICE_FLAVOUR = {
    "plain": [],
    "portable": [],  # plain, with the switch between threads that every machine has
    "thread": ["-fsanitize=thread", "--param=tsan-distinguish-volatile=1"],
    "address": ["-fsanitize=address"],
    # Accesses of whole vectors stay whole, as they are one instruction of a GPU.
    "counting": [
        "-fsanitize=thread",
        "-fno-tree-sra",
        "--param=tsan-instrument-func-entry-exit=0",
        "--param=tsan-distinguish-volatile=1",
    ],
}


_KEPT_SECONDS = 3 * 24 * 3600


class CompilationFailed(Exception):
    """g++ does not take the text: its messages."""


def build(text: str, flavour: str, options: Sequence[str] = ()) -> Path:
    """The shared library of a `.cu` text: what `emulated.Module` loads, and the driver double takes for a cubin.

    options: further ones for g++, such as -D and -I. Raises CompilationFailed.
    """
    with tempfile.TemporaryDirectory() as folder:  # with a name of its own, which is what reports call it
        Path(folder, "kernel.cu").write_text(text, encoding="utf-8")
        source = with_shared_memory(_run(["g++", *options, *_PREPROCESS], folder=folder))
    source += '\n# 1 "kernels of kernel.cu"\n'
    for name in kernels(text):
        source += f'static const int {name}_is_known = ::stitch_emulator::Kernel<&{name}>::add("{name}");\n'
    runtime = runtime_object(flavour)

    def compiled(path: Path) -> None:
        command = ["g++", *options, *_DEVICE, *_DEVICE_FLAVOUR[flavour], "-x", "c++-cpp-output", "-", "-x", "none"]
        link = ["-shared", str(runtime), "-Wl,-Bsymbolic"]
        if flavour == "counting":  # the functions that the sanitizer's code calls are the runtime's own
            object_file = path.with_suffix(".o")
            _run([*command, "-c", "-o", str(object_file)], source)
            _run(["g++", str(object_file), *link, "-o", str(path)])
            object_file.unlink()
        else:
            _run([*command, *link, "-o", str(path)], source)

    return _kept([source, flavour, runtime.name, *options], ".so", compiled)


@cache
def runtime_object(flavour: str) -> Path:
    """The emulator's runtime, which is never instrumented itself, as an object file."""
    defines = [f"-DTF_STITCH_EMULATOR_{flavour.upper()}"]

    def compiled(path: Path) -> None:
        # As one file: the library's headers are most of the work.
        text = "".join(f'#include "emulator/{name}.cc"\n' for name in _RUNTIME)
        _run(["g++", *_COMMON, "-O1", *defines, "-c", "-x", "c++", "-", "-o", str(path)], text)

    return _kept([_sources(), flavour], ".o", compiled)


@cache
def runner(flavour: str) -> Path:
    """The program that runs one launch under a sanitizer."""

    def compiled(path: Path) -> None:
        sanitize = f"-fsanitize={flavour}"
        _run(["g++", *_COMMON, "-O1", sanitize, str(EMULATOR / "runner.cc"), "-rdynamic", "-ldl", "-o", str(path)])

    return _kept([_sources(), "runner", flavour], "", compiled)


@cache
def driver() -> Path:
    """A folder with the test double of libcuda.so.1, for LD_LIBRARY_PATH. The product never sees it."""

    def compiled(path: Path) -> None:
        path.mkdir()
        parts = ["emulator/memory.cc", *(f"emulator/driver/{name}.cc" for name in _DRIVER)]
        text = "".join(f'#include "{part}"\n' for part in parts)
        library = ["-shared", "-Wl,-soname,libcuda.so.1", "-o", str(path / "libcuda.so.1"), "-ldl"]
        _run(["g++", *_COMMON, "-O1", "-x", "c++", "-", *library], text)
        (path / "libcuda.so").symlink_to("libcuda.so.1")

    return _kept([_sources(), "driver"], "", compiled)


@cache
def _sources() -> str:
    version = _run(["g++", "--version"])
    return version + "".join(path.name + path.read_text() for path in sorted(EMULATOR.rglob("*.[hc]*")))


@cache
def _directory() -> Path:
    """Where builds are kept. Those that have not been asked for in days are thrown away."""
    directory = Path(tempfile.gettempdir()) / f"tf_stitch_emulated_{getpass.getuser()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    for old in directory.iterdir():
        if old.is_file() and time.time() - old.stat().st_mtime > _KEPT_SECONDS:
            old.unlink(missing_ok=True)
    return directory


def _kept(content: Sequence[str], suffix: str, make: Callable[[Path], None]) -> Path:
    """The file made of `content`, from the cache or by `make`; complete or absent, whoever else makes it too."""
    key = hashlib.sha256("\0".join(content).encode()).hexdigest()[:32]
    path = _directory() / f"{key}{suffix}"
    if not path.exists():
        unfinished = path.with_name(f"{key}.{os.getpid()}{suffix}")
        make(unfinished)
        try:
            unfinished.rename(path)
        except OSError:  # a folder that another process has made first
            if not path.exists():
                raise
    else:
        path.touch()
    return path


def _run(command: Sequence[str], text: str = "", folder: str | None = None) -> str:
    finished = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=300, cwd=folder
    )  # fmt: skip
    if finished.returncode != 0:
        raise CompilationFailed(finished.stderr[-8000:] or f"{command[0]} ended with {finished.returncode}")
    return finished.stdout
