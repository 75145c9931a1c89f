"""`tf-stitch compare`: figures, generated and given inputs, exit codes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cli.conftest import tf_stitch


def test_a_model_and_its_stitched_self_agree(block, stitched):
    found = tf_stitch("compare", block, stitched)
    assert found.code == 0
    assert max(map(len, found.stdout.splitlines())) <= 80
    for word in ("serving_default", "normal", "probabilities", "ulps", "B: 2 calls of kernels"):
        assert word in found.stdout


def test_json(block, stitched):
    found = tf_stitch("compare", block, stitched, "--size", "0=7", "--seed", 3, "--json").json
    assert found["agree"] is True
    assert found["inputs"] == {"x": {"dtype": "float32", "shape": [7, 64]}}
    assert found["stitched"] == {"a": {"calls": 0, "fallbacks": 0}, "b": {"calls": 2, "fallbacks": 0}}
    assert [o["name"] for o in found["outputs"]] == ["normal", "probabilities"]
    for output in found["outputs"]:
        assert {"dtype", "shape", "max_ulps", "max_abs", "relative", "unequal", "agrees"} <= set(output)
        assert output["relative"] < 1e-5


def test_other_models_differ(block, other_block):
    found = tf_stitch("compare", block, other_block)
    assert found.code == 4
    assert "DIFFERS" in found.stdout
    assert "differ" in found.stderr
    assert tf_stitch("compare", block, other_block, "--rtol", "0.1").code == 0


def test_tolerance_of_nothing(block, stitched):
    assert tf_stitch("compare", block, block, "--rtol", "0").code == 0


def test_given_inputs(block, stitched, tmp_path):
    np.save(tmp_path / "x.npy", np.full((3, 64), np.inf, np.float32))
    found = tf_stitch("compare", block, stitched, "--inputs", f"x={tmp_path / 'x.npy'}", "--json")
    assert found.code == 0  # NaN in the same places
    assert found.json["inputs"]["x"]["shape"] == [3, 64]


def test_strings_integers_and_bools(words):
    found = tf_stitch("compare", words, words, "--size", "words.0=3", "--json")
    assert found.code == 0
    assert found.json["inputs"]["words"]["shape"] == [3]
    assert found.json["inputs"]["ids"]["shape"] == [2]
    assert {o["dtype"] for o in found.json["outputs"]} == {"string", "int64"}


def test_the_same_seed_gives_the_same_figures(block, other_block):
    def figures(seed):
        return tf_stitch("compare", block, other_block, "--seed", seed, "--json").json["outputs"]

    assert figures(1) == figures(1)
    assert figures(1) != figures(2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--size", "batch=3"], "0=8"),
        (["--size", "5=3"], "no input has that axis"),
        (["--size", "y.0=3"], "the inputs are x"),
        (["--signature", "train"], "serving_default"),
        (["--inputs", "y=none.npy"], "the inputs are x"),
        (["--inputs", "x=none.npy"], "cannot be read"),
    ],
)
def test_wrong_arguments(block, stitched, arguments, says):
    found = tf_stitch("compare", block, stitched, *arguments)
    assert found.code == 2
    assert says in found.stderr
    assert found.stderr.count("\n") == 1


def test_an_array_of_another_type(block, stitched, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 64)))
    found = tf_stitch("compare", block, stitched, "--inputs", f"x={tmp_path / 'x.npy'}")
    assert found.code == 2
    assert "float64[3, 64], and x is float32[?, 64]" in found.stderr


def test_models_that_cannot_be_compared(block, product, tmp_path):
    assert tf_stitch("compare", block, tmp_path / "none").code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    found = tf_stitch("compare", block, empty)
    assert found.code == 2
    assert "does not load" in found.stderr
    assert tf_stitch("compare", block, product).code == 1  # other outputs
