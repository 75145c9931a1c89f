"""Real models, converted: faster SavedModels with the same answers.

Each model runs in fresh processes: as it was, converted, and in float64; at sizes that differ in every
dynamic dim. A model whose packages cannot be fetched is skipped, with the reason in pytest's summary.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.workloads.models import MODELS, FetchError
from tests.models.conversion import Conversion, converted, digest, environment
from tests.models.nearness import FLOOR, distance, largest

pytestmark = [pytest.mark.models, pytest.mark.timeout(900)]

NOTHING_STITCHED = 3  # exit code


@pytest.fixture(scope="session", params=list(MODELS))
def conversion(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversion]:
    name = request.param
    original = fetched(name)
    directory = tmp_path_factory.mktemp(name)
    yield converted(MODELS[name], original, directory)
    shutil.rmtree(directory)  # up to half a gigabyte, and pytest would keep three of them


def test_something_was_stitched(conversion: Conversion):
    assert conversion.report["stitch_ops"] > 0
    assert conversion.report["clusters"]


def test_outputs_equal_the_originals(conversion: Conversion):
    assert conversion.stitched_outputs.keys() == conversion.tensorflow_outputs.keys()
    for name, original in conversion.tensorflow_outputs.items():
        stitched = conversion.stitched_outputs[name]
        assert (stitched.dtype, stitched.shape) == (original.dtype, original.shape), name
        if original.dtype.kind == "f":
            allowed = conversion.model.tolerance * largest(original)
            exact = conversion.float64_outputs.get(name)
            if exact is not None:  # a convolution may be summed up in another order: the original is as far off
                allowed += distance(original, exact)
            assert distance(stitched, original) <= allowed, name
        else:
            np.testing.assert_array_equal(stitched, original, err_msg=name)


def test_outputs_are_as_near_to_float64_as_the_originals(conversion: Conversion):
    for name, exact in conversion.float64_outputs.items():
        if exact.dtype.kind == "f":
            assert exact.dtype == np.float64, name
            allowed = conversion.model.float64_factor * distance(conversion.tensorflow_outputs[name], exact)
            allowed += FLOOR * largest(exact)
            assert distance(conversion.stitched_outputs[name], exact) <= allowed, name


def test_every_call_ran_its_kernels(conversion: Conversion):
    assert conversion.stats["calls"] > 0
    assert not conversion.stats["fallbacks"]
    assert not conversion.stats["compiles"]


def test_original_is_untouched(conversion: Conversion):
    assert conversion.before == conversion.after


def test_converting_again_is_a_no_op(conversion: Conversion, tmp_path: Path):
    before = digest(conversion.stitched)
    again = tmp_path / "again"
    done = command_line("convert", str(conversion.stitched), str(again))
    assert done.returncode == NOTHING_STITCHED, done.stderr[-3000:]
    assert digest(conversion.stitched) == before
    assert not again.exists()


def test_bert_base_converts_in_20_cpu_seconds(tmp_path: Path):
    """From a cold cache of kernels, TensorFlow's import included.

    Where others slow the machine down a CPU second is worth less: then in as much as seven imports of TensorFlow take.
    It takes about five of them.
    """
    original = fetched("bert-base")
    cold = {"TF_STITCH_CACHE_DIR": str(tmp_path / "kernels")}
    used, done = cpu_seconds(
        lambda: command_line("convert", "--json", str(original), str(tmp_path / "stitched"), **cold)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["kernels_compiled"] > 0
    assert report["nodes_after"] < report["nodes_before"]
    assert {"stitch_ops", "compile_seconds", "rejections", "clusters"} <= report.keys()
    imported, _ = cpu_seconds(lambda: subprocess.run([sys.executable, "-c", "import tensorflow"], check=True))
    assert used < max(20, 7 * imported), imported
    shutil.rmtree(tmp_path)


def cpu_seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Of the processes that a call starts and waits for, and what it returns."""
    start = os.times()
    result = call()
    end = os.times()
    return (end.children_user - start.children_user) + (end.children_system - start.children_system), result


def fetched(name: str) -> Path:
    try:
        return MODELS[name].path()
    except FetchError as error:
        pytest.skip(f"{name}: {error}")


def command_line(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("tf-stitch")
    return subprocess.run(
        [str(program), *arguments],
        env=environment() | variables,
        text=True,
        capture_output=True,
        check=False,
    )
