"""f16 and bf16 of the CUDA prelude on all of their values, and rounding to them: the integer forms, run on the host.

Devices that have an instruction use that; `test_cuda_compiling` sees to it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.prelude.cuda import BEGIN, END, built, call, loop
from tests.prelude.test_half import BY_TYPE, EVERY, HALVES, f32_sample


def source(type_: str) -> str:
    return "".join(
        [
            BEGIN,
            loop("widen", [type_], "f32", "v0"),
            loop("narrow", ["f32"], type_, "v0"),
            loop("rounded", ["f32"], "f32", f"round_to_{type_}(v0)"),
            f'extern "C" void pairs(const f32* in, {type_}* out, i64 count) {{\n'
            "  for (i64 at = 0; at < count; at += 2) store(out + at, load<2>(in + at));\n}\n",
            END,
        ]
    )


@BY_TYPE
def test_every_value_comes_back(type_: str) -> None:
    library, halves = built(source(type_)), EVERY.view(HALVES[type_])
    wide = halves.astype(np.float32)
    nan = np.isnan(wide)
    found = call(library, "widen", halves, out=np.float32)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], wide.view(np.uint32)[~nan])
    assert np.isnan(found[nan]).all()
    back = call(library, "narrow", found, out=HALVES[type_])
    np.testing.assert_array_equal(back.view(np.uint16)[~nan], EVERY[~nan])
    assert np.isnan(back[nan].astype(np.float32)).all()


@BY_TYPE
@pytest.mark.parametrize("name", ["narrow", "pairs"])
def test_rounding_is_to_nearest_even(type_: str, name: str) -> None:
    library, x = built(source(type_)), f32_sample()
    with np.errstate(all="ignore"):
        exact = x.astype(HALVES[type_])
    nan = np.isnan(x)
    found = call(library, name, x, out=HALVES[type_])
    np.testing.assert_array_equal(found.view(np.uint16)[~nan], exact.view(np.uint16)[~nan])
    assert np.isnan(found[nan].astype(np.float32)).all()
    rounded = call(library, "rounded", x, out=np.float32)
    np.testing.assert_array_equal(rounded.view(np.uint32)[~nan], exact.astype(np.float32).view(np.uint32)[~nan])
    assert np.isnan(rounded[nan]).all()
