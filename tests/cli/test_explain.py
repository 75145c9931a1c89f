"""`tf-stitch explain`: its forms and exit codes. What it says is tested in tests/report."""

from __future__ import annotations

from tests.cli.conftest import tf_stitch


def test_text(block):
    found = tf_stitch("explain", block)
    assert found.code == 0
    assert max(map(len, found.stdout.splitlines())) <= 80
    for word in ("2 clusters", "rows of 64", "MatMul", "NOT_PROFITABLE"):
        assert word in found.stdout


def test_json(block):
    found = tf_stitch("explain", block, "--json").json
    assert found["schema"] == 1
    assert sum(len(graph["clusters"]) for graph in found["graphs"]) == 2


def test_html_and_text_at_a_time(block, tmp_path):
    found = tf_stitch("explain", block, "--html", tmp_path / "page.html", "--json")
    assert found.code == 0
    assert found.json["schema"] == 1
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    alone = tf_stitch("explain", block, "--html", tmp_path / "page.html")
    assert alone.stdout == ""
    assert "page.html" in alone.stderr
    assert tf_stitch("explain", block, "--html", tmp_path / "no" / "page.html").code == 2


def test_dot(block):
    assert tf_stitch("explain", block, "--dot").stdout.startswith("digraph explanation {")


def test_node(block):
    assert "is stitched" in tf_stitch("explain", block, "--node", "Rsqrt").stdout
    missing = tf_stitch("explain", block, "--node", "nonsense")
    assert missing.code == 2
    assert "no node 'nonsense'" in missing.stderr


def test_forms_exclude_one_another(block):
    assert tf_stitch("explain", block, "--dot", "--json").code == 2


def test_nothing_stitched(product, stitched):
    found = tf_stitch("explain", product)
    assert found.code == 3
    assert "MatMul" in found.stdout
    already = tf_stitch("explain", stitched)
    assert already.code == 3
    assert "stitched already" in already.stdout


def test_no_saved_model(tmp_path):
    assert tf_stitch("explain", tmp_path / "none").code == 2
    assert tf_stitch("explain", tmp_path).code == 2
