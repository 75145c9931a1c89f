from __future__ import annotations

import pytest

from tests.toolchain.conftest import REAL_COMPILER, needs_compiler
from tf_stitch.errors import EnvironmentProblem
from tf_stitch.plan.target import Target
from tf_stitch.toolchain.artifact import Artifact, Source
from tf_stitch.toolchain.compilers import find_compilers
from tf_stitch.toolchain.host import HostToolchain
from tf_stitch.toolchain.measure import FUNCTIONS, REFERENCE, measure


@needs_compiler
def test_every_compiler_builds_and_runs_the_reference_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(REAL_COMPILER))
    target = Target.this_cpu()
    (figures,) = measure(target, list(find_compilers(target)), repeats=1, options=[])
    assert figures.compile[0] > 0
    assert set(figures.run) == set(FUNCTIONS)


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_the_reference_kernel_builds_for_every_baseline(level: str) -> None:
    try:
        toolchain = HostToolchain.find(Target.baseline(level))
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    (built,) = toolchain.build([Source("reference", REFERENCE.read_text())])
    assert isinstance(built, Artifact), built
