"""`tf-stitch convert`: what it prints, its exit codes, and that it leaves nothing half-written."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import tf_stitch
from tf_stitch.cli import _interrupt


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_table(block, tmp_path):
    before = files(block)
    found = tf_stitch("convert", block, tmp_path / "out")
    assert found.code == 0
    assert max(map(len, found.stdout.splitlines())) <= 80
    for word in ("function", "cluster", "kernel", "UNSUPPORTED_OP", "2 StitchOps", f"written to {tmp_path}"):
        assert word in found.stdout.replace("\n", " ")
    assert found.stderr == ""
    assert (tmp_path / "out" / "saved_model.pb").is_file()
    assert files(block) == before


def test_json(block, tmp_path):
    found = tf_stitch("convert", block, tmp_path / "out", "--json").json
    assert {
        "nodes_before", "nodes_after", "stitch_ops", "kernels_compiled", "compile_seconds", "rejections", "clusters",
    } <= set(found)  # fmt: skip
    assert found["nodes_before"] > found["nodes_after"]
    assert found["stitch_ops"] == len(found["clusters"]) == 2
    assert found["rejections"]["UNSUPPORTED_OP"] >= 1
    for cluster in found["clusters"]:
        assert {"id", "nodes", "schemes", "dynamic", "bytes_before", "bytes_after"} <= set(cluster)
        assert cluster["dynamic"] is True
        assert {"name", "op"} == set(cluster["nodes"][0])


def test_existing_destination_needs_force(block, stitched, tmp_path):
    out = tmp_path / "out"
    assert tf_stitch("convert", block, out).code == 0
    refused = tf_stitch("convert", block, out)
    assert refused.code == 2
    assert "--force" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert tf_stitch("convert", block, out, "--force").code == 0
    assert (out / "saved_model.pb").read_bytes() == (stitched / "saved_model.pb").read_bytes()


def test_force_does_not_replace_what_is_no_model(block, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    refused = tf_stitch("convert", block, tmp_path / "photos", "--force")
    assert refused.code == 2
    assert (tmp_path / "photos" / "cat.jpg").read_text() == "meow"


def test_nothing_to_stitch(product, tmp_path):
    found = tf_stitch("convert", product, tmp_path / "out")
    assert found.code == 3
    assert "nothing was stitched" in found.stderr
    assert not (tmp_path / "out").exists()
    assert tf_stitch("convert", product, tmp_path / "out", "--json").json["destination"] is None


def test_stitched_already(stitched, tmp_path):
    found = tf_stitch("convert", stitched, tmp_path / "out")
    assert found.code == 3
    assert "stitched already" in found.stderr
    assert not (tmp_path / "out").exists()
    assert tf_stitch("convert", stitched, tmp_path / "out", "--json").json["already_stitched"] is True


def test_exclude_ops_and_nodes(block, tmp_path):
    found = tf_stitch("convert", block, tmp_path / "a", "--exclude", "Softmax", "--json").json
    assert found["stitch_ops"] == 1
    assert found["rejections"]["EXCLUDED"] >= 1
    both = tf_stitch("convert", block, tmp_path / "b", "--exclude", "Softmax", "--exclude", "Rsqrt", "--json").json
    assert both["rejections"]["EXCLUDED"] > found["rejections"]["EXCLUDED"]


def test_max_cluster_size(block, tmp_path):
    found = tf_stitch("convert", block, tmp_path / "out", "--max-cluster-size", 3, "--json").json
    assert max(len(cluster["nodes"]) for cluster in found["clusters"]) <= 3


def test_ablate(block, tmp_path):
    """Named on the command line; what is no switch is refused."""
    before = tf_stitch("convert", block, tmp_path / "a", "--json").json["clusters"]
    after = tf_stitch("convert", block, tmp_path / "b", "--ablate", "dominant_merging", "--json").json["clusters"]
    assert {c["kernel"] for c in before} != {c["kernel"] for c in after}
    assert [c["nodes"] for c in before] == [c["nodes"] for c in after]
    assert tf_stitch("convert", block, tmp_path / "c", "--ablate", "dominants").code == 2
    told = tf_stitch("explain", block, "--ablate", "dominant_merging", "--json").json
    assert told["config"] == {"dominant_merging": False}


def test_baseline_is_in_the_model(block, tmp_path):
    assert tf_stitch("convert", block, tmp_path / "out", "--cpu-baseline", "x86-64-v2").code == 0
    content = (tmp_path / "out" / "saved_model.pb").read_bytes()
    assert b"sse4.2" in content
    assert b"avx2" not in content
    assert tf_stitch("convert", block, tmp_path / "b", "--cpu-baseline", "z80").code == 2


@pytest.mark.parametrize("what", ["missing", "file", "empty", "damaged"])
def test_no_saved_model(what, tmp_path):
    source = tmp_path / what
    if what == "file":
        source.write_text("")
    if what in ("empty", "damaged"):
        source.mkdir()
    if what == "damaged":
        (source / "saved_model.pb").write_bytes(b"\xff" * 40)
    found = tf_stitch("convert", source, tmp_path / "out")
    assert found.code == 2
    assert found.stderr.startswith("tf-stitch: ")
    assert found.stderr.count("\n") == 1  # a sentence, no traceback
    assert what in found.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ([what] if source.exists() else [])


@pytest.mark.faults
def test_no_compiler(block, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    other = ("--max-cluster-size", 399)  # another configuration, whose compiler is not known yet
    found = tf_stitch("convert", block, tmp_path / "out", *other)
    assert found.code == 5
    assert "unset CXX" in found.stderr
    assert found.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.faults
def test_interrupted_while_writing(block, tmp_path, monkeypatch):
    """By SIGTERM, which the entry point gives the meaning of SIGINT."""

    def copytree(*_):
        _interrupt(signal.SIGTERM, None)

    monkeypatch.setattr(shutil, "copytree", copytree)
    found = tf_stitch("convert", block, tmp_path / "out")
    assert found.code == 1
    assert found.stderr == "tf-stitch: interrupted; nothing was left half-written.\n"
    assert list(tmp_path.iterdir()) == []


# ---- In a process of its own ------------------------------------------------------------------------------------


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def start(arguments: list[object], **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tf_stitch.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.faults
def test_interrupted(block, tmp_path):
    """While a compiler runs that never ends: it is stopped, too."""
    compiler = script(
        tmp_path / "g++",
        'case "$*" in *--version*) echo "g++ (test) 12.2.0";; *)',
        f"echo $$ > {tmp_path}/pid; exec sleep 60;; esac",
    )
    out = tmp_path / "models" / "out"
    out.parent.mkdir()
    process = start(["convert", block, out], CXX=str(compiler), TF_STITCH_CACHE_DIR=str(tmp_path / "cache"))
    pid_file = tmp_path / "pid"
    deadline = time.monotonic() + 50
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert stderr.endswith("tf-stitch: interrupted; nothing was left half-written.\n")
    assert "Traceback" not in stderr
    assert stdout == ""
    assert list(out.parent.iterdir()) == []
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()
