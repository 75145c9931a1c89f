"""The smallest graphs on which the clusters were not the best there are; `python -m bench optimality` finds more."""

from __future__ import annotations

import numpy as np

from tests.passes.drawing import Drawing, clusters, f32


def test_a_reader_of_a_view_joins_its_other_neighbours() -> None:
    """view ─► cut ─► square ─► add, and view ─► erf ─► add. The view stays outside, as `cut` reads it. Its cluster with
    erf may not hold add, because of the path through cut: but erf by itself may."""
    d = Drawing()
    x = d.input("x", f32(64, 256))
    view = d.node("view", "Reshape", x, d.constant("to", np.array([128, 128], np.int32)), type_=f32(128, 128))
    erf = d.node("erf", "Erf", view)
    square = d.node("square", "Square", d.node("cut", "Cumsum", view))
    add = d.node("add", "AddV2", erf, square)
    assert clusters(d.graph(returned=[add])) == [["erf", "square", "add"]]
