"""Whatever the compiler and the disk do: a clear sentence or the right library, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.toolchain.conftest import LEAST, REAL_COMPILER, FakeCompiler, answer, call, needs_compiler
from tests.toolchain.test_process import is_alive
from tf_stitch.errors import BuildError
from tf_stitch.toolchain.artifact import Artifact
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.failure import CompileError
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.host import HostToolchain

Find = Callable[..., HostToolchain]

pytestmark = [needs_compiler, pytest.mark.faults]


def failure(toolchain: HostToolchain) -> CompileError:
    (error,) = toolchain.build([answer(1, name="softmax")])
    assert isinstance(error, CompileError)
    assert isinstance(error, BuildError)
    return error


def left_in_build(cache: KernelCache) -> list[Path]:
    return list((cache.root / "build").rglob("*"))


# ---- the compiler


def test_a_compiler_that_fails(find: Find, fake: FakeCompiler, cache: KernelCache) -> None:
    fake.does("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo note $i; echo error: $i is bad >&2; done; exit 3")
    error = failure(find())
    assert str(error).startswith(f"kernel softmax: the compiler {fake.path} failed with exit code 3: error: 1 is bad")
    assert str(error.source_path) in str(error)
    assert "\n" not in str(error)
    assert error.command.startswith(str(fake.path))
    assert len(error.output.splitlines()) == 20
    assert error.source_path is not None
    assert error.source_path.read_text() == answer(1).text
    assert error.output in error.source_path.with_suffix(".txt").read_text()
    assert left_in_build(cache) == []


def test_a_compiler_that_fails_once_is_asked_again(find: Find, fake: FakeCompiler) -> None:
    fake.does("exit 1")
    failure(find())
    fake.compiles()
    assert call(find().build([answer(1)])[0]) == 1


def test_a_compiler_that_crashes(find: Find, fake: FakeCompiler) -> None:
    fake.does("kill -SEGV $$")
    assert "failed with exit code -11" in str(failure(find()))


def test_a_compiler_that_writes_nothing(find: Find, fake: FakeCompiler) -> None:
    fake.does("exit 0")
    assert "wrote nothing" in str(failure(find()))


def test_a_compiler_that_hangs(find: Find, fake: FakeCompiler, cache: KernelCache) -> None:
    fake.does("sleep 60 & sleep 60")
    start = time.monotonic()
    error = failure(find(timeout=1.0))
    assert time.monotonic() - start < 10
    assert error.timed_out
    assert "was stopped after 1 seconds" in str(error)
    assert not is_alive(fake.pids[0])
    assert left_in_build(cache) == []


def test_a_compiler_that_went_away(find: Find, fake: FakeCompiler) -> None:
    fake.compiles()
    toolchain = find()
    fake.path.unlink()
    assert "No such file" in str(failure(toolchain))


def test_a_compiler_that_needs_the_locale(find: Find, fake: FakeCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    fake.does('echo "error: $LC_ALL" >&2; exit 1')
    assert "error: C;" in str(failure(find()))


def test_a_compiler_that_somebody_ends_is_no_failure_of_the_source(
    find: Find, fake: FakeCompiler, cache: KernelCache
) -> None:
    fake.does("kill -TERM $$")
    assert str(failure(find())) == f"kernel softmax: the compiler {fake.path} was interrupted"
    assert not (cache.root / "failed").exists()


# ---- the next compiler


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCompiler, FakeCompiler]:
    """PATH has a clang++, which is tried first, and a g++, which works."""
    from tf_stitch.toolchain import compilers

    first, second = FakeCompiler(tmp_path / "bin", "clang++"), FakeCompiler(tmp_path / "bin", "g++")
    second.compiles()
    monkeypatch.setattr(compilers, "bundled_zig", lambda: None)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return first, second


def test_what_one_compiler_fails_on_is_tried_with_the_next(
    find: Find, two: tuple[FakeCompiler, FakeCompiler], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = two
    first.does("echo internal compiler error; exit 1", version="clang version 1")
    toolchain = find()
    assert toolchain.compiler.command == (str(first.path),)
    assert call(toolchain.build([answer(1)])[0]) == 1
    assert "internal compiler error" in caplog.text
    assert (len(first.pids), len(second.pids)) == (1, 1)


def test_what_one_compiler_fails_on_is_said_once(
    find: Find, two: tuple[FakeCompiler, FakeCompiler], caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = two
    first.does("echo internal compiler error; exit 1", version="clang version 1")
    for toolchain in (find(), find()):
        for _ in range(2):
            assert [call(artifact) for artifact in toolchain.build([answer(1), answer(2)])] == [1, 2]
    assert caplog.text.count("internal compiler error") == 2  # one for each kernel


def test_a_compiler_that_hangs_is_tried_last_from_then_on(find: Find, two: tuple[FakeCompiler, FakeCompiler]) -> None:
    first, second = two
    first.does("sleep 60", version="clang version 1")
    toolchain = find(timeout=1.0)
    assert call(toolchain.build([answer(1)])[0]) == 1
    assert toolchain.compiler.command == (str(second.path),)
    assert [call(artifact) for artifact in toolchain.build([answer(2), answer(3)])] == [2, 3]
    assert len(first.pids) == 1


def test_when_all_fail_the_first_failure_is_told(find: Find, two: tuple[FakeCompiler, FakeCompiler]) -> None:
    first, second = two
    first.does("echo error: one; exit 1", version="clang version 1")
    second.does("echo error: two; exit 1")
    assert "error: one" in str(failure(find()))


# ---- the cache


def test_a_corrupt_entry_is_built_again(find: Find, cache: KernelCache, caplog: pytest.LogCaptureFixture) -> None:
    (built,) = find().build([answer(1)])
    assert isinstance(built, Artifact)
    built.path.write_bytes(built.path.read_bytes()[:-100])
    (again,) = find().build([answer(1)])
    assert isinstance(again, Artifact)
    assert again.compile_seconds > 0
    assert call(again) == 1
    assert caplog.text.count("building it again") == 1
    assert cache.verify().problems == ()


def test_a_read_only_cache(unprivileged: Path, caplog: pytest.LogCaptureFixture) -> None:
    kernels = unprivileged / "kernels"
    (kernels / "prelude").mkdir(parents=True)
    (kernels / "abi.h").write_text("")
    root = unprivileged / "cache"
    root.mkdir(mode=0o555)
    toolchain = HostToolchain.find(LEAST, 30.0, KernelCache(root), Headers(kernels, kernels / "prelude"))
    assert [call(artifact) for artifact in toolchain.build([answer(1), answer(2)])] == [1, 2]
    assert toolchain.build([answer(1)])[0].compile_seconds == 0.0
    another = HostToolchain.find(LEAST, 10.0, KernelCache(root), Headers(kernels, kernels / "prelude"))
    assert call(another.build([answer(3)])[0]) == 3
    assert caplog.text.count("is not written") == 1  # in this process


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 KiB: enough for an entry, and too little for a compile."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", disk], capture_output=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip("cannot mount a tmpfs here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk(small_disk: Path, headers: Headers, caplog: pytest.LogCaptureFixture) -> None:
    cache = KernelCache(small_disk / "cache")
    toolchain = HostToolchain.find(LEAST, 30.0, cache, headers)
    built = toolchain.build([answer(number) for number in range(5)])
    assert [call(artifact) for artifact in built] == [0, 1, 2, 3, 4]
    assert caplog.text.count("is not written: No space left on device") == 1
    assert left_in_build(cache) == []


def test_a_full_disk_that_the_compiler_meets(
    find: Find, fake: FakeCompiler, cache: KernelCache, caplog: pytest.LogCaptureFixture
) -> None:
    fake.does(
        f'case "$PWD" in {cache.root}*) echo "ld: kernel.so: No space left on device"; exit 1;; esac\n'
        f'exec {REAL_COMPILER} "$@"'
    )
    assert call(find().build([answer(1)])[0]) == 1
    assert caplog.text.count("is not written: No space left on device") == 1


def test_no_place_at_all(
    find: Find, cache: KernelCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    toolchain = find()
    cache.root.rename(cache.root.with_name("gone"))
    cache.root.write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    assert "no place to build it in" in str(failure(toolchain))


# ---- other processes

BUILD_MANY = """
import sys, hashlib
from pathlib import Path
from tests.toolchain.conftest import LEAST, answer, call
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.host import HostToolchain
kernels = Path(sys.argv[1])
headers = Headers(kernels, kernels / "prelude" / "cpu")
toolchain = HostToolchain.find(LEAST, 30.0, KernelCache(), headers)
built = toolchain.build([answer(number) for number in range(int(sys.argv[2]))])
print([call(artifact) for artifact in built])
"""


def start_building(headers: Headers, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD_MANY, str(headers.kernels), str(count)],
        env={**os.environ, "PYTHONPATH": "."},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_many_processes_on_one_cold_cache(fake: FakeCompiler, headers: Headers, cache: KernelCache) -> None:
    fake.compiles()
    builders = [start_building(headers, count=4) for _ in range(8)]
    for builder in builders:
        output, errors = builder.communicate(timeout=60)
        assert (output, errors) == ("[0, 1, 2, 3]\n", "")
    assert len(fake.pids) == 4
    assert cache.verify().problems == ()
    assert cache.info().entries == 4
    assert left_in_build(cache) == []


def test_a_builder_that_is_killed_leaves_no_lock_and_nothing_half_done(
    fake: FakeCompiler, find: Find, headers: Headers, cache: KernelCache
) -> None:
    fake.does("echo half > kernel.so; sleep 60")
    builder = start_building(headers, count=1)
    deadline = time.monotonic() + 30
    while not fake.pids and time.monotonic() < deadline:
        time.sleep(0.01)
    builder.kill()
    builder.wait()
    try:
        assert left_in_build(cache)
        fake.compiles()
        start = time.monotonic()
        assert call(find().build([answer(0)])[0]) == 0
        assert time.monotonic() - start < 10  # nobody waited for a lock
    finally:
        os.kill(fake.pids[0], signal.SIGKILL)
    assert KernelCache().verify().problems == ()
    assert left_in_build(cache) == []


def test_an_interrupted_build_leaves_no_compiler_behind(
    fake: FakeCompiler, headers: Headers, cache: KernelCache
) -> None:
    fake.does("sleep 60")
    builder = start_building(headers, count=3)
    deadline = time.monotonic() + 30
    while not fake.pids and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    builder.send_signal(signal.SIGINT)
    _, errors = builder.communicate(timeout=10)
    assert "KeyboardInterrupt" in errors
    assert "the compiler" not in errors
    assert not (cache.root / "failed").exists()
    assert not any(map(is_alive, fake.pids))
    assert left_in_build(cache) == []


def test_one_who_holds_the_lock_for_too_long_is_not_waited_for(find: Find, cache: KernelCache) -> None:
    toolchain = find()
    toolchain._patience = 0.1
    with cache.building(toolchain.key(answer(1)), patience=0):
        assert call(toolchain.build([answer(1)])[0]) == 1
    assert left_in_build(cache) == []
