"""The named clusters three ways: TensorFlow, the compiled kernel, the interpreter; and against float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden.clusters import NAMED, Named, arguments_of, specs_of, traced
from tests.lower.building import Lowered, compiled, lowered
from tests.lower.comparison import assert_near
from tests.lower.compiled import Compiled, Host
from tf_stitch.ir.types import DType
from tf_stitch.lower import interp

Array = np.ndarray[Any, np.dtype[Any]]
CASES = [(n.name, dtype, static) for n in NAMED for dtype in n.dtypes for static in (False, True)]
CASES = [(n, d, s) for n, d, s in CASES if d in (DType.F32, DType.I32, DType.BOOL) or not s]


@dataclasses.dataclass(frozen=True)
class Built:
    lowered: Lowered
    compiled: Compiled


@pytest.fixture(scope="module")
def built() -> dict[tuple[str, DType, bool], Built]:
    """All kernels, built together."""
    made: list[Lowered] = []
    for name, dtype, static in CASES:
        (cluster,) = traced(name, dtype, static=static).clustering.clusters
        made.append(lowered(cluster.body, name))
    kernels = compiled(made)
    return {case: Built(m, k) for case, m, k in zip(CASES, made, kernels, strict=True)}


def _fed(name: str, dtype: DType, static: bool, arguments: list[Array]) -> list[Array]:
    """The arguments in the order of the cluster's inputs."""
    found = traced(name, dtype, static=static)
    (cluster,) = found.clustering.clusters
    by_name = {t.op.name: a for t, a in zip(found.concrete.inputs, arguments, strict=True)}
    return [by_name[value.node] for value in cluster.inputs]


def _exact(named: Named, arguments: list[Array]) -> list[Array] | None:
    """The same in float64."""
    if DType.F64 not in named.dtypes:
        return None
    specs = specs_of(named, DType.F64, static=False)
    function = tf.function(named.function, input_signature=specs, autograph=False)
    return _numpy(function(*(tf.constant(a.astype(np.float64)) for a in arguments)))


def _numpy(tensors: Any) -> list[Array]:
    return [t.numpy() for t in tf.nest.flatten(tensors)]


@pytest.mark.parametrize("named", NAMED, ids=lambda n: n.name)
def test_kernel_interpreter_and_tensorflow_agree(named: Named, built: dict[Any, Built]) -> None:
    for dtype in named.dtypes:
        for static, sizes in [(False, s) for s in (named.static, *named.sizes)] + [(True, named.static)]:
            if (named.name, dtype, static) not in built:
                continue
            kernel = built[named.name, dtype, static]
            arguments = arguments_of(named, sizes, dtype)
            fed = _fed(named.name, dtype, static, arguments)
            ours = kernel.compiled(fed)
            what = f"{named.name} {dtype.value} {'static' if static else 'unknown dims'} {dict(sizes)}"
            for mine, interpreted in zip(ours, interp.run(kernel.lowered.kernel, fed), strict=True):
                assert_near(mine, interpreted, what=f"interpreted {what}")
            concrete = traced(named.name, dtype, static=static).concrete
            theirs = _ordered(named, dtype, static, concrete, arguments)
            wanted = _exact_ordered(named, dtype, static, arguments)
            for mine, other, exact in zip(ours, theirs, wanted, strict=True):
                assert_near(mine, other, exact, ulps=64 if dtype is DType.F64 else 4, what=what)


def _order(name: str, dtype: DType, static: bool) -> list[int]:
    """For each output of the cluster, which result of the function it is."""
    found = traced(name, dtype, static=static)
    (cluster,) = found.clustering.clusters
    sources = [t.op.inputs[0].op.name for t in found.concrete.outputs]
    slots = [t.op.inputs[0].value_index for t in found.concrete.outputs]
    results = list(zip(sources, slots, strict=True))
    return [results.index((v.node, v.index)) for v in cluster.outputs]


def _ordered(named: Named, dtype: DType, static: bool, concrete: Any, arguments: list[Array]) -> list[Array]:
    results = _numpy(concrete(*(tf.constant(a) for a in arguments)))
    return [results[i] for i in _order(named.name, dtype, static)]


def _exact_ordered(named: Named, dtype: DType, static: bool, arguments: list[Array]) -> list[Array | None]:
    order = _order(named.name, dtype, static)
    exact = _exact(named, arguments)
    return [None] * len(order) if exact is None else [exact[i] for i in order]


@pytest.mark.parametrize("named", NAMED, ids=lambda n: n.name)
def test_buffers_of_inputs_may_be_taken(named: Named, built: dict[Any, Built]) -> None:
    """Computing in place of an input gives the same bits, however the loops are cut."""
    dtype = named.dtypes[0]
    kernel = built[named.name, dtype, False].compiled
    for sizes in (named.static, *named.sizes):
        fed = _fed(named.name, dtype, False, arguments_of(named, sizes, dtype))
        apart = kernel(fed)
        for host in (
            Host(),
            Host(threads=8, order="reversed"),
            Host(threads=8, order="strided", chunk=3, cache_bytes=0),
        ):
            for mine, wanted in zip(kernel(fed, host, forward=True), apart, strict=True):
                assert mine.tobytes() == wanted.tobytes(), f"{named.name} {dict(sizes)} {host.order}"
