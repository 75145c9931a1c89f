"""`tf-stitch cache`: info, verify, clear."""

from __future__ import annotations

import pytest

from tests.cli.conftest import tf_stitch
from tf_stitch.toolchain.cache import Description, KernelCache


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A cache of two kernels."""
    root = tmp_path / "cache"
    monkeypatch.setenv("TF_STITCH_CACHE_DIR", str(root))
    cache = KernelCache(root)
    for key in ("ab" * 32, "cd" * 32):
        with cache.building(key, patience=1) as workspace:
            (workspace / "kernel.so").write_bytes(key.encode())
            (workspace / "kernel.cpp").write_text("// source")
            description = Description("x86_64", "g++", "kernel", 0.0)
            cache.store(key, workspace / "kernel.so", workspace / "kernel.cpp", description)
    return root


def test_info(root):
    found = tf_stitch("cache", "info")
    assert found.code == 0
    assert str(root) in found.stdout
    assert "kernels     2" in found.stdout
    data = tf_stitch("cache", "info", "--json").json
    assert data["entries"] == 2
    assert {"root", "entries", "bytes", "max_bytes", "last_used", "problem"} == set(data)


def test_verify(root):
    assert tf_stitch("cache", "verify").code == 0
    next(root.glob("ab/*.so")).write_bytes(b"other")
    damaged = tf_stitch("cache", "verify")
    assert damaged.code == 1
    assert "1 damaged" in damaged.stdout
    assert "cache clear" in damaged.stderr
    data = tf_stitch("cache", "verify", "--json").json
    assert data["checked"] == 2
    assert len(data["problems"]) == 1


def test_clear(root):
    assert tf_stitch("cache", "clear", "--json").json["removed"] == 2
    assert tf_stitch("cache", "info", "--json").json["entries"] == 0
    assert "removed 0" in tf_stitch("cache", "clear").stdout.replace("\n", " ")


def test_a_directory_that_is_none(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TF_STITCH_CACHE_DIR", str(tmp_path / "file"))
    assert tf_stitch("cache", "info", "--json").json["problem"] == "it is not a directory"
    assert tf_stitch("cache", "clear").code == 5


def test_no_command():
    assert tf_stitch("cache").code == 2
