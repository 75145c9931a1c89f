"""What an explanation says, as data and as text."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from tests.report import by_hand
from tf_stitch.config import Config
from tf_stitch.report import text as text_module
from tf_stitch.report.explain import explain


@pytest.fixture(scope="module")
def explanation():
    return by_hand.explanation(by_hand.layer_norm())


def test_one_cluster_and_a_reason_for_the_rest(explanation):
    (graph,) = explanation.graphs
    (cluster,) = graph.clusters
    assert [op for _, op in cluster.nodes] == "Mean Sub Square Mean AddV2 Rsqrt Mul Mul".split()
    assert [(r.node, r.code) for r in graph.rejections] == [("product", "NOT_PROFITABLE")]
    assert explanation.stitched_nodes == 8


def test_loop_nests(explanation):
    (cluster,) = explanation.clusters
    (group,) = cluster.groups
    assert group.loops == "d0 rows of 64"
    assert cluster.steps[group.dominant].origin == "mean"
    assert {cluster.steps[s].origin for s in group.sub_dominants} == {"variance", "y"}
    assert {s.scheme for s in cluster.steps if s.origin == "scale"} == {"REGIONAL"}


def test_bytes_are_formulas_and_numbers(explanation):
    (cluster,) = explanation.clusters
    assert cluster.bytes_after_text == "512*d0 + 256"  # x and y, and gamma
    assert cluster.bytes_after == 512 + 256
    assert cluster.bytes_before > 3 * cluster.bytes_after


def test_neighbours_have_reasons(explanation):
    (cluster,) = explanation.clusters
    assert [(n.node, n.side, n.code) for n in cluster.neighbours] == [("product", "before", "NOT_PROFITABLE")]


def test_json_is_plain_data(explanation):
    data = json.loads(json.dumps(explanation.to_json()))
    assert data["schema"] == 1
    assert {"target", "cpu", "graphs", "skipped", "already_stitched", "unknown_dims_count_as"} <= set(data)
    (graph,) = data["graphs"]
    assert graph["rejection_counts"] == {"NOT_PROFITABLE": 1}
    (cluster,) = graph["clusters"]
    assert {"name", "op"} == set(cluster["nodes"][0])
    assert cluster["dynamic"] is True
    assert {"groups", "steps", "neighbours", "source", "bytes_before", "bytes_after", "symbols"} <= set(cluster)
    assert {"index", "text", "type", "origin", "groups", "scheme", "heavy", "bytes"} <= set(cluster["steps"][0])


def test_text_tells_all_of_it_in_80_columns(explanation):
    text = str(explanation)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("mean (Mean)", "d0 rows of 64", "regional", "NOT_PROFITABLE", "product", "512*d0 + 256"):
        assert word in text


def test_text_of_equal_clusters_is_one():
    text = str(by_hand.explanation(by_hand.layer_norm("a/"), by_hand.layer_norm("b/", "other")))
    assert text.count("one kernel") == 2  # one for each graph
    graph = by_hand.layer_norm("a/")
    both = {**graph.nodes, **by_hand.layer_norm("b/").nodes}
    twice = type(graph)("twice", both, constants=graph.constants | by_hand.layer_norm("b/").constants,
                        returned=graph.returned | by_hand.layer_norm("b/").returned)  # fmt: skip
    text = str(by_hand.explanation(twice, config=Config(remote_stitching=False)))
    assert text.count("one kernel") == 1
    assert "alike" in text


def test_one_node(explanation):
    assert "is stitched: cluster y" in explanation.node("scale")
    assert "rsqrt" in explanation.node("scale")
    assert "not stitched" in explanation.node("product")
    assert explanation.node("nothing of the kind") == ""


def test_long_names_stay_within_80_columns():
    text = str(by_hand.explanation(by_hand.layer_norm("model/" * 30)))
    assert max(map(len, text.splitlines())) <= 80


def test_steps_show_the_ends_of_long_names():
    text = str(by_hand.explanation(by_hand.layer_norm("model/encoder/" * 3)))
    assert "…/model/encoder/variance\n" in text


def test_a_long_title_keeps_the_count():
    (title,) = text_module._rule("f" * 100, ": 12 clusters")
    assert len(title) == 80
    assert title.endswith("f…: 12 clusters ─")


def test_no_control_characters_reach_a_terminal():
    explanation = by_hand.explanation(by_hand.layer_norm("\x1b[31m\x07/"))
    assert "\x1b" not in str(explanation)
    assert "\x1b" not in explanation.node("\x1b[31m\x07/scale")
    assert "is stitched" in explanation.node("\x1b[31m\x07/scale")


def test_what_differs_from_the_default_is_told():
    config = Config(max_cluster_size=7).without(["global_scheme"])
    told = explain(lambda x: tf.exp(tf.tanh(x)), tf.TensorSpec([None, 8]), config=config)
    assert told.to_json()["config"] == {"global_scheme": False, "max_cluster_size": 7}
    assert "With global_scheme=False, max_cluster_size=7." in " ".join(str(told).split())
    assert "With" not in str(explain(lambda x: tf.exp(tf.tanh(x)), tf.TensorSpec([None, 8])))
