"""Models for GPUs are made on a machine without one; here they run unstitched, and right."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.cli.conftest import tf_stitch
from tf_stitch.runtime import stitch_op
from tf_stitch.toolchain import device_compilers
from tf_stitch.toolchain.device_compilers import find_device_compilers

needs_device_compiler = pytest.mark.skipif(
    not list(find_device_compilers()), reason="no NVRTC: pip install nvidia-cuda-nvrtc-cu12"
)


@pytest.fixture(scope="module")
def for_gpus(block):
    path = block.parent / "for_gpus"
    found = tf_stitch("convert", block, path, "--target", "cuda:sm_80,h100", "--json")
    assert found.code == 0
    return path, found.json


@needs_device_compiler
def test_a_model_for_gpus_is_made_without_one(for_gpus):
    _, found = for_gpus
    assert found["stitch_ops"] == 2
    assert "BUILD_FAILED" not in found["rejections"]
    for cluster in found["clusters"]:
        assert list(cluster["resources"]) == ["sm_80", "sm_90"]
        for needs in (entry for entries in cluster["resources"].values() for entry in entries.values()):
            assert needs["registers"] > 0
            assert needs["local_bytes"] == 0, "registers were spilled"


@needs_device_compiler
def test_it_says_where_it_runs(for_gpus, monkeypatch):
    """On a CPU each StitchOp runs the ops that it replaces, and counts; under TF_STITCH_STRICT=1 it is an error."""
    path, found = for_gpus
    keys = [cluster["kernel"] for cluster in found["clusters"]]
    model = tf.saved_model.load(str(path)).signatures["serving_default"]
    x = tf.constant(np.random.default_rng(0).standard_normal((5, 64)), tf.float32)
    with pytest.raises(tf.errors.FailedPreconditionError, match="DEVICE: the kernel is one for GPUs"):
        model(x=x)
    monkeypatch.delenv("TF_STITCH_STRICT")
    stitch_op.reset_counters()
    result = model(x=x)
    assert [stitch_op.counters()["keys"][key]["fallbacks"]["DEVICE"] for key in keys] == [1, 1]
    original = tf.saved_model.load(str(path.parent / "block")).signatures["serving_default"](x=x)
    for name in original:
        np.testing.assert_allclose(result[name], original[name], rtol=1e-5, atol=1e-6)
    kinds = {kernel["key"]: kernel["gpu"] for kernel in stitch_op.loaded_kernels()}
    assert [kinds[key] for key in keys] == [True, True]


@needs_device_compiler
def test_words_are_looked_up_in_kernels_for_gpus(reader, tmp_path, monkeypatch):
    """What TensorFlow's host looks at, the place of a step, stays outside; and so does what it is computed by."""
    path = tmp_path / "out"
    found = tf_stitch("convert", reader, path, "--target", "cuda:sm_80", "--json")
    assert found.code == 0
    ops = sorted({node["op"] for cluster in found.json["clusters"] for node in cluster["nodes"]})
    assert {"GatherV2", "AddV2", "Rsqrt", "Tanh"} <= set(ops)
    assert not {"StridedSlice", "Pack"} & set(ops)
    assert "BUILD_FAILED" not in found.json["rejections"]
    monkeypatch.delenv("TF_STITCH_STRICT")
    model, original = (tf.saved_model.load(str(p)).signatures["serving_default"] for p in (path, reader))
    ids = tf.constant(np.random.default_rng(0).integers(0, 100, (5, 8)), tf.int32)
    wanted = original(ids=ids, step=tf.constant(3))
    for name, result in model(ids=ids, step=tf.constant(3)).items():
        np.testing.assert_allclose(result, wanted[name], rtol=1e-5, atol=1e-6)


@needs_device_compiler
def test_the_same_model_gives_the_same_bytes(for_gpus, block, tmp_path):
    path, _ = for_gpus
    assert tf_stitch("convert", block, tmp_path / "again", "--target", "cuda:h100,sm_80").code == 0
    assert (tmp_path / "again" / "saved_model.pb").read_bytes() == (path / "saved_model.pb").read_bytes()


def test_explain(block):
    found = tf_stitch("explain", block, "--target", "cuda:sm_90", "--json")
    assert found.code == 0
    assert found.json["cpu"] == "cuda:sm_90"
    assert "CudaSource" not in found.stdout
    for cluster in (c for graph in found.json["graphs"] for c in graph["clusters"]):
        (launch,) = cluster["gpus"]
        assert launch["arch"] == "sm_90"
        assert launch["us"] > 0
        assert 0 < launch["occupancy"] <= 1


@pytest.mark.parametrize("target", ["cuda:sm_61", "cuda:", "rocm:gfx90a", "gpu"])
def test_unknown_targets(target, block, tmp_path):
    found = tf_stitch("convert", block, tmp_path / "out", "--target", target)
    assert found.code == 2
    assert found.stderr.count("\n") == 1
    assert f"'{target.removeprefix('cuda:')}'" in found.stderr or f"'{target}'" in found.stderr


def test_gpus_of_this_machine(block, tmp_path):
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there are some")
    found = tf_stitch("convert", block, tmp_path / "out", "--target", "cuda")
    assert found.code == 2
    assert "TensorFlow finds no GPU here" in found.stderr


def test_kernels_for_gpus_are_not_raced_on_a_cpu(block, tmp_path):
    found = tf_stitch("convert", block, tmp_path / "out", "--target", "cuda:sm_80", "--tune")
    assert found.code == 2
    assert "--tune" in found.stderr


def test_without_a_compiler_for_gpus(block, tmp_path, monkeypatch):
    monkeypatch.setattr(device_compilers, "_candidates", lambda: iter(()))
    from tf_stitch.frontend.engine import engine_for

    engine_for.cache_clear()
    found = tf_stitch("convert", block, tmp_path / "out", "--target", "cuda:sm_80")
    engine_for.cache_clear()
    assert found.code == 5
    assert "pip install 'nvidia-cuda-nvrtc-cu12" in found.stderr
    assert not (tmp_path / "out").exists()
    # And all of the CPU's side works.
    assert tf_stitch("convert", block, tmp_path / "out").code == 0
    checks = {check["name"]: check for check in tf_stitch("doctor", "--json").json["checks"]}
    assert checks["GPU compiler"]["status"] == ""
    assert "nvidia-cuda-nvrtc-cu12" in checks["GPU compiler"]["remedy"]
    assert checks["trial"]["status"] == "ok"


def test_in_this_process_what_is_placed_on_a_cpu_is_left_alone():
    import tf_stitch as package
    from tf_stitch.config import Config

    def chain(x):
        return tf.nn.softmax(tf.exp(x) * 2.0 + 1.0)

    with tf.device("/CPU:0"):
        stitched = package.function(chain, config=Config(target="cuda:sm_80"))
        x = tf.constant(np.random.default_rng(0).standard_normal((4, 9)), tf.float32)
        package.reset_stats()
        np.testing.assert_allclose(stitched(x), chain(x), rtol=1e-5)
    assert package.stats()["kernels"] == 0
    assert package.stats()["rejections"]["DEVICE"] >= 3
