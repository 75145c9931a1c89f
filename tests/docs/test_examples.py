"""The README's ways in, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import tensorflow as tf

import tf_stitch
from tests.cli import models

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


class Model:
    """Stands for a Keras model."""

    def __init__(self):
        self.step = tf.function(lambda x: tf.nn.softmax(x * 2.0 + 1.0))

    def fit(self, data):
        return self.step(data)


def test_all_of_them(tmp_path, monkeypatch, capsys):
    models.save(models.Block(), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    tf_stitch.reset_stats()
    names = {"model": Model(), "data": tf.ones([20, 80]), "scores": tf.ones([20, 80]), "mask": tf.zeros([20, 80])}
    for example in EXAMPLES:
        exec(compile(example, "README.md", "exec"), names)
    weights = names["attention_weights"](names["scores"], names["mask"])
    np.testing.assert_allclose(weights, np.full((20, 80), 0.0125), rtol=1e-6)
    printed = capsys.readouterr().out
    assert printed.startswith("2 {")  # the conversion's
    assert "one kernel" in printed
    assert (tmp_path / "stitched" / "saved_model.pb").is_file()
    assert tf_stitch.stats()["calls"] >= 2


def test_switch():
    softmax = tf.function(lambda x: tf.nn.softmax(x * 3.0 + 1.0))
    tf_stitch.reset_stats()
    tf_stitch.enable()
    try:
        softmax(tf.ones([20, 80]))
    finally:
        tf_stitch.disable()
    assert tf_stitch.stats()["calls"] == 1
