"""No barrier, fence, bound or guard of a generated kernel can go without being missed, but for those that do no harm.

Each version of a kernel is mutated by itself, and run at shapes that it is made for. What it must give is what it gives
when it is whole, to the last bit.
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
from tests.emulator.mutants import judge, mutants, table
from tests.golden.clusters import BY_NAME, NAMED, Array, Named, arguments_of, traced
from tests.lower.emulated import A100, Emulated, LoweredForGpu, lowered_for_gpu
from tests.lower.test_gpu import BODIES
from tests.lower.test_gpu_waves import gpu_with
from tf_stitch.lower import interp
from tf_stitch.lower.gpu_launch import Variant
from tf_stitch.plan.gpu_target import GpuTarget

# Rows that a warp has to itself, that a block has, that are cut into pieces: more of each than one block takes at once.
_ROWS = ((13, 200), (5, 1023), (3, 4173), (2, 64))
_SIZES = {
    "softmax": _ROWS,
    "all reducers": _ROWS,
    "a sum of everything": ((37, 129), (3, 4173)),
    "batch norm": ((600, 9), (70, 65)),
    "a layer norm's gradient": ((603, 70), (9, 300), (3, 4173)),
    "a softmax in the middle": ((2, 300, 9), (3, 33, 40)),
    "a transpose": ((31, 33),),
}

# Rows of more than one piece, for clusters whose own sizes have none.
_LONG = {"masked_softmax": {"B": 1, "Q": 2, "K": 4173}}

_ONE_PIECE = "few rows are one piece of their columns: the block that leaves what it summed is the one that reads it"

# What may go without harm, once in each version, and why. A line that nothing needs any longer is to be deleted.
_HARMLESS = {
    "batch norm": {
        (
            "clamp",
            "= first + wave < units ? first + wave : units;",
        ): "beyond the last columns there is nothing to do"
    },
    "all reducers": {("loop bound", "<"): "the any of so long a row is true, whatever is read besides"},
    "a layer norm's gradient": {
        ("check", "n < C"): "beyond a row's end, its part of a column's sum is computed for nothing, and not stored",
        ("grid barrier", "grid_barrier(barrier, 1);"): _ONE_PIECE,
        ("grid barrier", "grid_barrier(barrier, turn++ % 2);"): _ONE_PIECE,
    },
}

# The same of every kernel: a sum would be another one, which numbers tell.
_FORGIVEN = {("guard", "piece % 32 == thread % 32"): "a largest, least, any or all does not mind a value twice"}
# Of kernels for a GPU that keeps all rows of these sizes at a time.
_IN_ONE_WAVE = {("clamp", "= first + wave < units ? first + wave : units;"): "the first wave is the last"}

# Two of its blocks keep a row or two of these sizes, or some of a row.
_SMALL = gpu_with(24)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A kernel, and inputs of several shapes for it."""

    name: str
    made: LoweredForGpu
    inputs: tuple[list[Array], ...]

    @property
    def entries(self) -> list[str]:
        return [variant.entry for variant in self.made.schedules.launch.variants]


@functools.cache
def named_cluster(name: str, target: GpuTarget = A100) -> Subject:
    named = BY_NAME[name]
    found = traced(name, named.dtypes[0])
    (cluster,) = found.clustering.clusters
    inputs = []
    for shape in _shapes(named):
        arguments = arguments_of(named, shape, named.dtypes[0])
        by_name = {t.op.name: a for t, a in zip(found.concrete.inputs, arguments, strict=True)}
        inputs.append([by_name[value.node] for value in cluster.inputs])
    return Subject(name, lowered_for_gpu(cluster.body, name, target), tuple(inputs))


def _shapes(named: Named) -> list[Mapping[str, int]]:
    if {dim for dims in named.arguments for dim in dims if isinstance(dim, str)} == {"R", "N"}:
        return [dict(zip("RN", sizes, strict=True)) for sizes in _ROWS]
    return [named.static, *named.sizes, *([_LONG[named.name]] if named.name in _LONG else [])]


@functools.cache
def handmade_body(name: str, target: GpuTarget = A100) -> Subject:
    made = lowered_for_gpu(BODIES[name], target=target)
    random = np.random.default_rng(1)
    inputs = []
    for sizes in _SIZES[name]:
        symbols = {s.symbol: n for s, n in zip(made.kernel.symbols, sizes, strict=True)}
        types = [t for t in made.kernel.inputs if t is not None]
        shapes = [[d.evaluate(symbols) for d in t.dims] for t in types]
        values = [random.standard_normal(s) for s in shapes]
        for value in (v for v in values if v.ndim > 1):  # each row has larger ones: nobody takes the next row's unseen
            value *= np.arange(1, len(value) + 1).reshape(-1, *(1,) * (value.ndim - 1))
        inputs.append([v.astype(t.dtype.numpy) for v, t in zip(values, types, strict=True)])
    return Subject(name, made, tuple(inputs))


def alone(text: str, entry: str) -> str:
    """`text` without its other entries, and without the functions that only they call, line for line."""

    def kept(match: re.Match[str]) -> str:
        return match[0] if match[1] == entry else "\n" * match[0].count("\n")

    def called(match: re.Match[str]) -> str:
        return match[0] if re.search(rf"\b{match[1]}\(", body) else "\n" * match[0].count("\n")

    function = r"^{}[\w\s]*?(?:__launch_bounds__\([^)]*\)\s*)?\b(?!__launch)(\w+)\(.*?^}}$"
    body = re.sub(function.format('extern "C" __global__'), kept, text, flags=re.DOTALL | re.MULTILINE)
    calls, body = body, "".join(re.findall(r'^extern "C".*?^}$', body, flags=re.DOTALL | re.MULTILINE))
    return re.sub(function.format("__device__"), called, calls, flags=re.DOTALL | re.MULTILINE)


class Trial:
    """Runs one version at all shapes that it is made for, and compares with what the whole kernel gives."""

    def __init__(self, subject: Subject, entry: str) -> None:
        self.subject = subject
        self.entry = entry
        self.text = alone(subject.made.text, entry)
        self.runs: list[tuple[list[Array], Variant, list[Array]]] = []
        whole = Emulated(subject.made, compile_kernel(self.text))
        for inputs in subject.inputs:
            symbols = interp.bind(subject.made.kernel, inputs)
            for variant in whole.variants(inputs):
                # Two blocks, so that each goes through its loop more than once.
                few = dataclasses.replace(variant, resident=True, blocks=2)
                if variant.entry == entry and few.grid(symbols, 1) > 0:
                    self.runs.append((inputs, few, whole(inputs, few, multiprocessors=1)))

    def __call__(self, module: Module, seed: int | None) -> None:
        for inputs, variant, wanted in self.runs:
            results = Emulated(self.subject.made, module)(inputs, variant, multiprocessors=1, seed=seed)
            if any(a.tobytes() != b.tobytes() for a, b in zip(results, wanted, strict=True)):
                raise WrongNumbers(f"{self.entry}: other results")


def judged(subject: Subject, entry: str, forgiven: Mapping[tuple[str, str], str] = _FORGIVEN | _IN_ONE_WAVE) -> None:
    trial = Trial(subject, entry)
    if not trial.runs:
        return  # made for shapes that are too large to emulate
    for sanitizer in (None, "address", "thread"):
        trial(compile_kernel(trial.text, sanitizer), 1)
    verdicts = [judge(mutant, trial) for mutant in mutants(trial.text)]
    print("\n" + table(verdicts))
    assert verdicts, "there is something to leave out"
    escaped = [(verdict.mutant.kind, verdict.mutant.what) for verdict in verdicts if verdict.by is None]
    escaped = [one for one in escaped if one not in forgiven]
    assert set(escaped) <= _HARMLESS.get(subject.name, {}).keys()
    assert len(escaped) == len(set(escaped))


def test_long_rows_of_a_layer_norm():
    """Rows in pieces that come in waves: barriers of the block and of the grid, tiles and partial results."""
    subject = named_cluster("layer_norm", _SMALL)
    judged(subject, next(v.variant.entry for v in subject.made.schedules.versions if v.kept), _FORGIVEN)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("name", "target"), [("softmax", _SMALL), ("batch norm", gpu_with(140))])
def test_waves_of_a_body(name: str, target: GpuTarget):
    """Several waves, the last of them of fewer rows or columns."""
    subject = handmade_body(name, target)
    found = [v.variant.entry for v in subject.made.schedules.versions if v.kept]
    assert found
    for entry in found:
        judged(subject, entry, _FORGIVEN)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "name", [named.name for named in NAMED if named.name != "booleans"]
)  # whose long rows are alike
def test_every_version_of_a_named_cluster(name: str):
    for entry in named_cluster(name).entries:
        judged(named_cluster(name), entry)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", _SIZES)
def test_every_version_of_a_body(name: str):
    for entry in handmade_body(name).entries:
        judged(handmade_body(name), entry)
