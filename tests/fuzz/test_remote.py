"""Random functions side by side in one graph, stitched and compiled: joined, they give what each gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import event, given
from hypothesis import strategies as st

from tests.fuzz.graphs import FLOATS, programs
from tests.fuzz.settings import tries
from tests.fuzz.test_graphs import Case, rewritten
from tests.lower.building import toolchain
from tests.lower.comparison import assert_near, epsilon
from tf_stitch.config import Config
from tf_stitch.frontend.importer import import_graph_def
from tf_stitch.pipeline import Stitched, stitch_all

SIZES = (3, 5, 2)
cases = st.builds(Case, programs(steps=7), st.tuples(*[st.booleans()] * 3))


def side_by_side(batch: list[Case]) -> Any:
    """One function of all their inputs, with all their outputs."""

    def together(*tensors: Any) -> list[Any]:
        waiting, found = list(tensors), list[Any]()
        for case in batch:
            count = len(case.program.inputs)
            found += case.program.execute(waiting[:count])
            del waiting[:count]
        return found

    specs = [spec for case in batch for spec in case.program.specs(case.fixed)]
    return tf.function(together, input_signature=specs, autograph=False).get_concrete_function()


@pytest.mark.slow
@tries(12)
@given(st.lists(st.lists(cases, min_size=2, max_size=4), min_size=3, max_size=3))
def test_functions_side_by_side_give_what_they_gave(batches: list[list[Case]]) -> None:
    concretes = [side_by_side(batch) for batch in batches]
    graph_defs = [c.graph.as_graph_def(add_shapes=True) for c in concretes]
    graphs = [
        import_graph_def(d, fetched={t.op.name for t in c.outputs}) for c, d in zip(concretes, graph_defs, strict=True)
    ]
    chain = toolchain()
    joined, apart = (
        stitch_all(graphs, config, chain.target, chain) for config in (Config(), Config(remote_stitching=False))
    )
    for batch, concrete, graph_def, one, other in zip(batches, concretes, graph_defs, joined, apart, strict=True):
        assert nodes(one) >= nodes(other)
        event(f"{len(other.clusters)} clusters are {len(one.clusters)}")
        if one.clusters:
            check(batch, concrete, graph_def, one)


def nodes(stitched: Stitched) -> set[str]:
    return {name for made in stitched.clusters for name in made.cluster.nodes}


def check(batch: list[Case], concrete: Any, graph_def: Any, stitched: Stitched) -> None:
    given = [case.program.arguments(case.symbols(SIZES), number) for number, case in enumerate(batch)]
    tensors = [tf.constant(a) for arguments in given for a in arguments]
    ours = iter(tf.nest.flatten(rewritten(concrete, graph_def, stitched)(*tensors)))
    theirs = iter(tf.nest.flatten(concrete(*tensors)))
    for case, arguments in zip(batch, given, strict=True):
        wide = case.program.build(case.fixed, widen=True)
        exact = wide(*(tf.constant(a.astype(np.float64) if a.dtype == np.float32 else a) for a in arguments))
        floats = [t.dtype.numpy for t in case.program.types if t.dtype in FLOATS]
        coarsest = max(floats, key=epsilon, default=None)
        for wanted in tf.nest.flatten(exact):
            mine, other = next(ours).numpy(), next(theirs).numpy()
            assert_near(mine, other, wanted.numpy(), ulps=64, what=str(case.program), coarsest=coarsest, least=1.0)
