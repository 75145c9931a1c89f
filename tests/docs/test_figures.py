"""Measured figures in documents: written by `docs.figures` from bench/results, and nowhere typed by hand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from docs import figures

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "bench" / "models.json"


@pytest.fixture
def results(tmp_path):
    shutil.copy(MODELS, tmp_path / "models.json")
    return tmp_path


def block(name, content=""):
    return f"Before.\n<!-- figures:{name} -->\n{content}<!-- end figures:{name} -->\nAfter.\n"


@pytest.mark.parametrize("path", figures.documents(), ids=lambda path: path.name)
def test_figures_are_current(path):
    written = path.read_text(encoding="utf-8")
    assert written == figures.current(written), f"{path.name} is out of date; run `python -m docs.figures`"


def test_the_readme_and_the_results_have_figures():
    assert {path.name for path in figures.documents()} >= {"README.md", "results.md"}


@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_no_figure_is_typed_by_hand(name):
    text = re.sub(r"<!-- figures:.*?<!-- end figures:", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert re.findall(r".*\d ?(?:×|%|ms\b|µs\b|GB/s).*", text) == []


def test_a_block_is_written_and_what_is_around_it_stays(results):
    text = figures.current(block("models", "old\n"), results)
    assert text.startswith(
        "Before.\n<!-- figures:models -->\nInference, 3 rows: TensorFlow's time over that of tf\\_stitch is 1.00×"
    )
    assert text.endswith("<!-- end figures:models -->\nAfter.\n")
    assert "old" not in text
    assert "| bert | 1x128 | 2 | 200.0 | 250.0 | 160.0 | 1.25 | 1.56 | 2e-07 |" in text
    assert (
        "<sub>`bench models`, 2026-11-30T01:00:00+00:00 · a CPU · 2 cores · python 3.11.7, tensorflow 2.21.0.</sub>"
        in text
    )
    assert figures.current(text, results) == text


def test_a_figure_that_changed_makes_a_block_stale(results):
    before = figures.current(block("models"), results)
    path = results / "models.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"stitch_ms": 160.0', '"stitch_ms": 161.0'), encoding="utf-8"
    )
    assert figures.current(before, results) != before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (block("speed"), "there are no figures 'speed', only models, models-overview, kernels"),
        (block("gpu"), r"gpu\.json is not there; `python -m bench gpu --json .*` writes it"),
        ("<!-- figures:models -->\n", "a marker of figures has no partner"),
        (block("models") + "<!-- end figures:models -->\n", "a marker of figures has no partner"),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_sentence(results, text, reason):
    with pytest.raises(figures.UnknownFigures, match=reason):
        figures.current(text, results)


def test_the_paper_is_shown_beside_what_there_is():
    text = figures.made("paper")
    assert "A launch costs a GPU about 10 µs" in text
    assert "| Transformer | 10132 | 2578 | 74.6% |" in text
    assert "**Memory traffic**" in text
