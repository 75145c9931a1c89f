"""Random bodies, compiled: what the interpreter computes, on any number of threads, in place, with long rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.fuzz.bodies import Case, cases, inputs_of, largest
from tests.fuzz.settings import tries
from tests.fuzz.test_bodies import assert_alike
from tests.lower.building import Lowered, compiled, lowered
from tests.lower.comparison import same_bits
from tests.lower.compiled import Compiled, Host
from tf_stitch.errors import Unsupported
from tf_stitch.lower import interp
from tf_stitch.lower.cpu import Driver
from tf_stitch.passes.unroll import unroll_short_reductions
from tf_stitch.runtime.reference import GuardFailed

LONG = 20_011  # elements of a row that is split
LARGEST = 400_000


@pytest.mark.slow
@tries(6)
@given(st.lists(cases(), min_size=8, max_size=8))
def test_compiled_kernels_compute_what_the_interpreter_does(batch: list[Case]) -> None:
    made: list[tuple[Case, Lowered]] = []
    for case in batch:
        for body in {case.body: None, unroll_short_reductions(case.body): None}:
            try:
                made.append((replace(case, body=body), lowered(body)))
            except Unsupported:
                event("refused")
    for (case, one), kernel in zip(made, compiled([m for _, m in made]), strict=True):
        event(f"driver {sorted({s.driver.value for s in one.schedules})}")
        for symbols in (case.symbols, *_longer(case, one)):
            check(case, one, kernel, symbols)


def _longer(case: Case, made: Lowered) -> list[dict[str, int]]:
    """One symbol at a time large enough for a row to be split."""
    if all(s.driver is not Driver.ROWS_OR_SPLIT for s in made.schedules):
        return []
    found: list[dict[str, int]] = []
    for name in case.symbols:
        symbols = {n: LONG if n == name else min(size, 2) for n, size in case.symbols.items()}
        if largest(case.body, symbols) <= LARGEST:
            found.append(symbols)
    return found


def check(case: Case, made: Lowered, kernel: Compiled, symbols: dict[str, int]) -> None:
    inputs = inputs_of(case.body, symbols, 1)
    try:
        wanted = interp.run(made.kernel, inputs)
    except GuardFailed:
        event("guarded")
        with pytest.raises(GuardFailed):
            kernel(inputs)
        return
    alone = kernel(inputs)
    assert_alike(alone, wanted, case.body)
    for host in (Host(threads=8, order="reversed", chunk=2), Host(threads=8, order="strided", cache_bytes=0)):
        for forward in (False, True):
            for mine, other in zip(kernel(inputs, host, forward=forward), alone, strict=True):
                assert same_bits(mine, other), f"{host.order}, {'in place' if forward else 'apart'}, with {symbols}"
