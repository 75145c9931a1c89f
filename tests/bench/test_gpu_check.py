"""The script for machines with a GPU, step by step on the driver double; it is a file that stands alone."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import gpu_check
from bench.gpu_bundle import pack
from bench.workloads.clusters import find
from tests.emulator import building
from tests.runtime import on_double
from tf_stitch.plan.gpu_target import GpuTarget

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ("batchnorm_plain", "small_ops_200")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pycuda") is None, reason="PyCUDA is not installed: docker/build_pycuda.sh builds it"
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gpu") / "bundle"
    (directory.parent / "nvcc").symlink_to(ROOT / "tests" / "emulator" / "nvcc.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{directory.parent}:{os.environ['PATH']}")
        patch.setenv("LD_LIBRARY_PATH", str(building.driver()))
        count = pack(
            directory, [find(n) for n in WORKLOADS], (GpuTarget.named("a100"),), on_double.toolchain(), large=False
        )
    assert count >= len(WORKLOADS)
    return directory


def checked(bundle: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs it away from this checkout."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(building.driver()), **settings}
    command = [sys.executable, str(bundle / "gpu_check.py"), *arguments]
    return subprocess.run(
        command, env=environment, cwd=bundle, capture_output=True, text=True, check=False, timeout=280
    )


def lines(bundle: Path) -> dict[str, dict[str, object]]:
    found = [json.loads(line) for line in (bundle / gpu_check.RESULTS).read_text().splitlines()]
    return {line.pop("step"): line for line in found}


def test_every_step(bundle: Path) -> None:
    ended = checked(bundle)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = lines(bundle)
    assert list(found) == list(gpu_check.STEPS)
    assert found["environment"]["arch"] == "sm_80"
    assert found["correctness"]["ok"], found["correctness"]
    assert found["resident"]["ok"]
    assert found["resident"]["blocks"], "none of the kernels has a barrier of the grid"
    assert found["sanitizer"].get("skipped") or found["sanitizer"]["ok"]
    assert found["pycuda"]["ok"]
    assert found["timing"]["kernels"]


def test_what_is_done_is_not_run_again(bundle: Path) -> None:
    if not (bundle / gpu_check.RESULTS).exists():
        pytest.skip("the steps did not run")
    before = (bundle / gpu_check.RESULTS).read_text().splitlines()
    (bundle / gpu_check.RESULTS).write_text("\n".join(before[:-1]) + "\n")
    ended = checked(bundle)
    assert [json.loads(line)["step"] for line in ended.stdout.splitlines()] == ["timing"]


def test_a_wrong_result_is_told(bundle: Path, tmp_path: Path) -> None:
    import numpy as np

    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    case = next((copy / "cases").iterdir())
    with np.load(case) as found:
        content = dict(found)
    content["output_0"] = content["output_0"] * np.float32(1.001)
    np.savez(case, **content)
    told = json.loads(checked(copy, "--step", "correctness").stdout)
    assert told["ok"] is False
    assert told["wrong"] == [case.stem]


def test_without_a_gpu_each_step_says_so(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy, ignore=shutil.ignore_patterns(gpu_check.RESULTS))
    ended = checked(copy, LD_LIBRARY_PATH="")
    assert ended.returncode > 0
    assert "libcuda.so.1" in str(lines(copy)["correctness"]["failure"])
