"""Layouts: edges lead down, boxes do not overlap, all of it lies on the canvas."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_stitch.report import layout


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 24))
    pairs = list(itertools.combinations(range(count), 2))
    return count, draw(st.lists(st.sampled_from(pairs), unique=True, max_size=40)) if pairs else []


@given(graphs())
def test_any_graph(graph):
    count, edges = graph
    made = layout.layout(count, edges)
    for (x1, y1), (x2, y2) in itertools.combinations(made.centres, 2):
        assert abs(x1 - x2) >= layout.WIDTH or abs(y1 - y2) >= layout.HEIGHT
    for (source, target), path in zip(edges, made.paths, strict=True):
        assert made.centres[source][1] < made.centres[target][1]
        assert all(a[1] < b[1] for a, b in itertools.pairwise(path))
    for x, y in made.centres:
        assert layout.WIDTH / 2 <= x <= made.width - layout.WIDTH / 2
        assert layout.HEIGHT / 2 <= y <= made.height - layout.HEIGHT / 2


def test_a_chain_is_straight():
    made = layout.layout(5, [(n, n + 1) for n in range(4)])
    assert len({round(x) for x, _ in made.centres}) == 1


def test_a_source_is_right_above_its_reader():
    made = layout.layout(5, [(0, 1), (1, 2), (2, 4), (3, 4)])
    assert made.centres[3][1] == made.centres[2][1]


def test_curve():
    assert layout.curve([(0, 0), (10, 20)]) == "M0.0,0.0C0.0,10.0 10.0,10.0 10.0,20.0"


def test_nothing():
    assert layout.layout(0, []).paths == ()
    with pytest.raises(ValueError, match="unpack"):
        layout.curve([])
