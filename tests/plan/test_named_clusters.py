"""The named clusters: each is one cluster and one kernel, planned as one would by hand; dims static or unknown."""

from __future__ import annotations

import pytest

from tests.golden.clusters import BY_NAME, NAMED, traced
from tf_stitch.errors import Reason
from tf_stitch.ir.body import Reduce
from tf_stitch.ir.types import DType
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.plan import Scheme, StitchPlan
from tf_stitch.plan.verify import verify_plan

LOCAL, REGIONAL, GLOBAL, INDEPENDENT = Scheme.LOCAL, Scheme.REGIONAL, Scheme.GLOBAL, Scheme.INDEPENDENT

# The TensorFlow nodes that dominate each group, the reducers in order, the schemes that occur.
PLANS = {
    "layer_norm": (["Mean"], ["sum", "sum"], {LOCAL, REGIONAL, INDEPENDENT}),
    "rms_norm": (["Mean"], ["sum"], {LOCAL, REGIONAL, INDEPENDENT}),
    "masked_softmax": (["Softmax"], ["max", "sum"], {LOCAL, REGIONAL, INDEPENDENT}),
    "log_softmax": (["LogSoftmax"], ["max", "sum"], {LOCAL, REGIONAL, INDEPENDENT}),
    "gelu_erf": (["mul_1"], [], {LOCAL, INDEPENDENT}),
    "gelu_tanh": (["mul_5"], [], {LOCAL, INDEPENDENT}),
    "bias_activation": (["mul"], [], {LOCAL, INDEPENDENT}),
    "l2_normalise": (["Sum"], ["sum"], {LOCAL, REGIONAL, INDEPENDENT}),
    "lstm": (["add_2"], [], {LOCAL, INDEPENDENT}),
    "chain": (["Maximum_3"], [], {LOCAL, INDEPENDENT}),
    "split_heads": (["mul"], [], {LOCAL, INDEPENDENT}),
    "merge_heads": (["add"], [], {LOCAL, INDEPENDENT}),
    "batch_norm": (["FusedBatchNormV3", "mul"], [], {LOCAL, GLOBAL, INDEPENDENT}),
    "max_and_softmax": (["Max"], ["max", "sum"], {LOCAL, REGIONAL, INDEPENDENT}),
    "integers": (["Sum"], ["sum"], {LOCAL, REGIONAL, INDEPENDENT}),
    "booleans": (["All"], ["all", "any"], {LOCAL, REGIONAL, INDEPENDENT}),
}
CASES = [
    pytest.param(named.name, dtype, static, id=f"{named.name}-{dtype.value}-{'static' if static else 'unknown'}")
    for named in NAMED
    for dtype in named.dtypes
    for static in (False, True)
]


def plan_of(name: str, dtype: DType, *, static: bool) -> StitchPlan:
    (cluster,) = traced(name, dtype, static=static).clustering.clusters
    plan = plan_groups(cluster.body)
    verify_plan(plan)
    return plan


@pytest.mark.parametrize(("name", "dtype", "static"), CASES)
def test_is_one_cluster_with_the_expected_plan(name: str, dtype: DType, static: bool) -> None:
    found = traced(name, dtype, static=static)
    assert len(found.clustering.clusters) == 1
    assert {r.reason for r in found.clustering.rejections} <= {Reason.FETCHED}
    (cluster,) = found.clustering.clusters
    working = {
        n for n, node in found.graph.nodes.items() if node.op not in ("Placeholder", "Const", "Identity", "NoOp")
    }
    assert working <= set(cluster.nodes), "everything between arguments and results is in the cluster"
    plan = plan_of(name, dtype, static=static)
    dominants, reducers, schemes = PLANS[name]
    steps = plan.body.steps
    assert [steps[group.dominant].origin for group in plan.groups] == dominants
    assert len(plan.groups) == BY_NAME[name].groups
    assert [s.op.function for s in steps if isinstance(s.op, Reduce)] == reducers
    assert set(plan.schemes.values()) == schemes
    for index, step in enumerate(steps):
        if isinstance(step.op, Reduce):
            assert plan.schemes[index] in (REGIONAL, INDEPENDENT)


@pytest.mark.parametrize("name", [n.name for n in NAMED])
def test_static_and_unknown_dims_are_planned_alike(name: str) -> None:
    """The same groups, scheme for scheme, but for what constant extents fold away."""
    dtype = BY_NAME[name].dtypes[0]
    static, unknown = plan_of(name, dtype, static=True), plan_of(name, dtype, static=False)
    assert len(static.groups) == len(unknown.groups)
    assert len(static.scratch) == len(unknown.scratch)
    for mine, theirs in zip(static.groups, unknown.groups, strict=True):
        assert len(mine.outer) == len(theirs.outer)
        assert len(mine.inner) == len(theirs.inner)


def test_a_chain_of_more_than_thirty_ops_is_one_loop() -> None:
    (cluster,) = traced("chain").clustering.clusters
    assert len(cluster.nodes) > 32
    (group,) = plan_of("chain", DType.F32, static=False).groups
    assert (len(group.outer), len(group.inner)) == (2, 0)
