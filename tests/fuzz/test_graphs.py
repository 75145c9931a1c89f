"""Random TensorFlow functions, stitched and compiled: the same answers as TensorFlow's, at several sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import event, given
from hypothesis import strategies as st

from tests.fuzz.graphs import FLOATS, Program, programs
from tests.fuzz.settings import tries
from tests.lower.building import toolchain
from tests.lower.comparison import assert_near, epsilon
from tf_stitch.config import Config
from tf_stitch.frontend.importer import import_graph_def
from tf_stitch.frontend.rewrite import rewrite_graph_def
from tf_stitch.ir.types import product
from tf_stitch.pipeline import Stitched, stitch_all
from tf_stitch.runtime import stitch_op

SIZES = ((3, 5, 2), (1, 4, 33), (2, 1, 0), (16, 3, 1))  # of the symbols, in turn
LARGEST = 200_000  # elements of one value

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """A program, and which of its symbols are static."""

    program: Program
    static: tuple[bool, ...]

    def symbols(self, sizes: tuple[int, ...]) -> dict[str, int]:
        first = dict(zip(self.program.symbols, SIZES[0], strict=False))
        chosen = dict(zip(self.program.symbols, sizes, strict=False))
        return {s: first[s] if fixed else chosen[s] for (s, fixed) in zip(chosen, self.static, strict=False)}

    @property
    def fixed(self) -> dict[str, int]:
        return {s: n for (s, n), f in zip(self.symbols(SIZES[0]).items(), self.static, strict=False) if f}


cases = st.builds(Case, programs(), st.tuples(*[st.booleans()] * 3))


def rewritten(concrete: Any, graph_def: Any, stitched: Stitched) -> Any:
    """The function with its clusters as StitchOps."""
    for made in stitched.clusters:
        stitch_op.register_kernel(made.artifact.key, str(made.artifact.path))
    new = rewrite_graph_def(graph_def, stitched)
    wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(new, name=""), [])
    graph = wrapped.graph
    return wrapped.prune(
        [graph.as_graph_element(t.name) for t in concrete.inputs],
        [graph.as_graph_element(t.name) for t in concrete.outputs],
    )


@pytest.mark.slow
@tries(18)
@given(st.lists(cases, min_size=5, max_size=5))
def test_random_functions_give_the_same_stitched(batch: list[Case]) -> None:
    concretes = [case.program.build(case.fixed) for case in batch]
    graph_defs = [c.graph.as_graph_def(add_shapes=True) for c in concretes]
    graphs = [
        import_graph_def(d, fetched={t.op.name for t in c.outputs}) for c, d in zip(concretes, graph_defs, strict=True)
    ]
    chain = toolchain()
    for case, concrete, graph_def, stitched in zip(
        batch, concretes, graph_defs, stitch_all(graphs, Config(), chain.target, chain), strict=True
    ):
        event(f"{len(stitched.clusters)} clusters")
        if stitched.clusters:
            check(case, concrete, rewritten(concrete, graph_def, stitched))


def check(case: Case, concrete: Any, stitched: Any) -> None:
    wide = case.program.build(case.fixed, widen=True)
    floats = [t.dtype.numpy for t in case.program.types if t.dtype in FLOATS]
    coarsest = max(floats, key=epsilon, default=None)
    for number, sizes in enumerate(SIZES):
        symbols = case.symbols(sizes)
        if max(product(t.shape).evaluate(symbols) for t in case.program.types) > LARGEST:
            continue
        arguments = case.program.arguments(symbols, number)
        theirs = concrete(*(tf.constant(a) for a in arguments))
        exact = wide(*(tf.constant(a.astype(np.float64) if a.dtype == np.float32 else a) for a in arguments))
        ours = stitched(*(tf.constant(a) for a in arguments))
        for mine, other, wanted in zip(*map(tf.nest.flatten, (ours, theirs, exact)), strict=True):
            assert_near(
                mine.numpy(),
                other.numpy(),
                wanted.numpy(),
                ulps=64,
                what=f"{case.program} with {symbols}",
                coarsest=coarsest,
                least=1.0,
            )
