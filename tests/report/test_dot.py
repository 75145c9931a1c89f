"""The digraph follows DOT's grammar, as far as it is used."""

from __future__ import annotations

import itertools
import re

from tests.report import by_hand
from tests.report.test_html import HOSTILE

_TOKEN = re.compile(r'\s+|"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\d+|->|[{}\[\];=,]')


def tokens(text: str) -> list[str]:
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match, f"no token at {text[position : position + 40]!r}"
        position = match.end()
        if not match[0].isspace():
            found.append(match[0])
    return found


def test_tokens_nest_and_every_edge_joins_declared_vertices():
    for prefix in ("", HOSTILE):
        found = tokens(by_hand.explanation(by_hand.layer_norm(prefix)).to_dot())
        assert found[:3] == ["digraph", "explanation", "{"]
        for left, right in ("{}", "[]"):
            assert found.count(left) == found.count(right)
        declared = {a for a, b in itertools.pairwise(found) if b == "[" and re.fullmatch(r"c\d+s\d+", a)}
        edges = [(found[i - 1], found[i + 1]) for i, token in enumerate(found) if token == "->"]
        assert edges
        assert {vertex for edge in edges for vertex in edge} <= declared


def test_dominants_and_schemes_show():
    dot = by_hand.explanation(by_hand.layer_norm()).to_dot()
    assert dot.count("penwidth=3") == 1
    assert "style=dashed" in dot
