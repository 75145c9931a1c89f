"""TF_STITCH_DUMP: every stage as a file, and a script that runs what was dumped."""

from __future__ import annotations

import runpy

import pytest
import tensorflow as tf

import tf_stitch
from tests.report import by_hand
from tf_stitch.debug.dump import Dump
from tf_stitch.frontend import grappler, replay
from tf_stitch.plan.target import Target

STAGES = [
    "03_body.txt", "04_plan.txt", "05_kernel.txt", "06_source.cpp", "07_artifact.txt", "repro.py",
]  # fmt: skip


def dump_into(directory) -> Dump:
    return Dump(directory, "x86-64-v3")


SIGNATURE = [tf.TensorSpec([None, 6, 8], tf.float32), tf.TensorSpec([None], tf.int32)]


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """A function's graph with a few clusters: one has an operand of dims and several outputs, one looks elements up."""
    directory = tmp_path_factory.mktemp("dump")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_STITCH_DUMP", str(directory))
        grappler.install().forget()

        @tf_stitch.function(input_signature=SIGNATURE, autograph=False)
        def serve(x, i):
            y = tf.nn.softmax(x * 0.5 - float("1e-3"))
            flat = tf.reshape(tf.exp(y) + 1.0, [tf.shape(x)[0], 48])
            a, b = tf.split(tf.tanh(tf.matmul(flat, tf.ones([12, 48]), transpose_b=True)), [5, 7], axis=1)
            words = tf.gather(tf.matmul(tf.ones([3, 5]), tf.ones([20, 5]), transpose_b=True), i)
            return tf.nn.relu(a) + 1.0, tf.where(b > 0.0, b, 2.0 * b), tf.tanh(words) + 1.0

        serve(tf.ones([3, 6, 8]), tf.constant([2, 0, 1]))
    (graph,) = directory.iterdir()
    return graph


def clusters(graph):
    return sorted(path for path in graph.iterdir() if path.is_dir())


def test_files(dumped):
    assert sorted(p.name for p in dumped.iterdir() if p.is_file()) == [
        "01_graph.txt", "02_clusters.txt", "08_rewritten.txt",
    ]  # fmt: skip
    assert len(clusters(dumped)) >= 2
    for cluster in clusters(dumped):
        assert sorted(p.name for p in cluster.iterdir()) == STAGES
        assert "tf_stitch_kernel" in (cluster / "06_source.cpp").read_text()
        assert "key:" in (cluster / "07_artifact.txt").read_text()
    assert (dumped / "08_rewritten.txt").read_text().count("StitchOp") == len(clusters(dumped))


def test_scripts_agree_with_tensorflow(dumped):
    """In this process, as `main` would."""
    for cluster in clusters(dumped):
        script = runpy.run_path(str(cluster / "repro.py"))
        rng = replay.np.random.default_rng(0)
        values = [i if isinstance(i, tf.Tensor) else i.value(script["SIZES"], rng) for i in script["INPUTS"].values()]
        key = replay.build(cluster / "06_source.cpp", "kernel", Target.this_cpu().isa)
        found = replay.compare(script["cluster"], values, key)
        assert all(d.agrees for d in found), found


def test_a_script_tells_a_kernel_that_is_wrong(dumped, monkeypatch, capsys):
    cluster = next(c for c in clusters(dumped) if "0.5f" in (c / "06_source.cpp").read_text())
    source = (cluster / "06_source.cpp").read_text()
    monkeypatch.setattr("sys.argv", ["repro.py", "--seed", "2"])
    runpy.run_path(str(cluster / "repro.py"), run_name="__main__")
    assert "agrees" in capsys.readouterr().out
    (cluster / "06_source.cpp").write_text(source.replace("0.5f", "0.75f"))
    try:
        with pytest.raises(SystemExit) as exit_:
            runpy.run_path(str(cluster / "repro.py"), run_name="__main__")
        assert exit_.value.code == 4
        assert "DIFFERS" in capsys.readouterr().out
        (cluster / "06_source.cpp").write_text(source.replace("0.5f", "0.5g"))
        with pytest.raises(SystemExit, match="error"):
            runpy.run_path(str(cluster / "repro.py"), run_name="__main__")
    finally:
        (cluster / "06_source.cpp").write_text(source)


def test_names_of_nodes_cannot_leave_the_script(tmp_path):
    hostile = '"""\nimport os; os.abort()  #\\/'
    by_hand.stitched(by_hand.layer_norm(hostile, hostile), observer=dump_into(tmp_path))
    (script,) = tmp_path.glob("*/*/repro.py")
    compile(script.read_text(), "repro.py", "exec")
    assert "import os" not in script.read_text()
    assert runpy.run_path(str(script))["SIZES"]


def test_runs_are_numbered(tmp_path):
    for name in ("first", "second", "a/b c"):
        by_hand.stitched(by_hand.layer_norm(name="" if name == "first" else name), observer=dump_into(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["001_main", "002_second", "003_a_b_c"]


def test_several_graphs_in_one_run(tmp_path):
    graphs = by_hand.layer_norm("a/", "one"), by_hand.layer_norm("b/", "two")
    by_hand.stitched(*graphs, observer=dump_into(tmp_path))
    for name in ("001_one", "002_two"):
        assert (tmp_path / name / "08_rewritten.txt").is_file()
        assert len(list((tmp_path / name).glob("*/07_artifact.txt"))) == 1


@pytest.mark.faults
def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    (made,) = by_hand.stitched(by_hand.layer_norm(), observer=dump_into(tmp_path / "file" / "below"))
    assert len(made.clusters) == 1
    assert caplog.text.count("nothing more is dumped") == 1


def test_what_did_not_build_is_told(tmp_path):
    from tf_stitch.errors import BuildError

    dump = dump_into(tmp_path)
    by_hand.stitched(by_hand.layer_norm(), observer=lambda stage, made: stage != "artifact" and dump(stage, made))
    dump("artifact", BuildError("kernel y: no"))
    (artifact,) = tmp_path.glob("*/*/07_artifact.txt")
    assert artifact.read_text() == "kernel y: no\n"
