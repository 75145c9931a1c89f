"""What holds of kernels whose vectors are columns: they are right, and their bits the same whoever computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.lower.building import Lowered, compiled, lowered
from tests.lower.comparison import assert_near, same_bits
from tests.lower.compiled import Compiled, Host
from tf_stitch.ir.body import Body
from tf_stitch.lower import interp
from tf_stitch.runtime.reference import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
Kernels = dict[str, tuple[Lowered, Compiled]]
Sizes = Sequence[dict[str, int]]


def kernels_of(bodies: Mapping[str, Body]) -> Kernels:
    made = [lowered(body, name) for name, body in bodies.items()]
    return dict(zip(bodies, zip(made, compiled(made), strict=True), strict=True))


def inputs_of(body: Body, sizes: dict[str, int]) -> list[Array | None]:
    random = np.random.default_rng(0)
    found: list[Array | None] = []
    for type_ in body.inputs:
        assert type_ is not None
        values = random.standard_normal([d.evaluate(sizes) for d in type_.dims]) * 3
        found.append(values.astype(type_.dtype.numpy))
    return found


def assert_right(made: Lowered, kernel: Compiled, body: Body, at: Sizes) -> None:
    """Compiled and interpreted, beside the reference."""
    for sizes in at:
        inputs = inputs_of(body, sizes)
        wanted = evaluate(body, inputs, sizes)
        for found in (kernel(inputs), interp.run(made.kernel, inputs)):
            for mine, theirs in zip(found, wanted, strict=True):
                assert_near(mine, theirs, ulps=64, what=f"{made.kernel.name} {sizes}", least=1.0)


def assert_bits_do_not_depend_on_threads(kernel: Compiled, body: Body, at: Sizes) -> None:
    """WHOLE and SPLIT, all threads, all orders, and into the inputs' buffers where they may be taken."""
    for sizes in at:
        inputs = inputs_of(body, sizes)
        alone = kernel(inputs)
        for host in (
            Host(threads=2, order="forward"),
            Host(threads=8, order="reversed"),
            Host(threads=8, pool=4, order="strided"),
            Host(threads=1, cache_bytes=0),
            Host(threads=8, order="reversed", cache_bytes=0),
            Host(threads=8, pool=4, order="strided", cache_bytes=0),
        ):
            for forward in (False, True):
                for mine, theirs in zip(kernel(inputs, host, forward=forward), alone, strict=True):
                    assert same_bits(mine, theirs), f"{sizes} {host.threads} threads"
