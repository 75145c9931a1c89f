"""The named clusters: each is one cluster, planned as its author would; with static and with unknown dims."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.golden.clusters import NAMED, Named, traced
from tf_stitch.ir.body import Reduce
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.plan import Scheme, StitchPlan
from tf_stitch.plan.verify import verify_plan

CASES = [
    pytest.param(named, dtype, static, id=f"{named.name}-{dtype.value}-{'static' if static else 'unknown'}")
    for named in NAMED
    for dtype in named.dtypes
    for static in (False, True)
]

# Of the steps that are computed, how many there are of each scheme; with unknown dims, in the first dtype.
SCHEMES = {
    "layer_norm": {Scheme.REGIONAL: 9, Scheme.LOCAL: 12, Scheme.INDEPENDENT: 1},
}


def plan_of(named: Named, dtype, static) -> StitchPlan:
    (cluster,) = traced(named.name, dtype, static=static).clustering.clusters
    plan = plan_groups(cluster.body)
    verify_plan(plan)
    return plan


@pytest.mark.parametrize(("named", "dtype", "static"), CASES)
def test_x(named: Named, dtype, static) -> None:
    plan = plan_of(named, dtype, static)
    red = [s.op.function for s in plan.body.steps if isinstance(s.op, Reduce)]
    print(named.name, static, len(plan.groups), red, {str(k): v for k, v in Counter(plan.schemes.values()).items()},
          [(plan.body.steps[g.dominant].origin, [plan.body.steps[s].origin for s in g.sub_dominants]) for g in plan.groups])
