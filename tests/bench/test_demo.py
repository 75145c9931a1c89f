import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from bench import demo, demo_report, trace

CONVERSION = {
    "nodes_before": 718,
    "nodes_after": 402,
    "stitch_ops": 37,
    "kernels_compiled": 29,
    "compile_seconds": 6.34,
    "rejections": {"TOO_SMALL": 7, "UNSUPPORTED_OP": 61},
    "clusters": [{"id": "c0", "nodes": [{"name": "a/<b>&", "op": "Sub"}], "schemes": ["LOCAL"], "dynamic": True}],
}


class Loudness(tf.Module):
    """A model with the demo model's input."""

    def __init__(self):
        self.gain = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None, demo.SAMPLES, 1])])
    def __call__(self, x):
        return {"loudness": tf.math.log(tf.reduce_mean(tf.square(self.gain * x), axis=1) + 1.0)}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo") / "model"
    model = Loudness()
    tf.saved_model.save(model, directory, signatures=model.__call__)
    return demo.run(directory, copy_instead, (1, 2), Console(quiet=True))


def copy_instead(source, destination):
    shutil.copytree(source, destination)
    return CONVERSION


def test_rows(outcome):
    rows, summary = outcome
    assert [row["shape"] for row in rows] == [f"{b}x{demo.SAMPLES}x1" for b in (1, 2)]
    for row in rows:
        assert row["max_difference"] == 0
        assert row["disagree"] == []
        assert row["tf_ops"] == row["stitch_ops"] >= 4
        assert row["stitch_kernels"] == 0
        assert row["tf_over_stitch"] == pytest.approx(row["tf_ms"] / row["stitch_ms"])
    assert summary["conversion"] == CONVERSION


def test_the_table_fits_80_columns(outcome):
    rows, summary = outcome
    console = Console(width=80, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(demo.table(rows))
    console.print(demo.closing(rows, summary))
    text = console.export_text()
    assert "…" not in text.replace("Reshape, …", "")
    assert "37 StitchOps" in text


def test_the_report_stands_alone_and_escapes(outcome):
    html = demo_report.render(*outcome)
    assert "a/&lt;b&gt;&amp; (Sub)" in html
    assert not re.search(r"https?://|\bsrc=|\bhref=|@import|url\(", html)
    assert html.count("<svg") == 4
    assert html.index("UNSUPPORTED_OP") < html.index("TOO_SMALL")
    assert "nan" not in html.lower().replace("dominant", "")


def test_the_report_without_a_profile(outcome):
    rows, summary = outcome
    blind = [row | {"tf_ops": None, "stitch_ops": None, "stitch_kernels": None} for row in rows]
    assert "Ops executed" not in demo_report.render(blind, summary)


def test_a_difference_is_seen(outcome):
    rows, summary = outcome
    html = demo_report.render([rows[0] | {"disagree": ["stitch"], "max_difference": 0.1}], summary)
    assert "The outputs differ." in html


def test_ops_are_counted_as_they_run():
    @tf.function
    def three_times(x):
        for _ in tf.range(3):
            x = tf.matmul(x, x)
        return x

    x = tf.constant(np.eye(4, dtype=np.float32))
    three_times(x)
    ops = trace.executed_ops(lambda: three_times(x))
    assert ops is not None
    assert sum(n for op, n in ops.items() if "MatMul" in op) == 3
