import itertools
import json
import math
from collections import Counter

import pytest
import tensorflow as tf

import tf_stitch
from bench import harness, results, timing
from bench.baselines import Absent, Way, ways
from bench.harness import NO_AGREEMENT, Case
from bench.timing import Effort
from bench.workloads.clusters import find
from bench.workloads.optimizers import LAYERS

ONE_ROUND = Effort(budget_s=0, slice_s=0.001, fewest_rounds=2, most_rounds=2)
TF, XLA, _ = ways()
MISSING = Absent("stitch", "not here")

ROW = {
    *("workload", "shape", "threads", "tf_ms", "xla_ms", "stitch_ms", "tf_over_stitch", "xla_over_stitch"),
    *("stitch_kernels", "stitch_left", "xla_kernels", "max_err_f64", "tf_err_f64"),
}


def slow_copy_of_tf(change=0.0) -> Way:
    """Stands for tf_stitch."""
    return Way("stitch", lambda f: tf.function(lambda *a: shifted(f(*a), change), autograph=False))


def shifted(outputs, change):
    return tf.nest.map_structure(lambda t: t + change, outputs)


@pytest.fixture
def no_stats(monkeypatch):
    monkeypatch.setattr("bench.baselines.stitch_counts", lambda: (0, 0))
    monkeypatch.setattr("bench.baselines.left_by_stitch", lambda *_: Counter())


@pytest.mark.parametrize(
    "name", ["residual_layernorm", "lstm_pointwise", "batchnorm_relu", "batchnorm_plain", "sparse_softmax_xent"]
)
@pytest.mark.usefixtures("no_stats")
def test_a_row_has_what_the_schema_says(name):
    workload = find(name)
    shape = (4, 32) if len(workload.quick[0]) == 2 else (1, 4, 4, 8)
    row = harness.measure(Case.of(workload, shape, 4), (TF, XLA, slow_copy_of_tf()), 1, ONE_ROUND)
    assert row.keys() >= ROW
    assert row["shape"] == "x".join(map(str, shape))
    assert row["tf_over_stitch"] == pytest.approx(row["tf_ms"] / row["stitch_ms"])
    assert row["xla_over_stitch"] == pytest.approx(row["xla_ms"] / row["stitch_ms"])
    assert row["xla_kernels"] >= 1
    assert row["tf_err_f64"] < 1e-6
    assert row["absent"] == {}
    assert row["disagree"] == []
    document = json.loads(json.dumps(results.document([row], results.cluster_summary([row], "default"))))
    assert document["schema"] == 1
    assert document["summary"].keys() >= {"geomean_tf_over_stitch", "geomean_xla_over_stitch"}


@pytest.mark.parametrize("excluded", [(), ("Square",)])
def test_what_was_not_stitched_is_counted_and_named(excluded):
    config = tf_stitch.Config(exclude=frozenset(excluded))
    way = Way("stitch", lambda f: tf_stitch.function(f, autograph=False, config=config))
    row = harness.measure(Case.of(find("rms_norm"), (64, 32), 2), (way,), 1, ONE_ROUND)
    assert row["stitch_kernels"] == 1
    assert row["stitch_left"] == len(excluded)
    assert [note.split(" (")[0] for note in row["notes"]] == [f"stitch: left to TensorFlow: 1 {op}" for op in excluded]
    assert row["disagree"] == []


def test_a_rival_is_measured_beside_the_others():
    row = harness.measure(Case.of(find("adamw"), (LAYERS, 8)), (TF, MISSING), 1, ONE_ROUND)
    assert row["rival"]["name"] == "ResourceApplyAdam"
    assert row["rival"]["ms"] > 0
    assert row["rival"]["over_stitch"] is None
    assert row["rival"]["err_f64"] < 1e-6


def test_a_missing_way_is_null_and_named():
    row = harness.measure(Case.of(find("l2_normalise"), (4, 32), 2), (TF, MISSING), 2, ONE_ROUND)
    assert row["clock"] == "wall"
    assert row["tf_ms"] > 0
    assert row["stitch_ms"] is row["tf_over_stitch"] is row["stitch_kernels"] is row["max_err_f64"] is None
    assert row["absent"] == {"stitch": "not here"}
    summary = results.cluster_summary([row], "default")
    assert summary["geomean_tf_over_stitch"] is None
    assert summary["worst_over_better"] is None


def test_a_way_that_fails_leaves_the_others():
    def refuse(_):
        raise NotImplementedError("no such op\nand a long trace")

    row = harness.measure(Case.of(find("l2_normalise"), (4, 32), 2), (TF, Way("xla", refuse)), 1, ONE_ROUND)
    assert row["absent"] == {"xla": "NotImplementedError: no such op"}
    assert row["tf_ms"] > 0


@pytest.mark.usefixtures("no_stats")
@pytest.mark.parametrize("change", [1e-3, float("nan")])
def test_a_wrong_output_is_named(change):
    case = Case.of(find("l2_normalise"), (4, 32), 2)
    row = harness.measure(case, (TF, slow_copy_of_tf(change)), 1, ONE_ROUND)
    assert row["disagree"] == ["stitch"]
    assert row["max_err_f64"] > 1e-4
    assert (row["max_err_f64"] == NO_AGREEMENT) == math.isnan(change)
    assert results.cluster_summary([row], "default")["disagreeing"] == ["l2_normalise 4x32: stitch"]


def test_nobody_comes_behind_the_same_one_always() -> None:
    ran: list[str] = []

    def of(name: str) -> timing.Slice:
        def run(calls: int) -> tuple[float, float]:
            ran.append(name)
            return 1e-3, 1e-3

        return run

    effort = Effort(budget_s=10.0, slice_s=1e-3, fewest_rounds=60, most_rounds=60)
    samples = timing.in_turns({name: of(name) for name in "abc"}, effort)
    assert [len(s.wall) for s in samples.values()] == [60] * 3
    turns = ran[6:]  # behind two calls each, to see how long they take
    assert all(sorted(turns[n : n + 3]) == ["a", "b", "c"] for n in range(0, 180, 3))
    before = Counter(pair for pair in itertools.pairwise(turns) if len(set(pair)) == 2)
    assert min(before[one, other] for one, other in itertools.permutations("abc", 2)) > 15
