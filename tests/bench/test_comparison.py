"""`bench compare`: a model of one's own, and what is said of mistakes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from bench import clusters, comparison, models_measure
from bench.__main__ import bench
from tests.bench.saved_models import WIDTH, Layer, in_this_process, saved


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    return saved(Layer(), tmp_path_factory.mktemp("models") / "layer")


def said(*arguments):
    outcome = CliRunner().invoke(bench, ["compare", *map(str, arguments)])
    assert outcome.exit_code == comparison.Mistake.exit_code, outcome.output
    assert "Traceback" not in outcome.output
    return " ".join(outcome.output.split())


def file(tmp_path, array):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    return f"x={tmp_path / 'x.npy'}"


def test_no_such_path(tmp_path):
    assert f"{tmp_path / 'none'} is no SavedModel" in said(tmp_path / "none")
    assert "is no SavedModel; give a directory that holds saved_model.pb" in said(tmp_path)


def test_a_damaged_model(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"nonsense")
    assert "does not load as a SavedModel" in said(tmp_path)


def test_no_such_signature(layer):
    text = said(layer, "--signature", "train")
    assert "has no signature 'train'; it has serving_default" in text


def test_a_model_without_signatures(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    assert "it has none" in said(tmp_path / "empty")


def test_no_such_input(layer, tmp_path):
    array = file(tmp_path, np.zeros((2, WIDTH), np.float32)).removeprefix("x=")
    assert "there is no input 'y'; the inputs are x" in said(layer, "--inputs", f"y={array}")


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros((2, WIDTH + 1), np.float32), "it holds float32[2, 25], and x is float32[?, 24]"),
        (np.zeros((2, WIDTH)), "it holds float64[2, 24], and x is float32[?, 24]"),
        (np.array([None, {}], object), "cannot be read as a .npy file"),
    ],
)
def test_a_file_that_does_not_fit(layer, tmp_path, array, sentence):
    assert sentence in said(layer, "--inputs", file(tmp_path, array))


def test_a_file_that_is_not_there(layer, tmp_path):
    assert "cannot be read" in said(layer, "--inputs", f"x={tmp_path / 'none.npy'}")


@pytest.mark.parametrize("size", ["x.7=3", "y.0=3", "batch", "0=-1"])
def test_no_such_axis(layer, size):
    assert f"--size {size.partition('=')[0]}" in said(layer, "--size", size)


def test_inputs_are_made_up_from_the_signature(layer, tmp_path):
    def shape(*sizes):
        return comparison.case_of(layer, None, (), sizes, 0, tmp_path).arrays()["x"].shape

    assert shape() == (2, WIDTH)
    assert shape("0=7") == (7, WIDTH)
    assert shape("x.0=9") == (9, WIDTH)


def test_texts_are_stored_without_pickle(tmp_path):
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.string)
    module.serve = tf.function(lambda x: {"length": tf.strings.length(x)}, input_signature=[spec], autograph=False)
    case = comparison.case_of(saved(module, tmp_path / "texts"), None, (), (), 0, tmp_path)
    assert case.arrays()["x"].dtype.kind == "S"


def test_the_inputs_given_are_the_inputs_measured(layer, tmp_path):
    given = np.random.default_rng(3).standard_normal((4, WIDTH)).astype(np.float32)
    case = comparison.case_of(layer, None, [file(tmp_path, given)], (), 0, tmp_path)
    np.testing.assert_array_equal(case.arrays()["x"], given)
    assert (case.name, case.size) == ("layer", "4x24")


def test_a_model_that_fails_on_its_inputs_is_named(tmp_path):
    module = tf.Module()
    spec = tf.TensorSpec([None, None], tf.float32)
    module.serve = tf.function(lambda x: {"y": tf.matmul(x, x)}, input_signature=[spec], autograph=False)
    case = comparison.case_of(saved(module, tmp_path / "square"), None, (), (), 0, tmp_path)
    row = models_measure.row(case, 1, models_measure.QUICK, run=in_this_process)
    assert row["absent"].startswith("tf: ValueError: Dimensions must be equal")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_from_end_to_end(layer, tmp_path):
    out = tmp_path / "rows.json"
    command = [sys.executable, "-m", "bench", "compare", layer, "--quick", "--threads", "1,2", "--json", out]
    run = subprocess.run(command, cwd=clusters.ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert run.returncode == 0, run.stderr
    assert max(map(len, run.stdout.splitlines())) <= 80
    rows = json.loads(out.read_text())["rows"]
    assert [(row["threads"], row["clock"]) for row in rows] == [(1, "cpu"), (2, "wall")]
    assert rows[0]["bytes"]["triad_gb_per_s"] > 0.1
    assert rows[0]["peaks_mb"].keys() == {"tf", "xla", "stitch"}
