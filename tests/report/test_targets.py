"""What can be explained: SavedModels and all kinds of functions; none of them is run."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.cli import models
from tf_stitch.config import Config
from tf_stitch.errors import UsageError

SPEC = tf.TensorSpec([None, 64], tf.float32)


def chain(x):
    return tf.nn.softmax(tf.exp(x) * 2.0 + 1.0)


@pytest.fixture(scope="module")
def block(tmp_path_factory):
    return models.save(models.Block(), tmp_path_factory.mktemp("models") / "block")


def ops(explanation):
    return sorted(op for cluster in explanation.clusters for _, op in cluster.nodes if op != "Identity")


def test_saved_model(block):
    found = tf_stitch.explain(block)
    assert found.target == str(block)
    assert len(found.clusters) == 2
    assert tf_stitch.explain(str(block)).to_json() == found.to_json()


def test_bytes_are_those_that_a_conversion_tells(block, tmp_path):
    explained = tf_stitch.explain(block).clusters
    converted = tf_stitch.convert_saved_model(block, tmp_path / "out").clusters
    assert [(c.bytes_before, c.bytes_after) for c in converted] == [(c.bytes_before, c.bytes_after) for c in explained]


@pytest.mark.parametrize(
    "function",
    [chain, tf.function(chain), tf_stitch.function(chain), tf.function(chain).get_concrete_function(SPEC)],
    ids=["python", "tf.function", "tf_stitch.function", "concrete"],
)
def test_functions(function):
    args = () if hasattr(function, "function_def") else (SPEC,)
    found = tf_stitch.explain(function, *args)
    assert ops(found) == ["AddV2", "Exp", "Mul", "Softmax"]
    (cluster,) = found.clusters
    assert list(cluster.symbols) == ["d0"]


def test_arrays_and_keywords():
    found = tf_stitch.explain(chain, x=np.zeros((30, 50), np.float32))
    assert ops(found) == ["AddV2", "Exp", "Mul", "Softmax"]
    assert not found.clusters[0].dynamic


def test_what_the_kernel_leaves_open_has_its_size_here():
    (cluster,) = tf_stitch.explain(chain, tf.TensorSpec([30, 768])).clusters
    assert cluster.inputs[0][1] == cluster.outputs[0][1] == "f32[30, 768]"
    assert cluster.groups[0].loops == "30 rows of 768"
    assert cluster.open == ("dim 0 of x, 30 here", "dim 1 of x / 64, 12 here")
    assert (cluster.symbols, cluster.guards) == ({}, ())
    assert (cluster.bytes_after, cluster.bytes_after_text) == (2 * 4 * 30 * 768, str(2 * 4 * 30 * 768))


def test_variables_are_known_and_nothing_runs():
    calls = tf.Variable(0)
    scale = tf.Variable(tf.ones([64]))

    @tf_stitch.function
    def counted(x):
        calls.assign_add(1)
        return tf.nn.relu(x * scale) + 1.0

    before = tf_stitch.stats()
    found = tf_stitch.explain(counted, SPEC)
    assert ops(found) == ["AddV2", "Mul", "Relu"]
    assert calls.numpy() == 0
    assert tf_stitch.stats() == before


def test_control_flow_is_looked_into():
    @tf.function
    def loop(x, n):
        for _ in tf.range(n):
            x = tf.tanh(x) * 0.5 + 1.0
        return x

    found = tf_stitch.explain(loop, SPEC, tf.TensorSpec([], tf.int32))
    assert {"AddV2", "Mul", "Tanh"} <= set(ops(found))


def test_what_runs_is_what_was_explained():
    function = tf_stitch.function(chain)
    explained = tf_stitch.explain(function, SPEC)
    before = tf_stitch.stats()["kernels"]
    function(tf.ones([3, 64]))
    assert tf_stitch.stats()["kernels"] - before == len(explained.clusters)


def test_config_is_the_functions_own():
    excluding = tf_stitch.function(chain, config=Config(exclude=frozenset({"Softmax"})))
    found = tf_stitch.explain(excluding, SPEC)
    assert "Softmax" not in ops(found)
    assert any(r.code == "EXCLUDED" for graph in found.graphs for r in graph.rejections)
    assert "Softmax" in ops(tf_stitch.explain(excluding, SPEC, config=Config()))


def test_xla_functions_are_left_to_xla():
    found = tf_stitch.explain(tf.function(chain, jit_compile=True), SPEC)
    assert found.clusters == ()
    assert "XLA" in str(found)


def test_no_compiler_is_needed(monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    assert tf_stitch.explain(chain, SPEC).clusters


@pytest.mark.parametrize("target", [3, "/nonexistent", b"bytes"])
def test_no_target(target):
    with pytest.raises(UsageError):
        tf_stitch.explain(target)


def test_gpus():
    found = tf_stitch.explain(chain, np.zeros((3000, 512), np.float32), config=Config(target="cuda:t4,h100"))
    (cluster,) = found.clusters
    assert [launch.arch for launch in cluster.gpus] == ["sm_75", "sm_90"]
    small, large = cluster.gpus
    assert small.us > large.us > 0
    assert {launch.bytes for launch in cluster.gpus} == {2 * 4 * 3000 * 512}
    assert f"sm_90    about {large.us:.1f} µs; grid barriers: 0;" in str(found)
    assert f"sm_75: about {small.us:.1f} µs" in found.to_html()


def test_on_a_cpu_there_is_no_word_of_gpus():
    found = tf_stitch.explain(chain, SPEC)
    assert found.clusters[0].gpus == ()
    assert "grid barrier" not in str(found)
