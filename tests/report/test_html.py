"""The page: safe whatever nodes are called, and whole without anything beside it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.report import by_hand

HOSTILE = '<script>alert("1")</script>&\'"><img src=x onerror=alert(2)>/'
_VOID = {"meta", "br", "img", "path", "rect"}


class Tags(HTMLParser):
    """All tags, with their attributes; fails where they do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in ("p", "summary") or self.open[-1] == tag:
            assert self.open.pop() == tag


def page(prefix: str = "") -> str:
    return by_hand.explanation(by_hand.layer_norm(prefix, f"{prefix}f"), target=f"{prefix}model").to_html()


@pytest.mark.parametrize("prefix", ["", HOSTILE], ids=["plain", "hostile"])
def test_the_same_tags_whatever_the_names(prefix):
    tags = Tags(page(prefix))
    assert [tag for tag, _ in tags.found] == [tag for tag, _ in Tags(page()).found]
    assert not {"script", "img", "iframe", "object", "link"} & {tag for tag, _ in tags.found}
    attributes = [name for _, attributes in tags.found for name in attributes]
    assert not [name for name in attributes if name.startswith("on")]


def test_hostile_names_are_shown_as_they_are():
    text = page(HOSTILE)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_picture_of_the_cluster():
    text = page()
    boxes = re.findall(r'<g class="step.*?<title>(.*?)</title>', text, re.DOTALL)
    assert any("rsqrt" in title and "from scale" in title and "heavy" in title for title in boxes)
    assert text.count('class="edge regional"') > 1  # the legend's is one
    assert 'class="input"' in text
    assert 'class="output"' in text


def test_nothing_is_fetched():
    text = page()
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text


def test_no_clusters_and_stitched_already():
    from tf_stitch.report.explanation import Explanation, StitchedAlready

    assert "0" in Explanation("empty", "x86-64-v3", ()).to_html()
    already = (StitchedAlready("stitch/y", "f", "abc", ("a", "b")),)
    Tags(Explanation("model", "x86-64-v3", (), {}, already).to_html())
