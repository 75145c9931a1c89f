"""Kernels for GPUs from text to numbers, on the driver double; each case is a program of its own (`on_double`)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulator import building
from tf_stitch.runtime import paths

ROOT = Path(__file__).resolve().parents[2]
PYCUDA = importlib.util.find_spec("pycuda")

pytestmark = pytest.mark.skipif(PYCUDA is None, reason="PyCUDA is not installed: docker/build_pycuda.sh builds it")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for caches, so that the programs compile each kernel once; and for an nvcc."""
    directory = tmp_path_factory.mktemp("shared")
    (directory / "bin").mkdir()
    (directory / "bin" / "nvcc").symlink_to(ROOT / "tests" / "emulator" / "nvcc.py")
    return directory


@pytest.fixture(scope="module")
def launcher(shared: Path) -> Path:
    """StitchOp's launch code as a library of its own."""
    library = shared / "launch.so"
    kernels = paths.include_root()
    sources = [str(kernels / "cuda_launch.cc"), str(kernels / "cuda_driver.cc")]
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{kernels}", "-o", str(library), *sources, "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.mark.parametrize(
    "program",
    [
        *("c_launches", "c_waits", "pycuda_launches", "pycuda_waits", "pycuda_streams", "pycuda_tells"),
        *("generated", "generated_waves"),
    ],
)
def test_on_double(program: str, launcher: Path, shared: Path) -> None:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(building.driver()),
        "PATH": f"{shared / 'bin'}:{os.environ['PATH']}",
        "TF_STITCH_CACHE_DIR": str(shared / "cache"),
        "TF_STITCH_TEST_LAUNCHER": str(launcher),
        "PYCUDA_CACHE_DIR": str(shared),
    }
    command = [sys.executable, "-m", "tests.runtime.on_double", program]
    finished = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
