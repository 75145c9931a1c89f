"""Random bodies: every stage keeps what they compute, and every verifier agrees.

The kernel is run by the interpreter: no compiler, so that thousands of bodies can be tried. `test_graphs` compiles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import event, given

from tests.fuzz.bodies import Case, cases
from tests.fuzz.settings import tries
from tf_stitch.errors import Unsupported
from tf_stitch.ir.body import Body
from tf_stitch.ir.verify import verify_body
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.cpu import schedule
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.passes.canonical import canonical_order, canonical_symbols
from tf_stitch.passes.unroll import unroll_short_reductions
from tf_stitch.passes.zeros import without_dear_zeros
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.target import Target
from tf_stitch.plan.verify import verify_plan
from tf_stitch.render.cpp import render
from tf_stitch.runtime.reference import GuardFailed, evaluate

TARGET = Target.baseline("x86-64-v3")
TOLERANCE = {2: 2e-2, 4: 1e-5, 8: 1e-10}  # by the size of a float

Array = np.ndarray[Any, np.dtype[Any]]


@tries(400)
@given(cases())
def test_a_kernel_computes_what_its_body_does(case: Case) -> None:
    verify_body(case.body, FUNCTIONS, REDUCERS)
    try:
        plan = plan_groups(case.body)
        verify_plan(plan)
        kernel = lower(plan, "kernel")
    except Unsupported as refused:
        event(f"refused: {refused.reason.name}")
        return
    event(f"{len(plan.groups)} groups")
    verify_kernel(kernel)
    scheduled, schedules = schedule(kernel, TARGET)
    verify_kernel(scheduled, schedules)
    render(scheduled, schedules)
    try:
        wanted = evaluate(case.body, case.inputs, case.symbols)
    except GuardFailed:
        event("guarded")
        return
    assert_alike(interp.run(kernel, case.inputs), wanted, case.body)
    assert_alike(interp.run(scheduled, case.inputs), wanted, case.body)


@tries(100)
@given(cases())
def test_passes_over_bodies_keep_what_they_compute(case: Case) -> None:
    body = case.body
    for a_pass in (unroll_short_reductions, without_dear_zeros):
        before, body = body, a_pass(body)
        verify_body(body, FUNCTIONS, REDUCERS)
        assert_alike(_evaluated(body, case), _evaluated(before, case), body)
    found = canonical_order(body)
    ordered = found.body
    verify_body(ordered, FUNCTIONS, REDUCERS)
    inputs = [case.inputs[i] if t else None for i, t in zip(found.inputs, ordered.inputs, strict=True)]
    wanted = _evaluated(body, case)
    if not wanted:
        event("guarded")
        return
    assert_alike(_evaluated(ordered, replace(case, inputs=inputs)), [wanted[i] for i in found.outputs], body)
    assert canonical_order(ordered).body == ordered


@tries(100)
@given(cases())
def test_canonical_symbols_are_renamed_only(case: Case) -> None:
    try:
        body = canonical_symbols(case.body)
    except Unsupported:
        event("refused")
        return
    verify_body(body, FUNCTIONS, REDUCERS)
    assert canonical_symbols(body) == body
    renamed = {
        new: old
        for mine, theirs in zip(body.inputs, case.body.inputs, strict=True)
        if mine is not None and theirs is not None
        for new_dim, old_dim in zip(mine.dims, theirs.dims, strict=True)
        for new, old in zip(new_dim.symbols, old_dim.symbols, strict=True)
    }
    assert len(renamed) == len({s for t in case.body.inputs if t is not None for d in t.dims for s in d.symbols})


def _evaluated(body: Body, case: Case) -> list[Array]:
    try:
        return evaluate(body, case.inputs, case.symbols)
    except GuardFailed:
        return []


def assert_alike(found: list[Array], wanted: list[Array], body: Body) -> None:
    """Equal integers and bools; floats equal but for rounding to the body's coarsest dtype, NaN for NaN."""
    assert len(found) == len(wanted)
    tolerance = max((TOLERANCE[s.type.dtype.size] for s in body.steps if s.type.dtype.is_float), default=0.0)
    for mine, theirs in zip(found, wanted, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        if mine.dtype.kind in "ib":
            np.testing.assert_array_equal(mine, theirs)
            continue
        exact = theirs.astype(np.float64)
        largest = np.max(np.abs(exact[np.isfinite(exact)]), initial=0.0)
        np.testing.assert_allclose(mine.astype(np.float64), exact, rtol=tolerance, atol=tolerance * largest)
