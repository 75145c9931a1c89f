"""Races of a conversion: run by TensorFlow, and what they change in a model."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.cli.conftest import tf_stitch
from tests.tuning import models
from tf_stitch import Config, api
from tf_stitch.errors import EnvironmentProblem, UsageError
from tf_stitch.frontend import explainable, tuning
from tf_stitch.frontend.engine import engine_for
from tf_stitch.frontend.rewrite import rewrite_graph_def
from tf_stitch.frontend.saved_model import convert_saved_model
from tf_stitch.runtime import stitch_op
from tf_stitch.tuning.contest import contest_of

X = np.random.default_rng(1).standard_normal((3, 20, 64)).astype(np.float32)


def competitors_of(function, *specs):
    """Both sides of the one cluster of a function, and the key of its kernel."""
    concrete = tf.function(function).get_concrete_function(*specs)
    item = explainable._optimized(concrete)
    graph_def = explainable.graph_pb2.GraphDef.FromString(item.graph)
    graph = explainable.import_graph_def(graph_def, shapes=explainable.grappler.shapes_of(graph_def.node, item))
    (stitched,) = engine_for(Config()).stitch([graph])
    (made,) = stitched.clusters
    rewritten = rewrite_graph_def(graph_def, stitched)
    (fallback,) = tuning._by_first_node(rewritten.node, rewritten.library.function).values()
    contest = contest_of(graph, made, made.artifact.key)
    with tuning._racing():
        return tuning.competitors(made.artifact, fallback, contest), made.artifact.key


def calls(key: str) -> int:
    return stitch_op.counters()["keys"].get(key, {"calls": 0})["calls"]


class TestCompetitors:
    @pytest.mark.parametrize("everywhere", [False, True])
    def test_run_what_they_say_as_often_as_they_say(self, everywhere):
        """Also where every function is stitched: the nodes stay nodes."""
        found, key = competitors_of(models.gelu, tf.TensorSpec([8, 80 + everywhere]))
        assert found.copies == 16
        if everywhere:
            api.enable()
        try:
            with tuning._racing():
                for call, times in ((found.stitched, 16), (found.original, 0), (found.nothing, 0)):
                    before = calls(key)
                    result = call()
                    assert calls(key) - before == times
            assert np.shape(result[0]) == (8, 80 + everywhere)
        finally:
            api.disable()

    def test_compute_the_same(self):
        found, _ = competitors_of(models.gelu, tf.TensorSpec([8, 64]))
        with tuning._racing():
            np.testing.assert_allclose(found.stitched()[0], found.original()[0], rtol=1e-5, atol=1e-6)

    def test_large_ones_are_run_singly(self):
        found, _ = competitors_of(models.gelu, tf.TensorSpec([2048, 1024]))
        assert found.copies == 1


def test_a_race_that_stitching_wins(own_cache, tmp_path, layers):
    x = np.zeros((16, 256, 64), np.float32)
    found = convert_saved_model(layers, tmp_path / "out", never_slower=True, tune_inputs={"x": x})
    assert len(found.raced) == 3
    for race in found.raced:
        assert race.sizes.startswith("f32[16, 256, 64]") or race.sizes.startswith("f32[4096, 64]")
        assert race.verdict.outcome.kept
        assert race.verdict.outcome.stitch_us < race.verdict.outcome.original_us
    assert found.stitch_ops == 3
    np.testing.assert_allclose(models.answer(tmp_path / "out", X), models.answer(layers, X), rtol=1e-4, atol=1e-6)


def test_losers_stay_as_they_were_and_the_answer_is_right(own_cache, tmp_path, layers, monkeypatch):
    plain = convert_saved_model(layers, tmp_path / "all")
    (alone,) = [c for c in plain.clusters if "Softmax" in dict(c.nodes).values()]
    raced = models.rig(monkeypatch, lambda contest: contest.kernel == alone.kernel)
    found = convert_saved_model(layers, tmp_path / "out", never_slower=True)
    assert {r.cluster: r.verdict.kept for r in found.raced}[alone.id.removeprefix("stitch/")] is False
    assert found.stitch_ops == plain.stitch_ops - 1
    assert found.rejections["SLOWER"] == len(alone.nodes)
    assert alone.kernel not in {c.kernel for c in found.clusters}
    assert len(raced) == len({(c.kernel, c.nodes, c.operands) for c in raced})  # equal ones once
    assert len(raced) < len(found.raced)
    np.testing.assert_allclose(models.answer(tmp_path / "out", X), models.answer(layers, X), rtol=1e-4, atol=1e-6)


def test_a_second_conversion_races_nothing(own_cache, tmp_path, layers, monkeypatch):
    raced = models.rig(monkeypatch, lambda contest: False)
    first = convert_saved_model(layers, tmp_path / "a", never_slower=True)
    count = len(raced)
    assert count > 0
    second = convert_saved_model(layers, tmp_path / "b", config=Config(never_slower=True))
    assert len(raced) == count
    assert {r.verdict.why for r in second.raced} == {"recorded"}
    assert [r.verdict.outcome for r in second.raced] == [r.verdict.outcome for r in first.raced]
    for record in (own_cache / "races").rglob("*.json"):
        record.write_text("damaged")
    convert_saved_model(layers, tmp_path / "c", never_slower=True)
    assert len(raced) == 2 * count


def test_an_error_in_a_race_costs_nothing_but_the_race(own_cache, tmp_path, layers, monkeypatch):
    def fails(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr(tuning, "competitors", fails)
    with pytest.raises(RuntimeError, match="out of order"):
        convert_saved_model(layers, tmp_path / "strict", never_slower=True)
    assert not (tmp_path / "strict").exists()
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    found = convert_saved_model(layers, tmp_path / "out", never_slower=True)
    assert found.stitch_ops == 3
    assert {r.verdict.why for r in found.raced} == {"RuntimeError: out of order", "an error"}


def test_kernels_for_another_machine_are_not_raced(own_cache, tmp_path, layers):
    other = "aarch64" if engine_for(Config()).target.machine != "aarch64" else "x86-64"
    try:
        found = convert_saved_model(layers, tmp_path / "out", config=Config(cpu_baseline=other), never_slower=True)
    except EnvironmentProblem as error:
        pytest.skip(f"no compiler for {other}: {error}")
    assert len(found.raced) == 3
    assert all(r.verdict.outcome is None for r in found.raced)


@pytest.mark.parametrize(("name", "shape"), [("y", (2, 3, 64)), ("x", (2, 3, 65)), ("x", (64,))])
def test_inputs_that_the_model_does_not_have(own_cache, tmp_path, layers, name, shape):
    with pytest.raises(UsageError, match=f"'{name}'"):
        convert_saved_model(layers, tmp_path / "out", never_slower=True, tune_inputs={name: np.zeros(shape)})
    assert not (tmp_path / "out").exists()


# ---- explain ------------------------------------------------------------------------------------------------


def test_explain_shows_what_was_measured(own_cache, tmp_path, layers, monkeypatch):
    models.rig(monkeypatch, lambda contest: True)
    before = api.explain(str(layers))
    assert "measured" not in str(before)
    assert "launches" in str(before)
    convert_saved_model(layers, tmp_path / "out", never_slower=True)
    after = api.explain(str(layers))
    assert len(after.clusters) == 3
    assert "slower, and so left out where kernels are raced" in str(after).replace("\n           ", " ")
    assert all(len(c.measured) == 1 for c in after.clusters)
    assert "measured: stitched" in after.to_html()
    assert json.loads(json.dumps(after.to_json()))["graphs"]
    chosen = api.explain(str(layers), config=Config(never_slower=True))
    assert chosen.clusters == ()
    assert "SLOWER" in str(chosen)


# ---- the command --------------------------------------------------------------------------------------------


def test_command(own_cache, tmp_path, layers):
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 32, 64), np.float32))
    options = ("--tune", "--tune-inputs", tmp_path / "x.npz", "--tune-seconds", 20)
    found = tf_stitch("convert", layers, tmp_path / "out", *options)
    assert found.code == 0
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert "raced" in found.stdout
    assert "µs" in found.stdout
    as_json = tf_stitch("convert", layers, tmp_path / "again", *options, "--json").json
    assert len(as_json["tuned"]) == 3
    for race in as_json["tuned"]:
        assert {"cluster", "stitch_us", "original_us", "kept"} <= set(race)
        assert race["how"] == "recorded"
        assert race["original_us"] > 0
    assert tf_stitch("convert", layers, tmp_path / "plain", "--json").json["tuned"] == []
    assert any((own_cache / "races").iterdir())
    assert tf_stitch("cache", "clear").code == 0
    assert not (own_cache / "races").exists()


def test_every_kernel_loses(own_cache, tmp_path, layers, monkeypatch):
    models.rig(monkeypatch, lambda contest: True)
    found = tf_stitch("convert", layers, tmp_path / "out", "--tune")
    assert found.code == 3
    assert "every kernel was slower" in found.stderr
    assert "SLOWER" in found.stdout
    assert not (tmp_path / "out").exists()
    as_json = tf_stitch("convert", layers, tmp_path / "out", "--tune", "--json")
    assert as_json.code == 3
    assert [race["kept"] for race in as_json.json["tuned"]] == [False] * 3


def test_no_time(own_cache, tmp_path, layers):
    found = tf_stitch("convert", layers, tmp_path / "out", "--tune", "--tune-seconds", 1e-9, "--json").json
    assert found["stitch_ops"] == 3
    raced = [r for r in found["tuned"] if r["stitch_us"] is not None]
    assert len({r["kernel"] for r in raced}) == 1  # the first, and its equals
    assert "no time left" in {r["how"] for r in found["tuned"]}


@pytest.mark.parametrize("content", [None, b"", b"PK\3\4 damaged", b"not a zip"])
def test_damaged_inputs(own_cache, tmp_path, layers, content):
    if content is not None:
        (tmp_path / "x.npz").write_bytes(content)
    found = tf_stitch("convert", layers, tmp_path / "out", "--tune", "--tune-inputs", tmp_path / "x.npz")
    assert found.code == 2
    assert "cannot be read as a .npz file" in found.stderr
    assert found.stderr.count("\n") == 1


def test_options_that_need_tune(own_cache, tmp_path, layers):
    found = tf_stitch("convert", layers, tmp_path / "out", "--tune-seconds", 3)
    assert found.code == 2
    assert "--tune" in found.stderr
