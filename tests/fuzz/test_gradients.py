"""Random functions, differentiated, through Grappler: what TensorFlow's own optimizers leave behind is odd enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import event, given
from hypothesis import strategies as st

import tf_stitch
from tests.end_to_end.stitched import arrays
from tests.fuzz.graphs import FLOATS
from tests.fuzz.settings import tries
from tests.fuzz.test_graphs import LARGEST, SIZES, Case, cases
from tests.lower.comparison import assert_near, epsilon
from tf_stitch.ir.types import product


def gradients(case: Case, *, widen: bool) -> Any:
    """A function that returns the results and the gradients of half their sum."""

    def function(*xs: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(xs)
            ys = case.program.execute(list(xs), widen=widen)
            floats = [tf.reduce_sum(tf.cast(y, tf.float64) * 0.5) for y in ys if y.dtype.is_floating]
            loss = tf.add_n(floats) if floats else tf.constant(0.0, tf.float64)
        found = tape.gradient(loss, [x for x in xs if x.dtype.is_floating])
        return [*ys, *(g for g in found if g is not None)]

    return function


@pytest.mark.slow
@tries(6)
@given(st.lists(cases, min_size=6, max_size=6))
def test_random_gradients_are_the_same_stitched(batch: list[Case]) -> None:
    for case in batch:
        if any(t.dtype in FLOATS for t in case.program.inputs):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TF_STITCH_STRICT", "0")  # shapes that gradients compute are not all known
                check(case)


def check(case: Case) -> None:
    before = tf_stitch.stats()
    specs = case.program.specs(case.fixed)
    plain, stitched = (
        make(gradients(case, widen=False), input_signature=specs, autograph=False)
        for make in (tf.function, tf_stitch.function)
    )
    wide = tf.function(gradients(case, widen=True), autograph=False)
    floats = [t.dtype.numpy for t in case.program.types if t.dtype in FLOATS]
    for number, sizes in enumerate(SIZES[:2]):
        symbols = case.symbols(sizes)
        if max(product(t.shape).evaluate(symbols) for t in case.program.types) > LARGEST:
            continue
        arguments = case.program.arguments(symbols, number)
        tensors = [tf.constant(a) for a in arguments]
        doubles = [tf.constant(a.astype(np.float64) if a.dtype == np.float32 else a) for a in arguments]
        results = (arrays(stitched(*tensors)), arrays(plain(*tensors)), arrays(wide(*doubles)))
        for mine, other, wanted in zip(*results, strict=True):
            what = f"{case.program} with {symbols}"
            assert_near(mine, other, wanted, ulps=64, what=what, coarsest=max(floats, key=epsilon), least=1.0)
    after = tf_stitch.stats()
    assert after["failed"] == before["failed"]
    event("stitched" if after["calls"] > before["calls"] else "not stitched")
    event("fallbacks" if after["fallbacks"] != before["fallbacks"] else "no fallbacks")
