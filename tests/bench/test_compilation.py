"""`bench compile`: first calls of one shape and of many."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench import compilation, models_process
from bench.__main__ import bench
from bench.models_process import Failure
from bench.workloads.models import FetchError, Model
from tests.bench.saved_models import WIDTH, Layer, in_this_process, saved


def test_a_cluster_of_several_shapes_is_one_kernel():
    found = compilation.costs("cluster", "rms_norm", "stitch", [1, 4])
    assert list(found["by_count"]) == ["1", "4"]
    one, four = found["by_count"].values()
    assert 0 < one["first_calls_s"] <= four["first_calls_s"]
    assert four["kernels"] - one["kernels"] == 0


@pytest.mark.parametrize("way", ["tf", "stitch"])
def test_a_model_of_unknown_batch(monkeypatch, tmp_path, way):
    import numpy as np

    path = saved(Layer(), tmp_path / "layer")
    monkeypatch.setattr(Model, "path", lambda model: path)
    monkeypatch.setattr(Model, "inputs", lambda model, size: {"x": np.ones((size[0], WIDTH), np.float32)})
    found = compilation.costs("model", "dien", way, [1, 3])
    assert found["by_count"]["3"]["compile_cpu_s"] >= found["by_count"]["1"]["compile_cpu_s"] > 0


def test_a_workload_that_is_not_there_is_named():
    with pytest.raises(LookupError, match="no workload nonsense; there are: "):
        compilation.costs("cluster", "nonsense", "tf", [1])


def test_what_takes_too_long_is_told(monkeypatch):
    monkeypatch.setattr(Model, "path", lambda model: None)

    def run(task, asked, cache, limit_s):
        return Failure("not ready after 9 s") if asked["kind"] == "model" else in_this_process(task, asked, cache, 9)

    rows = list(compilation.measured({"cluster": "rms_norm", "model": "dien"}, [1, 2], 1, 9, run))
    assert [(row["kind"], row["shapes"]) for row in rows] == [(k, n) for k in ("cluster", "model") for n in (1, 2)]
    cluster, model = rows[1], rows[3]
    assert set(cluster["compile_cpu_s"]) == set(cluster["first_calls_s"]) == {"tf", "xla", "stitch"}
    assert cluster["refused"] == {}
    assert model["first_calls_s"] == {}
    assert model["refused"] == dict.fromkeys(("tf", "xla", "stitch"), "not ready after 9 s")
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(compilation.render(rows))
    text = console.export_text()
    assert "dien, xla: not ready after 9 s" in text
    assert max(map(len, text.splitlines())) <= 80


def test_exit_codes(monkeypatch, tmp_path):
    def path(model):
        raise FetchError("no network")

    monkeypatch.setattr(Model, "path", path)
    costs = {"by_count": {"1": {"first_calls_s": 1.0, "compile_cpu_s": 1.0, "kernels": None}}}
    monkeypatch.setattr(models_process, "run", lambda *_: costs)
    monkeypatch.setattr(compilation.measured, "__defaults__", (models_process.run,))
    out = tmp_path / "rows.json"
    outcome = CliRunner().invoke(bench, ["compile", "--shapes", "1", "--json", str(out)])
    assert outcome.exit_code == compilation.FAILED
    document = json.loads(out.read_text())
    assert document["command"] == "compile"
    assert [set(row["refused"].values()) for row in document["rows"]] == [set(), {"no network"}]
