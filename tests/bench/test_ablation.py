"""`bench ablation` on a function small enough to count by hand."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from rich.console import Console

import tf_stitch
from bench import ablation, ablation_worker, report_ablation, report_terminal, results, timing
from bench.__main__ import bench
from bench.ablation_steps import ABLATIONS
from bench.report_parts import Run
from bench.workloads.models import FetchError, Model

ROWS, WIDTH = 256, 96
ARRAY = 4 * ROWS * WIDTH  # bytes
COLUMN = 4 * ROWS


def softmax(x):
    """Written out, scaled so that there is something in front: 6 ops, 2 of them reductions."""
    x = tf.tanh(x) * 8.0
    e = tf.exp(x - tf.reduce_max(x, axis=1, keepdims=True))
    return {"y": e / tf.reduce_sum(e, axis=1, keepdims=True)}


@pytest.fixture(scope="module")
def row():
    x = tf.constant(np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32))
    tf_stitch.reset_stats()  # of what other tests of this process let fall back
    found = ablation_worker.compared(softmax, {"x": x}, 1, 1e-5, timing.QUICK)
    return {"model": "softmax", "size": f"{ROWS}x{WIDTH}", "threads": 1, "clock": "cpu", "absent": "", **found}


def test_each_step_has_what_the_one_before_it_has():
    off = [set(step.off) for step in ABLATIONS]
    assert all(after < before for before, after in pairwise(off))
    assert off[-1] == set()


def test_kernels_are_counted_step_by_step(row):
    kernels = {name: way["kernels"] for name, way in row["ways"].items()}
    assert kernels == {"tf": 7, "fusion": 3, "mapping": 3, "stitching": 1, "full": 1}
    assert row["ways"]["full"]["stitch_ops"] == 1
    assert row["disagree"] == []


def test_bytes_are_those_of_the_loop_nests(row):
    moved = {name: way["bytes"] for name, way in row["ways"].items()}
    assert moved["tf"] is None
    assert moved["full"] == 2 * ARRAY
    # Each reduction, and each output, has a nest of its own: max and its operand; sum and its operand; the quotient.
    nests = [(1, 1), (2, 0), (1, 2), (2, 1), (2, 1)]
    fusion = sum(arrays * ARRAY + columns * COLUMN for arrays, columns in nests)
    assert moved["fusion"] == moved["mapping"] == fusion
    assert 2 * ARRAY < moved["stitching"] < fusion
    assert all(not way["unsized"] for way in row["ways"].values())


def test_bytes_are_not_told_where_many_sizes_are_unknown(row):
    def changed(unsized, kernels):
        return {"ways": {"full": {"kernels": kernels, "bytes": 8, "unsized": unsized}}}

    assert report_ablation.measure(row, "full", "bytes") == 2 * ARRAY
    assert report_ablation.measure(changed(1, 20), "full", "bytes") == 8
    assert report_ablation.measure(changed(3, 20), "full", "bytes") is None
    assert report_ablation.measure(changed(3, 20), "full", "kernels") == 20


def test_times_have_a_spread(row):
    for way in row["ways"].values():
        assert 0 < way["best"] <= way["q1"] <= way["ms"] <= way["q3"]


def test_the_summary_is_of_full_over_each_step(row):
    over = ablation.summary([row])["full_over"]
    assert over["kernels"] == {
        "fusion": pytest.approx(1 / 3),
        "mapping": pytest.approx(1 / 3),
        "stitching": 1,
        "full": 1,
    }
    assert over["ms"]["full"] == pytest.approx(1)


@pytest.mark.parametrize(
    "changes", [{}, {"disagree": ["full"]}, {"model": "a-model-with-a-name-that-goes-on-and-on" * 2}]
)
def test_the_table_fits_80_columns(row, changes):
    rows = [row | changes]
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    report_terminal.show(console, report_ablation.sections(Run(Path(), "ablation", rows, ablation.summary(rows))))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert ("wrong output" in text) == ("disagree" in changes)


def test_outputs_agree_or_not():
    right = [np.float32([1.0, -4.0, np.nan]), np.int32([3, 4]), np.array([b"x"], object), np.zeros(0, np.float32)]

    def agree(*changed):
        return ablation_worker._agree([*changed, *right[len(changed) :]], right, 1e-5)

    assert agree()
    assert agree(np.float32([1.0 + 3e-5, -4.0, np.nan]))  # of the largest, 4
    assert not agree(np.float32([1.0 + 5e-5, -4.0, np.nan]))
    assert not agree(np.float32([np.nan, -4.0, np.nan]))
    assert not agree(right[0], np.int32([3, 5]))
    assert not agree(right[0], right[1], np.array([b"y"], object))


def test_a_model_that_is_not_there_is_named(tmp_path, monkeypatch):
    def unavailable(self):
        raise FetchError("no network\nat all")

    monkeypatch.setattr(Model, "path", unavailable)
    outcome = CliRunner().invoke(bench, ["ablation", "crnn", "--json", str(tmp_path / "a.json")])
    assert outcome.exit_code == 1
    assert "not measured: crnn, crnn is not there: at all" in outcome.stdout
    document = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert (document["schema"], document["command"]) == (results.SCHEMA, "ablation")
    assert document["rows"][0]["ways"] == {}


def test_a_process_that_fails_is_a_row_with_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setattr(Model, "path", lambda self: tmp_path)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho at first >&2\necho no bench in here >&2\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setattr(ablation.sys, "executable", str(other))
    row = ablation.measured("crnn", 1)
    assert row["ways"] == {}
    assert "no bench in here" in row["absent"]
