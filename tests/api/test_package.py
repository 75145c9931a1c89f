"""The public names: what `import tf_stitch` costs, and what stands behind it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_importing_imports_nothing_else() -> None:
    heavy = ("tensorflow", "numpy", "keras", "tf_stitch.api", "tf_stitch.ir")
    program = f"import sys, tf_stitch; print([m for m in {heavy!r} if m in sys.modules], tf_stitch.__version__)"
    assert run(program).stdout.split() == ["[]", tf_stitch.__version__]


def test_importing_is_quick() -> None:
    """50 ms at most; measured by the interpreter, without what it imports anyway."""
    lines = run("import typing, tf_stitch", "-X", "importtime").stderr.splitlines()
    (line,) = (line for line in lines if line.endswith("| tf_stitch"))
    assert int(re.findall(r"\d+", line)[1]) < 50_000


def test_config_and_errors_come_without_tensorflow() -> None:
    program = "import sys, tf_stitch; tf_stitch.Config(); tf_stitch.StitchError; print('tensorflow' in sys.modules)"
    assert run(program).stdout.strip() == "False"


def test_every_public_name_is_there_and_documented() -> None:
    assert sorted(tf_stitch.__all__) == dir(tf_stitch)
    for name in tf_stitch.__all__:
        assert getattr(tf_stitch, name) is not None
        assert name == "__version__" or getattr(tf_stitch, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'sew'"):
        tf_stitch.sew  # noqa: B018


def test_the_version_is_that_of_the_distribution() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{tf_stitch.__version__}"' in project


def test_a_wrong_tensorflow_is_named_before_anything_is_loaded() -> None:
    program = (
        "import sys, types, tf_stitch\n"
        "sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
        "sys.modules['tensorflow'].__version__ = '2.19.1'\n"
        "sys.modules['tensorflow'].RegisterGradient = None\n"
        "try:\n"
        "    tf_stitch.function\n"
        "except tf_stitch.StitchError as error:\n"
        "    print(error)\n"
    )
    said = run(program).stdout
    assert "TensorFlow 2.21" in said
    assert "pip install" in said


class TestStats:
    def test_counts_compiles_calls_and_fallbacks(self) -> None:
        x = tf.constant(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4))
        function = tf_stitch.function(lambda x: tf.exp(tf.tanh(x) * 1.25) + x)
        tf_stitch.reset_stats()
        for _ in range(3):
            function(x)
        found = tf_stitch.stats()
        assert found["kernels"] == 1
        assert found["calls"] == 3
        assert found["fallbacks"] == {}
        assert found["stitched"] == 1
        assert found["failed"] == 0
        assert found["compiles"] in (0, 1)  # 0: in the cache from another run
        assert (found["compile_seconds"] > 0) is (found["compiles"] == 1)
        (kernel,) = (c for c in found["by_kernel"].values() if c["calls"])
        assert kernel["calls"] == 3
        json.dumps(found)
        tf_stitch.reset_stats()
        assert tf_stitch.stats()["calls"] == 0


def test_a_keras_model_from_export_to_serving(tmp_path: Path) -> None:
    tf.keras.utils.set_random_seed(7)
    model = tf.keras.Sequential(
        [
            tf.keras.Input([8]),
            tf.keras.layers.Dense(16, activation="gelu"),
            tf.keras.layers.LayerNormalization(),
            tf.keras.layers.Dense(4, activation="softmax"),
        ]
    )
    model.export(str(tmp_path / "model"), verbose=False)
    conversion = tf_stitch.convert_saved_model(tmp_path / "model", tmp_path / "stitched")
    assert conversion.stitch_ops >= 1
    before, after = (tf.saved_model.load(str(tmp_path / name)) for name in ("model", "stitched"))
    for batch in (1, 5, 64):
        x = tf.random.stateless_normal([batch, 8], [batch, 1])
        np.testing.assert_allclose(after.serve(x), before.serve(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(after.serve(x), model(x), rtol=1e-5, atol=1e-6)
