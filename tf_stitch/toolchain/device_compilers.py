"""The compilers of CUDA C++ that are on this machine: PyCUDA with nvcc, and NVRTC. No GPU is needed by either.

Both are run as commands, by scripts of the standard library's Python, and give the same: a cubin, or PTX.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from tf_stitch.errors import EnvironmentProblem
from tf_stitch.toolchain import nvrtc, pycuda_nvcc
from tf_stitch.toolchain.compilers import environment
from tf_stitch.toolchain.process import Runner

# In the workspace, which is the compiler's working directory: so no path gets into a key or a cubin.
SOURCE: Final = "kernel.cu"
IMAGE: Final = "kernel.image"

# Exactly the arithmetic that was written: no product and sum become one, no denormal is flushed, and division and root
# are rounded as IEEE 754 has it. Both compilers take these.
OPTIONS: Final = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")

_ANSWER_TIMEOUT = 30.0


@dataclass(frozen=True)
class DeviceCompiler:
    """A compiler of CUDA C++ that is there and says what it is.

    name: for people. command: how to call it, before what to compile. version: all that tells it from another.
    archs: what it compiles for, "sm_80".
    """

    name: str
    command: tuple[str, ...]
    version: str
    archs: frozenset[str]

    def compiles(self, code: str) -> bool:
        """Whether it knows an architecture, be it spelled for a cubin ("sm_80") or for PTX ("compute_80")."""
        return code.replace("compute_", "sm_") in self.archs

    def build_command(self, code: str, include: Path) -> list[str]:
        """From SOURCE to IMAGE; to be run in the workspace. include: what `#include` starts from."""
        return [*self.command, code, SOURCE, IMAGE, *OPTIONS, f"-I{include}"]


def find_device_compilers() -> Iterator[DeviceCompiler]:
    """Those that are there: PyCUDA before NVRTC, the NVRTC that TensorFlow was installed with before others."""
    seen: set[str] = set()
    for name, command in _candidates():
        answer = _answer(command)
        if answer is not None and answer[0] not in seen:
            seen.add(answer[0])
            yield DeviceCompiler(name, command, *answer)


def no_device_compiler(code: str) -> EnvironmentProblem:
    """What to raise where nothing compiles for `code`."""
    found = "; ".join(f"{c.version} compiles for {', '.join(sorted(c.archs, key=_number))}" for c in _known())
    return EnvironmentProblem(
        f"no compiler for CUDA kernels of {code} was found ({found or 'neither NVRTC nor PyCUDA with nvcc is there'}). "
        f"Install one: `pip install 'nvidia-cuda-nvrtc-cu12>=12.5,<13'`, which compiles for sm_70 to sm_121 as of 12.9"
    )


def _known() -> list[DeviceCompiler]:
    return list(find_device_compilers())


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()) or 0)


def _candidates() -> Iterator[tuple[str, tuple[str, ...]]]:
    nvcc = find_nvcc()
    if nvcc is not None and _is_installed("pycuda"):
        yield "PyCUDA", (sys.executable, pycuda_nvcc.__file__, nvcc)
    for library in find_nvrtc():
        yield "NVRTC", (sys.executable, "-I", "-S", nvrtc.__file__, str(library))


def find_nvcc() -> str | None:
    """The nvcc in PATH, or of the toolkit that CUDA_HOME names, or of the wheel `nvidia-cuda-nvcc`."""
    places = [*_toolkits(), *_wheel_directories()]
    return shutil.which("nvcc") or next(
        (n for place in places if (n := shutil.which(str(place / "bin" / "nvcc")))), None
    )


def find_nvrtc() -> list[Path]:
    """The NVRTC libraries, the best first: of wheels, of toolkits, of the system. CUDA 12 comes before 13, because what
    12 makes runs with every driver that TensorFlow 2.21 does.
    """
    found: list[Path] = []
    for place in _wheel_directories():
        found += sorted(place.glob("lib/libnvrtc.so.[0-9]*"))
    for place in _toolkits():
        found += sorted((*place.glob("lib64/libnvrtc.so.[0-9][0-9]"), *place.glob("lib/libnvrtc.so.[0-9][0-9]")))
    found += _known_to_the_loader()
    return list({path.resolve(): path for path in found if path.is_file()}.values())


def _wheel_directories() -> list[Path]:
    """What NVIDIA's wheels put into site-packages: `nvidia/cuda_nvrtc` of CUDA 12, `nvidia/cu13` of 13."""
    spec = importlib.util.find_spec("nvidia") if _is_installed("nvidia") else None
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return [directory for name in ("cuda_nvrtc", "cu13") for place in places if (directory := place / name).is_dir()]


def _toolkits() -> list[Path]:
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [path for path in map(Path, (*named, "/usr/local/cuda")) if path.is_dir()]


def _known_to_the_loader() -> list[Path]:
    ldconfig = shutil.which("ldconfig") or shutil.which("/sbin/ldconfig")
    if ldconfig is None:
        return []
    listed = subprocess.run([ldconfig, "-p"], check=False, capture_output=True, text=True).stdout.splitlines()
    return sorted(Path(line.split("=>")[1].strip()) for line in listed if "libnvrtc.so." in line and "=>" in line)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _answer(command: tuple[str, ...]) -> tuple[str, frozenset[str]] | None:
    """What a compiler says of itself; asked again when its file has changed."""
    try:
        binary = Path(shutil.which(command[-1]) or command[-1]).resolve().stat()
    except OSError:
        return None
    # Where the driver's library is looked for decides whether PyCUDA can be imported.
    return _asked(command, binary.st_mtime_ns, binary.st_size, os.environ.get("LD_LIBRARY_PATH", ""))


@functools.cache
def _asked(command: tuple[str, ...], mtime_ns: int, size: int, library_path: str) -> tuple[str, frozenset[str]] | None:
    del mtime_ns, size, library_path
    outcome = Runner().run(command, cwd=Path("/"), environment=environment(), timeout=_ANSWER_TIMEOUT)
    if not outcome.ok:
        return None
    try:
        answer = cast("dict[str, object]", json.loads(outcome.output.strip().splitlines()[-1]))
        return str(answer["version"]), frozenset(cast("list[str]", answer["archs"]))
    except (ValueError, KeyError, IndexError):
        return None
