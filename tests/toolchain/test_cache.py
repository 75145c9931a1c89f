from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tf_stitch.toolchain import cache as cache_module
from tf_stitch.toolchain import workspace
from tf_stitch.toolchain.cache import Description, Entry, KernelCache

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62


def put(cache: KernelCache, key: str = KEY, content: bytes = b"library", source: bytes = b"text") -> Entry:
    with cache.building(key, patience=1) as directory:
        (directory / "kernel.so").write_bytes(content)
        (directory / "kernel.cpp").write_bytes(source)
        description = Description("x86_64", "a compiler", "softmax", time.time())
        return cache.store(key, directory / "kernel.so", directory / "kernel.cpp", description)


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_store_and_lookup(cache: KernelCache) -> None:
    assert cache.lookup(KEY) is None
    stored = put(cache)
    assert cache.lookup(KEY) == stored
    assert stored.path.read_bytes() == b"library"
    assert stored.description.source_name == "softmax"
    assert files(cache.root) == [f"ab/{KEY}.cpp", f"ab/{KEY}.json", f"ab/{KEY}.so"]
    assert stored.path.with_suffix(".cpp").read_text() == "text"


def test_another_cache_object_finds_it(cache: KernelCache) -> None:
    assert KernelCache().lookup(KEY) is None
    stored = put(cache)
    assert KernelCache().lookup(KEY) == stored


def test_the_directory_is_private(cache: KernelCache) -> None:
    put(cache)
    for directory in (cache.root, cache.root / "ab"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def flip_a_byte(entry: Path) -> None:
    content = bytearray(entry.read_bytes())
    content[3] ^= 1
    entry.write_bytes(content)


def damage_sidecar(entry: Path) -> None:
    entry.with_suffix(".json").write_text('{"sha256": 3')


def strip_sidecar(entry: Path) -> None:
    sidecar = json.loads(entry.with_suffix(".json").read_text())
    del sidecar["requires"]
    entry.with_suffix(".json").write_text(json.dumps(sidecar))


@pytest.mark.faults
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_a_byte, "checksum"),
        (lambda entry: entry.write_bytes(entry.read_bytes()[:-1]), "checksum"),
        (lambda entry: entry.write_bytes(b""), "checksum"),
        (lambda entry: entry.with_suffix(".json").unlink(), "missing"),
        (damage_sidecar, "damaged"),
        (strip_sidecar, "damaged"),
        (lambda entry: entry.with_suffix(".json").write_text("[]"), "damaged"),
        (lambda entry: (entry.unlink(), entry.mkdir()), "cannot be read"),
    ],
)
def test_a_corrupt_entry_is_reported_and_not_used(
    damage: object, reason: str, cache: KernelCache, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(cache).path
    damage(path)
    assert cache.lookup(KEY, warn=False) is None
    assert not caplog.messages
    assert cache.lookup(KEY) is None
    assert reason in caplog.text
    assert [(path, found) for path, found in cache.verify().problems if reason in found]


@pytest.mark.faults
def test_a_corrupt_entry_is_replaced(cache: KernelCache) -> None:
    flip_a_byte(put(cache).path)
    put(cache, content=b"right again")
    entry = cache.lookup(KEY)
    assert entry is not None
    assert entry.path.read_bytes() == b"right again"
    assert cache.verify() == cache_module.Verification(checked=1, problems=())


def test_an_entry_without_library_was_interrupted_and_is_no_news(
    cache: KernelCache, caplog: pytest.LogCaptureFixture
) -> None:
    put(cache).path.unlink()
    assert cache.lookup(KEY) is None
    assert not caplog.messages


def test_info_and_clear(cache: KernelCache) -> None:
    assert cache.info().entries == 0
    assert cache.info().last_used is None
    put(cache)
    put(cache, OTHER)
    cache.keep_failure(KEY, "source", "report")
    found = cache.info()
    assert (found.root, found.entries, found.problem) == (cache.root, 2, None)
    assert found.bytes > 2 * len(b"librarytext")
    assert found.last_used == pytest.approx(time.time(), abs=60)
    assert cache.clear() == 2
    assert files(cache.root) == []
    assert cache.lookup(KEY) is None


# ---- size


def age(entry: Entry, seconds: float) -> None:
    os.utime(entry.path, (time.time() - seconds,) * 2)


def key_number(number: int) -> str:
    return f"{number:02x}" * 32


def test_what_was_not_used_for_longest_goes_first() -> None:
    cache = KernelCache(max_bytes=8_000)
    for number in range(6):
        age(put(cache, key_number(number), b"x" * 1000), seconds=1000 - number)
    cache.lookup(key_number(0))  # used just now
    put(cache, key_number(6), b"x" * 1000)
    put(cache, key_number(7), b"x" * 1000)
    kept = {number for number in range(8) if cache.lookup(key_number(number))}
    assert {0, 5, 6, 7} <= kept
    assert 1 not in kept
    assert cache.info().bytes <= 8_000


def test_what_was_just_used_is_never_pruned() -> None:
    cache = KernelCache(max_bytes=1)
    for number in range(3):
        put(cache, key_number(number))
    assert cache.info().entries == 3


def test_the_cap_is_configured(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert KernelCache().max_bytes == 1 << 30
    monkeypatch.setenv("TF_STITCH_CACHE_MAX_BYTES", "12345")
    assert KernelCache().max_bytes == 12345
    monkeypatch.setenv("TF_STITCH_CACHE_MAX_BYTES", "1GB")
    assert KernelCache().max_bytes == 1 << 30
    assert "1GB is not a number of bytes" in caplog.text


def test_kept_failures_are_few(cache: KernelCache) -> None:
    for number in range(30):
        assert cache.keep_failure(key_number(number), "source", "report")
    assert len(files(cache.root / "failed")) == 40


# ---- directories that cannot be used


def test_the_users_cache_directory_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TF_STITCH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert KernelCache().root == tmp_path / "tf_stitch"


def still_works(cache: KernelCache) -> None:
    stored = put(cache)
    assert not stored.path.is_relative_to(cache.root)
    assert cache.lookup(KEY) == stored
    put(cache, OTHER)
    assert stat.S_IMODE(stored.path.parents[1].stat().st_mode) == 0o700


@pytest.mark.faults
def test_a_read_only_cache_is_read_and_the_rest_built_elsewhere(
    unprivileged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = unprivileged / "cache"
    before = put(KernelCache(root))
    for directory in (*root.iterdir(), root):
        directory.chmod(0o555)
    cache = KernelCache(root)
    assert cache.lookup(KEY) == before
    stored = put(cache, OTHER)
    assert not stored.path.is_relative_to(root)
    assert cache.lookup(OTHER) == stored
    put(cache, key_number(7))
    assert [message for message in caplog.messages if "is not written" in message] == caplog.messages
    assert len(caplog.messages) == 1
    assert "Permission denied" in caplog.text
    assert cache.info().problem == "Permission denied"


@pytest.mark.faults
def test_a_cache_that_cannot_be_made(unprivileged: Path, caplog: pytest.LogCaptureFixture) -> None:
    unprivileged.chmod(0o555)
    still_works(KernelCache(unprivileged / "cache"))
    assert len(caplog.messages) == 1


@pytest.mark.faults
def test_a_file_in_the_place_of_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    still_works(KernelCache(tmp_path / "file"))
    still_works(KernelCache(tmp_path / "file" / "below"))
    assert "not a directory" in caplog.text


@pytest.mark.faults
def test_another_users_cache_is_neither_read_nor_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "theirs"
    put(KernelCache(root))
    monkeypatch.setattr(os, "geteuid", lambda: 4242)  # all files here are of another user: us, or root
    if root.stat().st_uid == 0:
        os.chown(root, 4243, -1)
    cache = KernelCache(root)
    assert cache.lookup(KEY) is None
    assert "another user" in caplog.text
    still_works(cache)
    assert len(caplog.messages) == 1


@pytest.mark.faults
def test_a_cache_that_others_can_write_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "open"
    root.mkdir()
    root.chmod(0o777)
    put(KernelCache(root))  # was empty: now it is ours alone
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    root.chmod(0o770)
    cache = KernelCache(root)
    assert cache.lookup(KEY) is None
    assert "other users can write to it" in caplog.text
    still_works(cache)


@pytest.mark.faults
def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("TF_STITCH_CACHE_DIR", "~/.cache/tf_stitch")
    still_works(KernelCache())
    assert "not an absolute path" in caplog.text
    assert not Path("~").exists()


@pytest.mark.faults
@pytest.mark.parametrize("failing", ["workspace", "entry"])
def test_a_full_disk(
    failing: str, cache: KernelCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def demand_room(path: Path) -> None:
        if path.is_relative_to(cache.root):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_bytes = Path.write_bytes

    def write_entry(path: Path, data: bytes) -> int:
        if path.name.startswith("entry"):  # what is about to be renamed into the cache
            demand_room(path)
        return write_bytes(path, data)

    def make_workspace(**where: Path) -> str:
        demand_room(where["dir"])
        return tempfile.mkdtemp(dir=where["dir"])

    if failing == "entry":
        monkeypatch.setattr(Path, "write_bytes", write_entry)
    else:
        monkeypatch.setattr(workspace, "tempfile", SimpleNamespace(mkdtemp=make_workspace))
    still_works(cache)
    assert "No space left on device" in caplog.text
    assert len(caplog.messages) == 1
    assert files(cache.root) == []


@pytest.mark.faults
def test_the_temporary_directory_ends_with_the_process(tmp_path: Path) -> None:
    code = (
        "from tests.toolchain.test_cache import *\n"
        "import os, pathlib\n"
        "stored = put(KernelCache(pathlib.Path('/proc/nowhere')))\n"
        "if os.fork() == 0: raise SystemExit\n"
        "os.wait()\n"
        "assert stored.path.exists()\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": "."}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)
    assert list(tmp_path.iterdir()) == []


# ---- locks


def test_a_key_is_built_by_one_at_a_time(cache: KernelCache) -> None:
    with cache.building(KEY, patience=1):
        with pytest.raises(workspace.BusyError), KernelCache().building(KEY, patience=0.02):
            pass
        with KernelCache().building(OTHER, patience=0):  # other keys are free
            pass
    with KernelCache().building(KEY, patience=0):
        pass
    assert list((cache.root / "build").iterdir()) == []


@pytest.mark.faults
def test_what_a_dead_builder_left_is_swept_and_what_a_living_one_uses_is_not(cache: KernelCache) -> None:
    left = cache.root / "build" / OTHER / "tmp123"
    left.mkdir(parents=True)
    (left / "kernel.so").write_text("half")
    with cache.building(KEY, patience=1) as directory:
        KernelCache()
        assert not (cache.root / "build" / OTHER).exists()
        assert directory.is_dir()


@pytest.mark.faults
def test_a_file_system_without_locks(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(workspace.fcntl, "flock", no_locks)
    assert put(cache) == cache.lookup(KEY)
