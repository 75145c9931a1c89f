from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.toolchain.conftest import REAL_COMPILER, FakeCompiler, answer, call, needs_compiler
from tf_stitch.errors import EnvironmentProblem
from tf_stitch.plan.target import Target
from tf_stitch.toolchain import compilers
from tf_stitch.toolchain.artifact import Artifact, Source
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.compilers import Compiler, Family, find_compilers
from tf_stitch.toolchain.host import HostToolchain

Find = Callable[..., HostToolchain]

V2 = Target.baseline("x86-64-v2")
ARM = Target.baseline("aarch64")

needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None,
    reason="the `compiler` extra (ziglang, 400 MB) is not installed",
)


def only_path(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(exist_ok=True)
    monkeypatch.setenv("PATH", str(directory))


@pytest.fixture
def no_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "bundled_zig", lambda: None)


# ---- what is found


@pytest.mark.faults
@pytest.mark.usefixtures("no_zig")
def test_no_compiler_at_all(find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_path(tmp_path / "bin", monkeypatch)
    with pytest.raises(EnvironmentProblem, match=r"no C\+\+ compiler.*pip install tf-stitch\[compiler\].*g\+\+"):
        find()


@pytest.mark.usefixtures("no_zig")
def test_gcc_is_found_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_path(tmp_path / "bin", monkeypatch)
    gcc = FakeCompiler(tmp_path / "bin")
    gcc.does("exit 1", version="g++ (GCC) 14")
    assert list(find_compilers(V2)) == [Compiler(Family.GCC, (str(gcc.path),), "g++ (GCC) 14")]


@pytest.mark.usefixtures("no_zig")
def test_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_path(tmp_path / "bin", monkeypatch)
    for name in ("g++", "clang++", "zig"):
        FakeCompiler(tmp_path / "bin", name).path.write_text(f"#!/bin/sh\necho {name} version 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    assert [compiler.family for compiler in find_compilers(V2)] == [Family.ZIG, Family.CLANG, Family.GCC]


@pytest.mark.usefixtures("no_zig")
def test_an_older_zig_has_no_clang_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_path(tmp_path / "bin", monkeypatch)
    zig = tmp_path / "bin" / "zig"
    zig.write_text('#!/bin/sh\n[ "$1" = cc ] || exit 1\necho clang version 9\n')
    zig.chmod(0o755)
    assert list(find_compilers(V2)) == [Compiler(Family.ZIG_CC, (str(zig), "cc"), "clang version 9")]


@pytest.mark.faults
@pytest.mark.usefixtures("no_zig")
def test_a_compiler_that_does_not_answer_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_path(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(compilers, "_VERSION_TIMEOUT", 0.5)
    FakeCompiler(tmp_path / "bin", "clang++").path.write_text("#!/bin/sh\nwhile true; do :; done\n")
    (tmp_path / "bin" / "clang++").chmod(0o755)
    FakeCompiler(tmp_path / "bin").does("exit 1", version="g++ 14")
    assert [compiler.version for compiler in find_compilers(V2)] == ["g++ 14"]


@pytest.mark.usefixtures("no_zig")
def test_another_architecture_needs_a_cross_compiler(
    find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers.platform, "machine", lambda: "x86_64")
    only_path(tmp_path / "bin", monkeypatch)
    FakeCompiler(tmp_path / "bin").does("exit 1", version="g++ 14")
    with pytest.raises(EnvironmentProblem, match=r"no C.. compiler for aarch64 .* aarch64-linux-gnu-g.. in PATH"):
        find(ARM)
    cross = FakeCompiler(tmp_path / "bin", "aarch64-linux-gnu-g++")
    cross.does("exit 1", version="g++ 14")
    assert find(ARM).compiler.command == (str(cross.path),)


# ---- CXX


def test_cxx_is_the_only_choice(fake: FakeCompiler) -> None:
    fake.does("exit 1", version="g++ 14")
    assert list(find_compilers(V2)) == [Compiler(Family.GCC, (str(fake.path),), "g++ 14")]


def test_clang_is_told_by_its_version(fake: FakeCompiler) -> None:
    fake.does("exit 1", version="Debian clang version 19.1.7")
    assert [compiler.family for compiler in find_compilers(V2)] == [Family.CLANG]


@needs_compiler
def test_cxx_may_have_options(find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{REAL_COMPILER} -DMEANING=42")
    (built,) = find().build([Source("a", answer(0).text.replace("return 0", "return MEANING"))])
    assert call(built) == 42


@pytest.mark.faults
@pytest.mark.parametrize("cxx", ["/nonexistent/g++", "no-such-compiler -O2"])
def test_cxx_that_names_nothing(cxx: str, find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", cxx)
    with pytest.raises(EnvironmentProblem, match=re.escape(f"CXX={cxx} names a compiler that is not there")):
        find()


@pytest.mark.faults
def test_cxx_that_is_no_compiler(find: Find, fake: FakeCompiler) -> None:
    fake.path.write_text("#!/bin/sh\nexit 1\n")
    fake.path.chmod(0o755)
    with pytest.raises(EnvironmentProblem, match="does not answer to --version"):
        find()


@pytest.mark.parametrize("target", [V2, Target.baseline("x86-64-v4"), ARM], ids=lambda target: target.isa)
@pytest.mark.parametrize("family", Family)
def test_commands(family: Family, target: Target) -> None:
    commands = Compiler(family, ("compiler",), "1").build_commands(target, ("-Ikernels",))
    words = [word for command in commands for word in command]
    assert "-ffp-contract=off" in words
    assert not [word for word in words if "fast-math" in word or word == "-Ofast" or word.startswith("/")]
    assert "-Ikernels" in words
    assert commands[-1][commands[-1].index("-o") + 1] == "kernel.so"


# ---- zig's clang


@pytest.fixture
def only_zig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_path(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@needs_zig
@pytest.mark.usefixtures("only_zig")
def test_with_no_compiler_in_path_the_wheel_is_enough(cache: KernelCache, tmp_path: Path) -> None:
    toolchain = HostToolchain.find(Target.this_cpu(), cache=cache)
    assert toolchain.compiler.family is Family.ZIG
    built = toolchain.build([answer(number) for number in range(3)])
    assert [call(artifact) for artifact in built] == [0, 1, 2]
    assert not (tmp_path / "home").exists()


@needs_zig
@pytest.mark.usefixtures("only_zig")
@pytest.mark.parametrize("cxx", [f"{sys.executable} -m ziglang c++", "zig c++"])
def test_cxx_may_name_zig(cxx: str, find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = compilers.bundled_zig()
    assert bundled
    (tmp_path / "bin" / "zig").symlink_to(bundled)
    monkeypatch.setenv("CXX", cxx)
    toolchain = find()
    assert toolchain.compiler.family is Family.ZIG
    assert call(toolchain.build([answer(3)])[0]) == 3


@needs_zig
@pytest.mark.usefixtures("only_zig")
@pytest.mark.parametrize("target", [Target.this_cpu(), Target.baseline("x86-64-v4"), ARM], ids=lambda t: t.isa)
def test_zigs_own_driver_does_it_too(target: Target, find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "_ZIG_FAMILIES", (Family.ZIG_CC,))
    toolchain = find(target)
    assert toolchain.compiler.family is Family.ZIG_CC
    assert isinstance(toolchain.build([answer(3)])[0], Artifact)


EM_AARCH64 = 183
KERNEL_WITH_PRELUDE = """
#include "abi.h"
#include "stitch.h"
using namespace stitch;
extern "C" __attribute__((visibility("default"))) float total(const float* x, int n) {
  return reduce_add(exp(load<16>(x, n)) + tanh(load<16>(x, n))).v;
}
"""


def test_aarch64_cross_compiles(cache: KernelCache) -> None:
    try:
        toolchain = HostToolchain.find(ARM, cache=cache)
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    (built,) = toolchain.build([Source("kernel", KERNEL_WITH_PRELUDE)])
    assert isinstance(built, Artifact), built
    assert int.from_bytes(built.content()[18:20], "little") == EM_AARCH64
    assert built.requires == "aarch64,asimd"


@needs_zig
def test_zig_leaves_no_cache_of_its_own(find: Find, cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "_candidates", lambda _: [((Family.ZIG_CC,), (compilers.bundled_zig(),))])
    assert call(find().build([answer(4)])[0]) == 4
    assert sorted(path.suffix for path in cache.root.rglob("*") if path.is_file()) == [".cpp", ".json", ".so"]
    assert "ZIG_LOCAL_CACHE_DIR" not in os.environ
