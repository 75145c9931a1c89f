"""f16 and bf16 on all of their values, and the rounding of f32 to them, with and without flushed subnormals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.prelude.harness import BEGIN, MXCSR, Variant, build, call, variants

HALVES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
EVERY = np.arange(2**16, dtype=np.uint16)
BY_VARIANT = pytest.mark.parametrize("variant", variants(), ids=str)
BY_TYPE = pytest.mark.parametrize("type_", HALVES)
BY_MODE = pytest.mark.parametrize("flushed", [False, True], ids=["subnormals", "flushed"])


def source(type_: str) -> str:
    lines = [BEGIN, MXCSR]
    for lanes in (1, 4, 8, 16, 64):
        loop = f"for (i64 i = 0; i < count; i += {lanes})"
        lines += [
            f'extern "C" void widen_{lanes}(const {type_}* in, f32* out, i64 count)'
            f" {{ {loop} store(out + i, load<{lanes}>(in + i)); }}\n",
            f'extern "C" void narrow_{lanes}(const f32* in, {type_}* out, i64 count)'
            f" {{ {loop} store(out + i, load<{lanes}>(in + i)); }}\n",
            f'extern "C" void round_{lanes}(const f32* in, f32* out, i64 count)'
            f" {{ {loop} store(out + i, round_to_{type_}(load<{lanes}>(in + i))); }}\n",
        ]
    return "".join(lines)


def f32_sample() -> np.ndarray[Any, Any]:
    """Around every half: itself, the middle to the next, and both neighbours of each; and many f32."""
    middle = np.concatenate([EVERY.view(t).astype(np.float32).view(np.uint32) for t in HALVES.values()])
    near = [middle + np.uint32(d) for d in (0, 1, -1 % 2**32, 0x1000, 0x0FFF, 0x1001, 0x8000, 0x7FFF, 0x8001)]
    spread = np.arange(0, 2**32, 9973, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([*near, spread])
    return np.resize(x, x.size - x.size % 64).view(np.float32)


@BY_MODE
@BY_VARIANT
@BY_TYPE
def test_every_value_comes_back(type_: str, variant: Variant, flushed: bool) -> None:
    library = build(source(type_), variant)
    halves = EVERY.view(HALVES[type_])
    wide = halves.astype(np.float32)
    nan = np.isnan(wide)
    for lanes in (1, 4, 8, 16, 64):
        found = call(library, f"widen_{lanes}", halves, out=np.float32, flushed=flushed)
        assert (found.view(np.uint32) == wide.view(np.uint32))[~nan].all()
        assert np.isnan(found[nan]).all()
        back = call(library, f"narrow_{lanes}", found, out=HALVES[type_], flushed=flushed)
        assert (back.view(np.uint16) == EVERY)[~nan].all()
        assert np.isnan(back[nan].astype(np.float32)).all()


@BY_MODE
@BY_VARIANT
@BY_TYPE
def test_rounding_is_to_nearest_even(type_: str, variant: Variant, flushed: bool) -> None:
    library = build(source(type_), variant)
    x = f32_sample()
    with np.errstate(all="ignore"):
        exact = x.astype(HALVES[type_])
    wide = exact.astype(np.float32)
    nan = np.isnan(x)
    for lanes in (1, 4, 8, 16, 64):
        found = call(library, f"narrow_{lanes}", x, out=HALVES[type_], flushed=flushed)
        assert (found.view(np.uint16) == exact.view(np.uint16))[~nan].all()
        assert np.isnan(found[nan].astype(np.float32)).all()
        rounded = call(library, f"round_{lanes}", x, out=np.float32, flushed=flushed)
        assert (rounded.view(np.uint32) == wide.view(np.uint32))[~nan].all()
        assert np.isnan(rounded[nan]).all()


@BY_TYPE
def test_tensorflow_rounds_alike(type_: str) -> None:
    tf = pytest.importorskip("tensorflow")
    x = f32_sample()
    x = x[(np.abs(x) >= np.finfo(np.float32).tiny) | (x == 0)]  # TensorFlow flushes some of the others
    x = np.resize(x, x.size - x.size % 64)
    theirs = tf.function(lambda v: tf.cast(v, HALVES[type_]))(tf.constant(x)).numpy()
    ours = call(build(source(type_), variants()[0]), "narrow_64", x, out=HALVES[type_])
    assert (ours.view(np.uint16) == theirs.view(np.uint16))[~np.isnan(x)].all()
