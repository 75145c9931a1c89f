"""`tf-stitch doctor`: a healthy machine, and some that are not."""

from __future__ import annotations

import pytest

from tests.cli.conftest import tf_stitch

CHECKS = ("tf_stitch", "Python", "TensorFlow", "op library", "CPU", "compiler", "cache", "threads", "trial")


def test_healthy():
    found = tf_stitch("doctor")
    assert found.code == 0
    assert max(map(len, found.stdout.splitlines())) <= 80
    for name in CHECKS:
        assert name in found.stdout
    assert "broken" not in found.stdout


def test_json():
    found = tf_stitch("doctor", "--json").json
    assert found["ok"] is True
    assert {"name", "status", "found", "remedy"} == set(found["checks"][0])
    assert set(CHECKS) <= {check["name"] for check in found["checks"]}
    assert {check["status"] for check in found["checks"]} <= {"ok", "warning", ""}


@pytest.mark.faults
def test_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    found = tf_stitch("doctor")
    assert found.code == 5
    assert "unset CXX" in " ".join(found.stdout.split())
    assert "broken: compiler" in found.stderr
    assert "CXX=/nonexistent/g++" in found.stdout


@pytest.mark.faults
def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TF_STITCH_CACHE_DIR", str(tmp_path / "file"))
    found = tf_stitch("doctor", "--json").json
    (cache,) = (check for check in found["checks"] if check["name"] == "cache")
    assert cache["status"] == "warning"
    assert "TF_STITCH_CACHE_DIR" in cache["remedy"]
    assert found["ok"] is True  # it works, slower


@pytest.mark.faults
def test_another_tensorflow(monkeypatch):
    from tf_stitch.errors import EnvironmentProblem
    from tf_stitch.runtime import stitch_op

    def refuse(installed, built):
        raise EnvironmentProblem("tf_stitch works with TensorFlow 2.21, and 2.19.0 is installed; run `pip install x`.")

    monkeypatch.setattr(stitch_op, "check_environment", refuse)
    found = tf_stitch("doctor", "--json")
    assert found.code == 5
    (check,) = (check for check in found.json["checks"] if check["name"] == "TensorFlow")
    assert check["status"] == "broken"
    assert check["remedy"] == "run `pip install x`."


def test_switched_off(monkeypatch):
    monkeypatch.setenv("TF_STITCH", "0")
    found = tf_stitch("doctor", "--json")
    assert found.code == 0
    assert any("TF_STITCH=0" in check["found"] and check["remedy"] for check in found.json["checks"])
