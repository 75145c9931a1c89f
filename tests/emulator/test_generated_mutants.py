"""No barrier, fence, bound or guard of a generated kernel can go without being missed.

Each version of a named cluster's kernel is mutated by itself, and run at shapes that it is made for. What it must give
is what it gives when it is whole, to the last bit.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

import numpy as np
import pytest

from tests.emulator.emulated import Module, compile_kernel
from tests.emulator.kernels import WrongNumbers
from tests.emulator.mutants import Mutant, judge, mutants, table
from tests.golden.clusters import BY_NAME, NAMED, Array, Named, arguments_of, traced
from tests.lower.emulated import Emulated, LoweredForGpu, lowered_for_gpu
from tf_stitch.lower import interp
from tf_stitch.lower.gpu_launch import Variant

# Rows that a warp has to itself, that a block has, that are cut into pieces: more of each than one block takes at once.
_SHAPES: tuple[Mapping[str, int], ...] = (
    {"R": 13, "N": 200},
    {"R": 5, "N": 1023},
    {"R": 3, "N": 4173},
    {"R": 2, "N": 64},
)


@functools.cache
def made(name: str) -> LoweredForGpu:
    return lowered_for_gpu(_cluster(name).body, name)


def _cluster(name: str):
    (cluster,) = traced(name, BY_NAME[name].dtypes[0]).clustering.clusters
    return cluster


def versions(name: str) -> list[str]:
    return [variant.entry for variant in made(name).schedules.launch.variants]


def alone(text: str, entry: str) -> str:
    """`text` without its other entries, line for line."""

    def kept(match: re.Match[str]) -> str:
        return match[0] if match[1] == entry else "\n" * match[0].count("\n")

    return re.sub(r'^extern "C" __global__[^(]*?\([^)]*\)\s*(\w+)\(.*?^}$', kept, text, flags=re.DOTALL | re.MULTILINE)


def shapes(named: Named) -> list[Mapping[str, int]]:
    unknown = {dim for dims in named.arguments for dim in dims if isinstance(dim, str)}
    fit = [shape for shape in _SHAPES if unknown <= shape.keys()]
    return fit or [named.static, *named.sizes]


def inputs_of(name: str, shape: Mapping[str, int]) -> list[Array]:
    """Arguments in the order of the cluster's inputs."""
    named = BY_NAME[name]
    found, cluster = traced(name, named.dtypes[0]), _cluster(name)
    arguments = arguments_of(named, shape, named.dtypes[0])
    by_name = {t.op.name: a for t, a in zip(found.concrete.inputs, arguments, strict=True)}
    return [by_name[value.node] for value in cluster.inputs]


@dataclasses.dataclass
class Trial:
    """Runs a version at all shapes that it is made for, and compares with what the whole kernel gives."""

    name: str
    entry: str

    def __post_init__(self) -> None:
        kernel = made(self.name)
        self.runs: list[tuple[list[Array], Variant, list[Array]]] = []
        whole = Emulated(kernel, compile_kernel(alone(kernel.text, self.entry)))
        for shape in shapes(BY_NAME[self.name]):
            inputs = inputs_of(self.name, shape)
            for variant in whole.variants(inputs):
                # Two blocks, so that each goes through its loop more than once.
                few = dataclasses.replace(variant, resident=True, blocks=2)
                if variant.entry == self.entry and few.grid(interp.bind(kernel.kernel, inputs), 1) > 0:
                    self.runs.append((inputs, few, whole(inputs, few, multiprocessors=1)))

    def __call__(self, module: Module, seed: int | None) -> None:
        for inputs, variant, wanted in self.runs:
            results = Emulated(made(self.name), module)(inputs, variant, multiprocessors=1, seed=seed)
            if any(np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in zip(results, wanted, strict=True)):
                raise WrongNumbers(f"{self.entry}: other results")


def judged(name: str, entry: str) -> None:
    trial = Trial(name, entry)
    if not trial.runs:
        pytest.skip("made for shapes that are too large to emulate")
    for sanitizer in (None, "address", "thread"):
        trial(compile_kernel(alone(made(name).text, entry), sanitizer), 1)
    found: list[Mutant] = list(mutants(alone(made(name).text, entry)))
    assert found, "there is something to leave out"
    verdicts = [judge(mutant, trial) for mutant in found]
    print("\n" + table(verdicts))
    assert not [str(verdict) for verdict in verdicts if verdict.by is None]


def test_long_rows_of_a_layer_norm():
    """Rows in pieces, with barriers of the block and of the grid, tiles and partial results in scratch."""
    judged("layer_norm", next(v.entry for v in made("layer_norm").schedules.launch.variants if v.resident))


@pytest.mark.slow
@pytest.mark.parametrize("name", [named.name for named in NAMED])
def test_every_version(name: str):
    for entry in versions(name):
        judged(name, entry)
