"""Whole rows of `bench models`, on models made here: what is measured, and what is told of what goes wrong."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from bench import (
    models,
    models_bytes,
    models_differences,
    models_measure,
    models_process,
    models_row,
    models_ways,
    models_worker,
)
from bench.__main__ import bench
from bench.models_process import Failure
from bench.timing import Effort
from bench.workloads.models import ALL, FetchError, Model
from tests.bench.saved_models import Layer, Product, Texts, case_of, in_this_process, saved, training

PLAN = models_measure.QUICK
FIELDS = {
    *("model", "mode", "size", "threads", "clock", "tf_ms", "xla_ms", "xla_refused", "xla_auto_ms", "xla_auto_refused"),
    *("stitch_ms", "tf_over_stitch", "xla_over_stitch", "better_over_stitch", "processes", "spread", "ratio_spread"),
    *("stitch_ops", "fallbacks", "ops", "kernels", "max_err", "reference", "errors", "first_call_s", "first_calls_s"),
    *("compile_cpu_s", "peak_mb", "peaks_mb", "breakdown", "ceiling_over_tf", "gemm_share", "bytes", "flags", "notes"),
}


@pytest.fixture(autouse=True, scope="module")
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models_worker, "effort", lambda calls, quick: Effort(0.05, 0.002, 2, 3))
        patch.setattr(models_bytes, "triad_gb_per_s", lambda threads: 20.0)
        yield


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    return saved(Layer(), tmp_path_factory.mktemp("models") / "layer")


@pytest.fixture(scope="module")
def row(layer, tmp_path_factory):
    """Of `layer`, by two processes' worth of turns, with traces in `profile`."""
    scratch = tmp_path_factory.mktemp("row")
    plan = dataclasses.replace(PLAN, processes=2, profile=scratch / "profile")
    return measured(layer, scratch, plan) | {"profile": scratch / "profile"}


def measured(path, tmp_path, plan=PLAN, threads=1, **case):
    return models_measure.row(case_of(path, tmp_path, **case), threads, plan, run=in_this_process)


def loaded_ways(case, *names):
    return {way.name: way for way in models_ways.ways(case, names)}


def flags(row):
    """Without the one that is a matter of time."""
    return [flag for flag in row["flags"] if flag != "slower"]


def test_a_row(row):
    row = {key: value for key, value in row.items() if key != "profile"}
    assert set(row) >= FIELDS
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["stitch_ops"] >= 1
    assert row["fallbacks"] == 0
    assert row["max_err"] < 1e-5
    assert flags(row) == []
    assert not models_row.is_wrong(row)
    assert row["ops"]["stitch"] < row["ops"]["tf"]
    assert set(row["spread"]) == {"tf", "xla", "stitch"}
    assert all(s["best"] <= s["q1"] <= s["median"] <= s["q3"] for s in row["spread"].values())


def test_the_parts_are_the_whole(row):
    for way in ("tf", "stitch"):
        parts = row["breakdown"][way]
        assert parts["compute_ops"] == 1
        total = parts["compute_ms"] + parts["memory_ms"] + parts["gap_ms"]
        assert total == pytest.approx(row["spread"][way]["per_process"][0], rel=1e-6)
    assert row["breakdown"]["stitch"]["memory_ops"] < row["breakdown"]["tf"]["memory_ops"]
    assert 1 < row["ceiling_over_tf"]["third"] < row["ceiling_over_tf"]["none"]


def test_bytes_are_the_planners(row):
    """One kernel of 5 rows: reads the product, writes both outputs."""
    assert row["stitch_ops"] == 1
    assert row["bytes"]["model_mb"] * 1e6 == pytest.approx(3 * 5 * 24 * 4)
    assert row["bytes"]["triad_gb_per_s"] == 20.0


def test_processes_are_summed_up(row):
    assert row["processes"] == 2
    tf_ms, stitch_ms = (row["spread"][way]["per_process"] for way in ("tf", "stitch"))
    assert row["stitch_ms"] == pytest.approx(sum(stitch_ms) / 2)
    ratios = [a / b for a, b in zip(tf_ms, stitch_ms, strict=True)]
    assert row["tf_over_stitch"] == pytest.approx(sum(ratios) / 2)
    assert row["ratio_spread"]["tf_over_stitch"]["median"] == row["tf_over_stitch"]


def test_float64_is_the_reference_where_the_plan_has_it(layer, tmp_path):
    row = measured(layer, tmp_path, dataclasses.replace(PLAN, float64=True))
    assert row["reference"] == "float64"
    assert 0 < row["errors"]["tf"] < 1e-5
    assert flags(row) == []


def test_a_float64_run_that_fails_is_told(layer, tmp_path):
    def run(task, *arguments):
        return Failure("no kernel") if task == "reference" else in_this_process(task, *arguments)

    plan = dataclasses.replace(PLAN, float64=True)
    row = models_measure.row(case_of(layer, tmp_path), 1, plan, run=run)
    assert row["reference"] == "tf"
    assert any("float64 failed: no kernel" in note for note in row["notes"])


def patched(monkeypatch, change):
    """A stitched function that changes what it returns."""
    stitched = models_ways.COMPILED["stitch"]
    monkeypatch.setitem(models_ways.COMPILED, "stitch", lambda step: stitched(lambda **inputs: change(step(**inputs))))


def test_a_wrong_answer_is_flagged(monkeypatch, layer, tmp_path):
    patched(monkeypatch, lambda outputs: outputs | {"normal": outputs["normal"] * 1.001})
    row = measured(layer, tmp_path)
    assert flags(row) == ["mismatch"]
    assert models_row.is_wrong(row)
    assert row["max_err"] == pytest.approx(1e-3, rel=0.01)
    assert any("'normal'" in note for note in row["notes"])


def test_a_wrong_answer_is_flagged_beside_float64(monkeypatch, layer, tmp_path):
    patched(monkeypatch, lambda outputs: outputs | {"normal": outputs["normal"] * 1.001})
    assert flags(measured(layer, tmp_path, dataclasses.replace(PLAN, float64=True))) == ["mismatch"]


def test_an_output_that_is_missing_is_a_mismatch(monkeypatch, layer, tmp_path):
    patched(monkeypatch, lambda outputs: {"normal": outputs["normal"]})
    assert flags(measured(layer, tmp_path)) == ["mismatch"]


def test_nothing_to_stitch_is_flagged(tmp_path):
    row = measured(saved(Product(), tmp_path / "product"), tmp_path)
    assert flags(row) == ["nothing stitched"]
    assert row["bytes"]["model_mb"] is None


def test_what_xla_refuses_is_measured_without_it(tmp_path):
    row = measured(saved(Texts(), tmp_path / "texts"), tmp_path)
    assert row["xla_ms"] is None
    assert row["xla_over_stitch"] is None
    assert "Detected unsupported operations: " in row["xla_refused"]
    assert row["better_over_stitch"] == row["tf_over_stitch"]
    assert flags(row) == []


def test_auto_clustering_has_a_process_of_its_own(layer, tmp_path):
    asked = []

    def run(task, arguments, cache, limit_s):
        asked.append((task, arguments.get("ways"), arguments.get("auto", False)))
        return in_this_process(task, arguments, cache, limit_s)

    plan = dataclasses.replace(PLAN, auto=True)
    row = models_measure.row(case_of(layer, tmp_path), 1, plan, run=run)
    assert asked[-1] == ("turns", ["tf-beside-auto", "xla-auto"], True)
    assert row["xla_auto_refused"] == "no op was clustered"  # without its flag, as here


# ---- training -----------------------------------------------------------------------------------------------


def test_a_training_step(tmp_path):
    row = measured(saved(training(), tmp_path / "net-train"), tmp_path, mode="train", tolerance=1e-4)
    assert row["mode"] == "train"
    assert flags(row) == []
    assert row["max_err"] < 1e-4


def test_a_wrong_gradient_is_flagged(monkeypatch, tmp_path):
    patched(monkeypatch, lambda outputs: outputs | {"gradient/1": outputs["gradient/1"] + 1e-3})
    row = measured(saved(training(), tmp_path / "net-train"), tmp_path, mode="train", tolerance=1e-4)
    assert flags(row) == ["mismatch"]
    assert any("gradient/1" in note for note in row["notes"])


def test_variables_are_compared(tmp_path):
    """Loss and gradients of the last step are right, and what it stores is not."""
    case = case_of(saved(training(), tmp_path / "net-train"), tmp_path, mode="train")
    found = loaded_ways(case, "tf", "stitch")
    stitch, calls = found["stitch"], []

    def wrong(**inputs):
        outputs = stitch.function(**inputs)
        calls.append(outputs)
        if len(calls) == models_differences.STEPS:
            stitch.loaded.variables[0].assign_add(tf.ones_like(stitch.loaded.variables[0]))
        return outputs

    right, _ = models_differences.differences(found, case, None).worst["stitch"]
    assert right < 1e-6
    found["stitch"] = dataclasses.replace(stitch, function=wrong)
    error, where = models_differences.differences(found, case, None).worst["stitch"]
    assert error > 0.5
    assert where.startswith("variable 0")


@pytest.mark.parametrize(("change", "explained"), [(1e-9, True), (1e-3, False)])
def test_what_a_rounding_explains_is_left_out(monkeypatch, tmp_path, change, explained):
    """A softmax ignores a number that is added to all that it sees: its gradient is 0, but for rounding."""
    case = case_of(saved(training(ignored=True), tmp_path / "net-train"), tmp_path, mode="train", tolerance=1e-4)
    patched(monkeypatch, lambda outputs: outputs | {"gradient/2": outputs["gradient/2"] + change})
    found = loaded_ways(case, "tf", "stitch")
    assert np.abs(found["tf"]()["gradient/2"].numpy()).max() < 1e-7
    compared = models_differences.differences(found, case, None)
    assert ("gradient/2" in compared.left_out) == explained
    assert (compared.worst["stitch"][0] < case.tolerance) == explained
    assert compared.tensors == 1 + 3 + 3  # the loss, gradients and variables


def test_each_way_trains_its_own_copy(tmp_path):
    case = case_of(saved(training(), tmp_path / "net-train"), tmp_path, mode="train")
    found = loaded_ways(case, "tf", "xla")
    before = found["xla"].loaded.variables[0].numpy()
    found["tf"]()
    np.testing.assert_array_equal(found["xla"].loaded.variables[0].numpy(), before)
    assert not np.array_equal(found["tf"].loaded.variables[0].numpy(), before)
    found["tf"].loaded.start_again()
    np.testing.assert_array_equal(found["tf"].loaded.variables[0].numpy(), before)


def test_a_step_that_changes_nothing_is_no_training(tmp_path):
    row = measured(saved(training(rate=0.0), tmp_path / "net-train"), tmp_path, mode="train")
    assert "changed no variable" in row["absent"]
    assert models_row.is_wrong(row)


def test_a_training_model_needs_its_variables(tmp_path):
    row = measured(saved(training(attached=False), tmp_path / "net-train"), tmp_path, mode="train")
    assert "`variables`" in row["absent"]


# ---- processes ----------------------------------------------------------------------------------------------


def test_a_worker_that_crashes_leaves_an_absent_row(monkeypatch, layer, tmp_path):
    monkeypatch.setattr(models_process, "COMMAND", (sys.executable, "-c", "import os; os.abort()"))
    row = models_measure.row(case_of(layer, tmp_path), 1, PLAN)
    assert row["absent"] == "tf: ended by SIGABRT"
    assert models_row.is_wrong(row)
    summary = models_row.summary([row])
    assert summary["absent"] == ["layer: tf: ended by SIGABRT"]


def test_a_crash_under_xla_alone_is_a_refusal(layer, tmp_path):
    def run(task, asked, cache, limit_s):
        if task == "cold" and asked["way"] == "xla":
            return Failure("ended by SIGSEGV")
        return in_this_process(task, asked, cache, limit_s)

    row = models_measure.row(case_of(layer, tmp_path), 1, PLAN, run=run)
    assert row["xla_refused"] == "ended by SIGSEGV"
    assert flags(row) == []


def test_a_process_has_a_limit(monkeypatch, tmp_path):
    monkeypatch.setattr(models_process, "COMMAND", (sys.executable, "-c", "import time; time.sleep(60)"))
    assert models_process.run("cold", {}, tmp_path, 0.5) == Failure("not ready after 0 s")


def test_a_process_that_fails_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(models_process, "COMMAND", (sys.executable, "-c", "raise SystemExit('no such luck')"))
    assert models_process.run("cold", {}, tmp_path, 60) == Failure("no such luck")


@pytest.mark.slow
def test_a_task_that_fails_says_why(layer, tmp_path):
    case = dataclasses.replace(case_of(layer, tmp_path), signature="train")
    found = models_process.run("cold", {"case": case.to_json(), "threads": 1, "way": "tf"}, tmp_path, 120)
    assert isinstance(found, Failure)
    assert found.reason.startswith("KeyError")
    assert "train" in found.reason


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_processes_of_their_own(layer, tmp_path):
    case = case_of(layer, tmp_path)
    asked = {"case": case.to_json(), "threads": 1, "quick": True}
    found = models_process.run("cold", {**asked, "way": "stitch"}, tmp_path / "kernels", 120)
    assert not isinstance(found, Failure), found
    assert 0 < found["second_call_s"] < found["first_call_s"]
    assert found["peak_mb"] > 100
    assert list((tmp_path / "kernels").iterdir())
    ways = ["tf-beside-auto", "xla-auto"]
    found = models_process.run("turns", {**asked, "ways": ways, "look": False, "auto": True}, tmp_path / "kernels", 120)
    assert not isinstance(found, Failure), found
    assert found["clusters"] > 0


# ---- the command --------------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_fetched_is_named_and_the_others_go_on(monkeypatch, tmp_path, layer):
    def path(model):
        if model.name == "asr":
            raise FetchError("transformers==4.57.1 cannot be fetched: no network")
        return layer

    monkeypatch.setattr(Model, "path", path)
    monkeypatch.setattr(Model, "inputs", lambda model, size: {"x": np.ones((5, 24), np.float32)})
    measure = models_measure.row
    monkeypatch.setattr(
        models_measure, "row", lambda case, threads, plan, kernels: measure(case, threads, plan, run=in_this_process)
    )
    out = tmp_path / "rows.json"
    outcome = CliRunner().invoke(bench, ["models", "asr", "dien", "--quick", "--threads", "1", "--json", str(out)])
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(out.read_text())
    assert (document["schema"], document["command"]) == (1, "models")
    absent, there = document["rows"]
    assert absent["absent"] == "transformers==4.57.1 cannot be fetched: no network"
    assert there["model"] == "dien"
    assert document["summary"]["absent"] == ["asr: transformers==4.57.1 cannot be fetched: no network"]
    assert "better_over_stitch" in document["summary"]["geomeans"]["infer"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [({}, 0), ({"flags": ["slower"]}, 0), *(({"flags": [flag]}, 1) for flag in models_row.WRONG)],
)
def test_exit_codes(monkeypatch, row, changes, code):
    changed = row | {"flags": []} | changes
    monkeypatch.setattr(models, "measured", lambda *_, **__: iter([changed]))
    assert CliRunner().invoke(bench, ["models", "dien", "--quick"]).exit_code == code


def test_a_row_that_failed_ends_the_command_with_an_error(monkeypatch):
    row = models_row.absent_row("dien", "infer", "tf: ended by SIGABRT", failed=True)
    monkeypatch.setattr(models, "measured", lambda *_, **__: iter([row]))
    outcome = CliRunner().invoke(bench, ["models", "dien", "--quick"])
    assert outcome.exit_code == 1
    assert "dien: tf: ended by SIGABRT" in outcome.output


def test_which_models_are_measured():
    infer = models.chosen((), train=False)
    everything = models.chosen((), train=True)
    assert {m.name for m in everything} == set(ALL)
    assert {m.name for m in infer} <= {m.name for m in everything}
    assert [m.name for m in models.chosen(("dien", "asr", "dien"), train=False)] == ["dien", "asr"]


@pytest.mark.parametrize("arguments", [["nonsense"], ["--threads", "0"], ["--processes", "0"]])
def test_mistakes_are_usage_errors(arguments):
    assert CliRunner().invoke(bench, ["models", *arguments]).exit_code == 2


def test_profiles(row):
    trace = json.loads((row["profile"] / "layer-5x24-1t-stitch.json").read_text())
    names = {event["name"] for event in trace["traceEvents"]}
    assert {"step", "StitchOp"} <= names
    assert any("MatMul" in name for name in names)
    table = (row["profile"] / "layer-5x24-1t-stitch.txt").read_text()
    assert "StitchOp" in table
    assert "the longest gaps" in table
