from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.toolchain.conftest import LEAST, REAL_COMPILER, FakeCompiler, answer, call, needs_compiler
from tf_stitch.plan.target import Target
from tf_stitch.toolchain.artifact import Artifact, Source
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.host import HostToolchain

Find = Callable[..., HostToolchain]

pytestmark = needs_compiler


def test_builds_a_library(find: Find) -> None:
    toolchain = find()
    (built,) = toolchain.build([answer(42)])
    assert isinstance(built, Artifact)
    assert call(built) == 42
    assert re.fullmatch("[0-9a-f]{64}", built.key)
    assert built.key == toolchain.key(answer(42))
    assert built.requires == toolchain.target.requires
    assert 0 < built.compile_seconds < 10
    assert built.path.with_suffix(".cpp").read_text() == answer(42).text


def test_the_second_time_it_comes_from_the_cache(find: Find, fake: FakeCompiler) -> None:
    fake.compiles()
    (first,) = find().build([answer(1)])
    (second,) = find().build([answer(1, name="another name for the same text")])
    assert isinstance(first, Artifact)
    assert isinstance(second, Artifact)
    assert (second.key, second.path, second.compile_seconds) == (first.key, first.path, 0.0)
    assert len(fake.pids) == 1


def test_equal_sources_are_built_once_and_counted_once(find: Find, fake: FakeCompiler) -> None:
    fake.compiles()
    built = find().build([answer(1, "a"), answer(2), answer(1, "b"), answer(1, "c")])
    assert [call(artifact) for artifact in built] == [1, 2, 1, 1]
    assert len(fake.pids) == 2
    assert [artifact.compile_seconds > 0 for artifact in built if isinstance(artifact, Artifact)] == [
        *(True, True, False, False)
    ]


def test_nothing_to_build(find: Find) -> None:
    assert find().build([]) == []


def test_results_are_in_order_and_one_failure_spoils_no_other(find: Find) -> None:
    sources = [answer(number) for number in range(5)]
    sources.insert(2, Source("broken", "int x = y;"))
    built = find().build(sources)
    assert [isinstance(artifact, Artifact) for artifact in built] == [True, True, False, True, True, True]
    assert [call(artifact) for artifact in built if isinstance(artifact, Artifact)] == list(range(5))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_misses_are_built_in_parallel(find: Find, fake: FakeCompiler, tmp_path: Path) -> None:
    # Each compile waits until another has started: alone, none would end.
    started = tmp_path / "started"
    started.mkdir()
    fake.does(
        f'touch {started}/$$; while [ $(ls {started} | wc -l) -lt 2 ]; do sleep 0.01; done\nexec {REAL_COMPILER} "$@"'
    )
    built = find(timeout=20.0).build([answer(1), answer(2)])
    assert [call(artifact) for artifact in built] == [1, 2]


def test_many_threads_on_one_key(find: Find, fake: FakeCompiler) -> None:
    fake.compiles()
    toolchain = find()
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(call(toolchain.build([answer(5)])[0]))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [5] * 16
    assert len(fake.pids) == 1


# ---- keys


def test_the_key_is_the_same_in_every_process(find: Find) -> None:
    assert find().key(answer(1)) == find().key(answer(1, name="another name"))


def test_the_key_changes_with_the_source(find: Find) -> None:
    assert find().key(answer(1)) != find().key(answer(2))


def test_the_key_changes_with_the_flags(find: Find) -> None:
    keys = {find(Target.baseline(level)).key(answer(1)) for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}
    assert len(keys) == 3


@pytest.mark.parametrize("header", ["abi.h", "prelude/cpu/stitch.h"])
def test_the_key_changes_with_each_header(header: str, find: Find, headers: Headers) -> None:
    before = find().key(answer(1))
    (headers.kernels / header).write_text("#pragma once\n// a change\n")
    assert find().key(answer(1)) != before


def test_the_key_changes_with_a_new_header(find: Find, headers: Headers) -> None:
    before = find().key(answer(1))
    (headers.prelude / "new.h").write_text("")
    assert find().key(answer(1)) != before


def test_the_key_does_not_depend_on_where_things_are(find: Find, headers: Headers, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    headers.kernels.rename(moved)
    cache = KernelCache(tmp_path / "other-cache")
    again = HostToolchain.find(LEAST, 30.0, cache, Headers(moved, moved / "prelude" / "cpu"))
    moved.rename(headers.kernels)
    assert again.key(answer(1)) == find().key(answer(1))


def test_the_key_changes_with_the_compiler(find: Find, fake: FakeCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.compiles(version="g++ 12.2.0")
    before = find().key(answer(1))
    fake.compiles(version="g++ 12.2.0 (patched)")  # the same path
    updated = find().key(answer(1))
    other = FakeCompiler(fake.directory / "other")
    other.compiles(version="g++ 12.2.0")
    monkeypatch.setenv("CXX", str(other.path))
    assert len({before, updated, find().key(answer(1))}) == 3


# ---- what the flags do


def compiled(find: Find, text: str, level: str = "x86-64-v3") -> Path:
    (built,) = find(Target.baseline(level)).build([Source("kernel", text)])
    assert isinstance(built, Artifact), built
    return built.path


def readelf(*arguments: str) -> str:
    return subprocess.run(["readelf", *arguments], check=True, capture_output=True, text=True).stdout


def test_a_library_needs_nothing_and_exports_what_it_says(find: Find) -> None:
    library = compiled(find, answer(1).text + "int hidden() { return 2; }")
    assert "NEEDED" not in readelf("-d", str(library))
    symbols = readelf("--dyn-syms", "-W", str(library))
    assert "answer" in symbols
    assert "hidden" not in symbols
    assert library.stat().st_size < 16_000


def test_no_system_header_can_be_included(find: Find) -> None:
    (built,) = find().build([Source("kernel", "#include <math.h>\n")])
    assert "math.h" in str(built)


def test_nothing_is_contracted_and_overflow_wraps(find: Find) -> None:
    text = """
    #define EXPORT extern "C" __attribute__((visibility("default")))
    EXPORT float residue(float x, float y) { float p = x * y; return x * y - p; }
    EXPORT int wraps(int x) { return x + 1 > x; }
    EXPORT int answer() { return 0; }
    """
    disassembly = subprocess.run(
        ["objdump", "-d", compiled(find, text)], check=True, capture_output=True, text=True
    ).stdout
    assert "fmadd" not in disassembly
    assert "fmsub" not in disassembly


def test_loading_changes_no_floating_point_mode(find: Find) -> None:
    library = compiled(find, answer(1).text, level="x86-64-v2")
    assert "set_fast_math" not in readelf("-s", "-W", str(library))
    assert "INIT_ARRAY" not in readelf("-d", str(library))


def test_libm_is_found_in_the_process(find: Find) -> None:
    text = (
        'extern "C" __attribute__((visibility("default"))) int answer() '
        "{ volatile double x = 7; return int(__builtin_pow(x, 2.0) + __builtin_sin(x) * 0); }"
    )
    (built,) = find().build([Source("kernel", text)])
    assert call(built) == 49


def test_other_include_paths_do_not_meddle(find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "extra.h").write_text("#define EXTRA 1\n")
    monkeypatch.setenv("CPATH", str(tmp_path / "evil"))
    (built,) = find().build([Source("kernel", '#include "extra.h"\n')])
    assert "extra.h" in str(built)


def test_the_real_prelude_compiles(cache: KernelCache) -> None:
    text = """
    #include "abi.h"
    #include "stitch.h"
    using namespace stitch;
    extern "C" __attribute__((visibility("default"))) int answer() {
      f32 x[20];
      for (int i = 0; i < 20; ++i) x[i] = i;
      return i32(reduce_add(load<32>(x, 20)).v);
    }
    """
    toolchain = HostToolchain.find(Target.this_cpu(), cache=cache)
    (built,) = toolchain.build([Source("prelude", text)])
    assert call(built) == 190
