"""A prelude compiled ahead changes how long a kernel takes to build, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.toolchain.conftest import LEAST, FakeCompiler
from tf_stitch.toolchain.artifact import Artifact, Source
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.compilers import Family, bundled_zig
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.host import HostToolchain
from tf_stitch.toolchain.precompiled import DIRECTORY

needs_clang = pytest.mark.skipif(bundled_zig() is None, reason="no ziglang package")
KERNEL = Source(
    "kernel",
    '#include "prelude/cpu/core.h"\n#include "prelude/cpu/math_exp.h"\n#include "abi.h"\n'
    "using namespace stitch;\n"
    'extern "C" __attribute__((visibility("default"))) void run(const f32* x, f32* y, i64 n) {\n'
    "  for (i64 i = 0; i < n; i += 8) store(y + i, exp(load<8>(x + i)));\n}\n",
)


@pytest.fixture
def headers(tmp_path: Path) -> Headers:
    """A copy of the real ones, to be changed."""
    real = Headers.find()
    kernels = tmp_path / "kernels"
    shutil.copytree(real.prelude, kernels / "prelude" / "cpu")
    shutil.copy(real.kernels / "abi.h", kernels / "abi.h")
    return Headers(kernels, kernels / "prelude" / "cpu")


def toolchain(headers: Headers, root: Path) -> HostToolchain:
    return HostToolchain.find(LEAST, 60.0, KernelCache(root), headers)


def built(toolchain: HostToolchain, source: Source = KERNEL) -> Artifact:
    (artifact,) = toolchain.build([source])
    assert isinstance(artifact, Artifact), artifact
    return artifact


def precompiled(root: Path) -> list[Path]:
    return sorted((root / DIRECTORY).glob("??/*.so"))


@needs_clang
def test_the_kernel_has_the_same_bytes(headers: Headers, tmp_path: Path) -> None:
    with_it = built(toolchain(headers, tmp_path / "a"))
    assert len(precompiled(tmp_path / "a")) == 1
    (headers.prelude / "whole.h").rename(tmp_path / "whole.h")
    again = built(toolchain(headers, tmp_path / "b"))
    assert not precompiled(tmp_path / "b")
    assert again.content() == with_it.content()


@needs_clang
def test_it_is_made_once_for_all_kernels_and_processes(headers: Headers, tmp_path: Path) -> None:
    built(toolchain(headers, tmp_path))
    (first,) = precompiled(tmp_path)
    made = first.stat().st_ino
    built(toolchain(headers, tmp_path), Source("other", KERNEL.text.replace("exp(", "log(")))
    assert [path.stat().st_ino for path in precompiled(tmp_path)] == [made]


@needs_clang
def test_it_is_made_again_when_a_header_changes(headers: Headers, tmp_path: Path) -> None:
    before = built(toolchain(headers, tmp_path))
    core = headers.prelude / "reduce.h"
    core.write_text(core.read_text() + "// changed\n")
    after = built(toolchain(headers, tmp_path))
    assert len(precompiled(tmp_path)) == 2
    assert after.key != before.key


@needs_clang
def test_a_kernel_is_built_without_it_when_it_is_gone_or_wrong(headers: Headers, tmp_path: Path) -> None:
    tools = toolchain(headers, tmp_path)
    built(tools)
    (path,) = precompiled(tmp_path)
    path.write_bytes(b"no such thing")
    built(tools, Source("other", KERNEL.text.replace("exp(", "log(")))


@needs_clang
def test_clearing_the_cache_removes_it(headers: Headers, tmp_path: Path) -> None:
    built(toolchain(headers, tmp_path))
    KernelCache(tmp_path).clear()
    assert not precompiled(tmp_path)


def test_gxx_does_without(headers: Headers, tmp_path: Path, fake: FakeCompiler) -> None:
    fake.compiles()
    tools = toolchain(headers, tmp_path)
    assert tools.compiler.family is Family.GCC
    built(tools)
    assert not precompiled(tmp_path)
