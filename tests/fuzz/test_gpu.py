"""Random bodies on a GPU: every version keeps its invariants, and computes what the body does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given

from tests.fuzz.bodies import Case, cases
from tests.fuzz.settings import tries
from tests.fuzz.test_bodies import assert_alike
from tests.lower.emulated import LoweredForGpu, emulated, lowered_for_gpu
from tf_stitch.errors import Unsupported
from tf_stitch.lower import interp
from tf_stitch.runtime.reference import GuardFailed

Array = np.ndarray[Any, np.dtype[Any]]


def _lowered(case: Case) -> LoweredForGpu | None:
    try:
        made = lowered_for_gpu(case.body)
    except Unsupported as refused:
        event(f"refused: {refused.reason.name}")
        return None
    for version in made.schedules.versions:
        for schedule in version.schedules:
            event(schedule.mapping.value + (", joined" if schedule.joined else ""))
    return made


@tries(200)
@given(cases())
def test_versions_keep_their_invariants_and_what_is_computed(case: Case) -> None:
    made = _lowered(case)
    if made is None:
        return
    try:
        wanted = interp.run(made.kernel, case.inputs)
    except GuardFailed:
        event("guarded")
        return
    for version in made.schedules.versions:
        assert_alike(interp.run(version.kernel, case.inputs), wanted, case.body)
        for number, kept in version.kept:
            event(f"{len(kept.tiles)} kept in waves")
            for level in kept.levels:
                nests = (*version.kernel.nests[:number], level, *version.kernel.nests[number + 1 :])
                kernel = replace(version.kernel, nests=nests)
                assert_alike(interp.run(kernel, case.inputs), wanted, case.body)


@pytest.mark.slow
@tries(300)
@given(cases())
def test_kernels_on_the_emulator_compute_what_the_body_does(case: Case) -> None:
    made = _lowered(case)
    if made is None:
        return
    try:
        wanted = interp.run(made.kernel, case.inputs)
    except GuardFailed:
        event("guarded")
        return
    kernel = emulated(made)
    for variant in kernel.variants(case.inputs):
        for seed in (None, 1, 2, 3, 4, 5):
            assert_alike(kernel(case.inputs, variant, seed=seed), wanted, case.body)


def _with_indices_out_of_range(case: Case) -> list[Array]:
    """The case's inputs, some of whose indices are before the first, or far behind the last."""
    random = np.random.default_rng(0)
    inputs: list[Array] = list(case.inputs)
    for number in {within.input for within in case.body.indices}:
        array = inputs[number]
        wrong = random.choice(np.array([-1, 2**31 - 1], array.dtype), array.shape)
        inputs[number] = np.where(random.random(array.shape) < 0.3, wrong, array)
    return inputs


@pytest.mark.slow
@tries(300)
@given(cases())
def test_indices_out_of_range_find_zeros(case: Case) -> None:
    made = _lowered(case) if case.body.indices else None
    if made is None:
        return
    inputs = _with_indices_out_of_range(case)
    try:
        wanted = interp.run(made.kernel, inputs, guarded=False)
    except GuardFailed:
        event("guarded")
        return
    kernel = emulated(made)
    for variant in kernel.variants(inputs):
        assert_alike(kernel(inputs, variant), wanted, case.body)
