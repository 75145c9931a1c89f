"""The command: rows, means, what it says of models that cannot be counted."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench import kernel_table, kernels
from bench.__main__ import bench
from bench.kernel_rule import Kind, Launch
from bench.kernel_worker import NOT_SEEN, _unstitched
from bench.workloads.models import FetchError, Model

LEFT = {"op": "Pad", "reason": "UNSUPPORTED_OP", "kernels": 7, "nodes": 1, "example": "model/while/layer/Pad"}
FOUND = {
    "tf": {"kernels": 100, "by_op": {"AddV2": 100}},
    "xla": {"kernels": 40, "by_op": {"fusion of add": 40}},
    "stitch": {"kernels": 10, "by_op": {"StitchOp": 3, "Pad": 7}, "unstitched": [LEFT]},
}
REFUSED = FOUND | {"xla": {"absent": "ended by SIGABRT: Check failed"}}


@pytest.fixture(autouse=True)
def no_packages(monkeypatch):
    monkeypatch.setattr(Model, "path", lambda model: None)


def counted(monkeypatch, *names, found):
    monkeypatch.setattr(kernels, "_counted_elsewhere", lambda name, way: found[name][way])
    return [kernels.count(name) for name in names]


def test_a_row(monkeypatch):
    (row,) = counted(monkeypatch, "dien", found={"dien": FOUND})
    assert (row["tf_kernels"], row["xla_kernels"], row["stitch_kernels"], row["stitch_ops"]) == (100, 40, 10, 3)
    assert row["stitch_over_xla"] == 0.25
    assert row["unstitched"] == [LEFT]


def test_a_model_that_xla_refuses_counts_in_no_mean_with_it(monkeypatch):
    rows = counted(monkeypatch, "dien", "asr", found={"dien": FOUND, "asr": REFUSED})
    summary = kernels.summary(rows)
    assert summary["fewer_than_xla"] == pytest.approx(0.75)
    assert summary["fewer_than_tf"] == pytest.approx(0.9)
    assert summary["models_with_xla"] == ["dien"]
    assert rows[1]["absent"] == {"xla": "ended by SIGABRT: Check failed"}


def test_means_are_geometric(monkeypatch):
    better = FOUND | {"stitch": {"kernels": 40, "by_op": {}}}
    rows = counted(monkeypatch, "dien", "asr", found={"dien": FOUND, "asr": better})
    assert kernels.summary(rows)["fewer_than_xla"] == pytest.approx(0.5)


def test_a_model_without_its_packages_is_named_and_the_others_go_on(monkeypatch, tmp_path):
    def path(model):
        if model.name == "asr":
            raise FetchError("transformers==4.57.1 cannot be fetched: no network")

    monkeypatch.setattr(Model, "path", path)
    monkeypatch.setattr(kernels, "_counted_elsewhere", lambda name, way: FOUND[way])
    out = tmp_path / "rows.json"
    outcome = CliRunner().invoke(bench, ["kernels", "asr", "dien", "--json", str(out)])
    assert outcome.exit_code == 1
    document = json.loads(out.read_text())
    assert document["schema"] == 1
    missing, there = document["rows"]
    assert missing["absent"]["tf"] == "asr is not there: transformers==4.57.1 cannot be fetched: no network"
    assert missing["stitch_kernels"] is None
    assert there["stitch_kernels"] == 10
    assert document["summary"]["fewer_than_xla"] == pytest.approx(0.75)


def test_an_unknown_model_is_a_usage_error():
    assert CliRunner().invoke(bench, ["kernels", "nonsense"]).exit_code == 2


@pytest.mark.parametrize("why", [False, True])
def test_the_table(monkeypatch, why):
    rows = counted(monkeypatch, "dien", "asr", found={"dien": FOUND, "asr": REFUSED})
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    kernel_table.show(console, rows, kernels.summary(rows), why=why)
    text = console.export_text()
    assert "75.0%" in text
    assert "not counted, asr under xla: ended by SIGABRT: Check failed" in text
    assert ("UNSUPPORTED_OP layer/Pad" in text) == why
    assert max(map(len, text.splitlines())) <= 80


def test_what_was_left_is_grouped_by_op_and_reason():
    launches = [
        Launch("a", "Pad", Kind.MEMORY, 2),
        Launch("b", "Pad", Kind.MEMORY, 5),
        Launch("c", "Pad", Kind.MEMORY, 1),
        Launch("d", "Pad", Kind.SMALL, 9),
        Launch("e", "MatMul", Kind.COMPUTE, 9),
        Launch("f", "StitchOp", Kind.MEMORY, 9),
    ]
    reasons = {"a": "UNSUPPORTED_OP", "b": "UNSUPPORTED_OP"}
    left = {"op": "Pad", "reason": "UNSUPPORTED_OP", "kernels": 7, "nodes": 2, "example": "b"}
    assert _unstitched(launches, reasons) == [
        left,
        {"op": "Pad", "reason": NOT_SEEN, "kernels": 1, "nodes": 1, "example": "c"},
    ]


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(900)
def test_a_model_from_end_to_end(monkeypatch):
    monkeypatch.undo()
    row = kernels.count("dien")
    if "is not there" in row["absent"].get("tf", ""):
        pytest.skip(row["absent"]["tf"])
    assert row["absent"] == {}
    assert row["stitch_ops"] > 0
    assert row["stitch_kernels"] == row["stitch_ops"] + sum(left["kernels"] for left in row["unstitched"])
    assert row["stitch_kernels"] < row["tf_kernels"]
