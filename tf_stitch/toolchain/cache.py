"""KernelCache: built kernels on disk, under the hash of all that they were made from.

    <root>/<key[:2]>/<key>.so     the shared library
    <root>/<key[:2]>/<key>.json   its checksum, and where it came from
    <root>/<key[:2]>/<key>.cpp    its source, for people
    <root>/failed/<key>.cpp       a source that did not compile, and what the compiler said
    <root>/build/                 see `workspace`
    <root>/races/                 see `tuning/records`
    <root>/prelude/               a cache like this one: see `precompiled`

An entry is renamed into place, the library last, so a reader sees all of it or none. Every lookup checks the
checksum (30 microseconds): whatever happened to the disk, a wrong byte never gets loaded, and so no file is
ever flushed to the disk in a hurry.

Where the directory cannot be written (read-only, full) or not be trusted (another user's), kernels go to a
temporary directory that ends with the process, after one warning. What a read-only cache holds is still used.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tf_stitch.toolchain import workspace as workspaces
from tf_stitch.toolchain.cache_dir import PRIVATE, configured_root, distrust, remove_tree
from tf_stitch.toolchain.once import warn_once

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_log = logging.getLogger("tf_stitch.cache")

DEFAULT_MAX_BYTES = 1 << 30
_SCHEMA = 1
_SHARDS = "[0-9a-f][0-9a-f]"
_KEPT_FAILURES = 20
_IN_USE_SECONDS = 60.0  # an entry that was used so recently is not pruned: someone may be about to load it


@dataclass(frozen=True)
class Description:
    """What the sidecar says of a library. `created` is seconds since 1970."""

    requires: str
    compiler: str
    source_name: str
    created: float


@dataclass(frozen=True)
class Entry:
    key: str
    path: Path
    description: Description


@dataclass(frozen=True)
class Contents:
    """What `tf-stitch cache info` shows. `last_used` is None for an empty cache."""

    root: Path
    entries: int
    bytes: int
    max_bytes: int
    last_used: float | None
    problem: str | None


@dataclass(frozen=True)
class Verification:
    """What `tf-stitch cache verify` shows: how many entries were read, and (path, what is wrong with it)."""

    checked: int
    problems: tuple[tuple[Path, str], ...]


class _CorruptError(Exception):
    """The reason, in words."""


class KernelCache:
    """A cache directory. Any number of processes and threads may use it at a time."""

    def __init__(self, root: Path | None = None, max_bytes: int | None = None, *, inside: Path | None = None) -> None:
        """At `root`, or where the environment says. Never raises: a bad directory gives a warning.

        The size cap is `max_bytes`, or TF_STITCH_CACHE_MAX_BYTES, or 1 GiB. inside: the cache that this is a part of,
        of whose directory is warned.
        """
        self.root = configured_root() if root is None else root
        self._warned_of = inside or self.root
        self.max_bytes = _configured_max_bytes() if max_bytes is None else max_bytes
        self._problem: str | None = None
        self._overflow: Path | None = None
        self._bytes: int | None = None  # what the cache holds, once it has been counted
        self._lock = threading.Lock()
        problem = distrust(self.root)
        self._readable = problem is None
        if problem is not None:
            self.stop_writing(problem)
        else:
            workspaces.sweep(self.root)

    # ---- entries

    def lookup(self, key: str, *, warn: bool = True) -> Entry | None:
        """The entry of `key`, checked; None when there is none, or when it is corrupt, which is logged."""
        for root in self._roots():
            try:
                entry = _read(root, key)
            except _CorruptError as reason:
                if warn:
                    _log.warning("kernel cache entry %s: %s; building it again", _path(root, key), reason)
                continue
            if entry is not None:
                with suppress(OSError):
                    os.utime(entry.path)  # last used now
                return entry
        return None

    @contextmanager
    def building(self, key: str, patience: float) -> Generator[Path]:
        """A fresh directory to build `key` in, while no other process or thread builds it.

        Raises:
          workspace.Busy: when another did for longer than `patience` seconds.
          OSError: when neither the cache nor the temporary directory can be written.
        """
        with ExitStack() as stack:
            try:
                workspace = workspaces.workspace(self._writable_root(), key, patience)
                directory = stack.enter_context(workspace)
            except OSError as error:
                self.stop_writing(error.strerror or str(error))
                workspace = workspaces.workspace(self._writable_root(), key, patience)
                directory = stack.enter_context(workspace)
            yield directory

    def store(self, key: str, library: Path, source: Path, description: Description) -> Entry:
        """Moves a library and its source, which lie in the directory that `building` gave, into the cache.

        Raises:
          OSError: when neither the cache nor the temporary directory can be written.
        """
        content = library.read_bytes()
        sidecar = {
            "schema": _SCHEMA,
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
            **asdict(description),
        }
        try:
            return self._store(key, content, source.read_bytes(), sidecar, description)
        except OSError as error:
            self.stop_writing(error.strerror or str(error))
            return self._store(key, content, source.read_bytes(), sidecar, description)

    def keep_failure(self, key: str, source: str, report: str) -> Path | None:
        """Keeps a source that did not compile, for a bug report; None when that is not possible either."""
        try:
            directory = self._writable_root() / "failed"
            directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            path = directory / f"{key}.cpp"
            path.write_text(source, encoding="utf-8")
            path.with_suffix(".txt").write_text(report, encoding="utf-8")
            for old in sorted(directory.iterdir(), key=_last_used)[: -2 * _KEPT_FAILURES]:
                old.unlink()
        except OSError:
            return None
        return path

    @property
    def problem(self) -> str | None:
        """Why nothing is written to the directory, where that is so."""
        return self._problem

    def stop_writing(self, problem: str) -> None:
        """From now on, what is built goes to a temporary directory. Warns, once per process and directory."""
        with self._lock:
            if self._problem is not None:
                return
            self._problem = problem
        warn_once(
            _log,
            (self._warned_of,),
            "the kernel cache %s is not written: %s. Kernels go to a temporary directory, and are built "
            "again by every process; set TF_STITCH_CACHE_DIR to a directory of your own",
            self._warned_of,
            problem,
        )

    # ---- the whole

    def info(self) -> Contents:
        entries, total, last_used = 0, 0, None
        for library in self._libraries():
            entries += 1
            total += _entry_bytes(library)
            last_used = max(last_used or 0.0, _last_used(library))
        return Contents(self.root, entries, total, self.max_bytes, last_used, self._problem)

    def verify(self) -> Verification:
        """Reads every entry. A corrupt one does no harm: it is built again when it is wanted."""
        checked = 0
        problems: list[tuple[Path, str]] = []
        for library in self._libraries():
            checked += 1
            try:
                _read(self.root, library.stem)
            except _CorruptError as reason:
                problems.append((library, str(reason)))
        return Verification(checked, tuple(problems))

    def clear(self) -> int:
        """Removes every entry, and what was measured of kernels, and says how many entries there were.

        Raises:
          OSError: when one cannot be removed.
        """
        removed = 0
        for library in list(self._libraries()):
            _remove_entry(library)
            removed += 1
        remove_tree(self.root / "failed")
        remove_tree(self.root / "races")  # see tuning/records.py
        remove_tree(self.root / "prelude")  # see precompiled.py
        workspaces.sweep(self.root)
        self._bytes = None
        return removed

    # ---- inside

    def _roots(self) -> Iterator[Path]:
        if self._readable:
            yield self.root
        if self._overflow is not None:
            yield self._overflow

    def _writable_root(self) -> Path:
        if self._problem is None:
            return self.root
        with self._lock:
            if self._overflow is None:
                self._overflow = Path(tempfile.mkdtemp(prefix="tf_stitch-"))
                atexit.register(_remove_at_exit, self._overflow, os.getpid())
            return self._overflow

    def _store(
        self, key: str, content: bytes, source: bytes, sidecar: dict[str, Any], description: Description
    ) -> Entry:
        path = _path(self._writable_root(), key)
        path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._staging(key)) as staging:
            for suffix, data in (
                (".cpp", source),
                (".json", json.dumps(sidecar, indent=1).encode()),
                (".so", content),
            ):
                staged = Path(staging) / f"entry{suffix}"
                staged.write_bytes(data)
                staged.replace(path.with_suffix(suffix))
        if self._problem is None:
            self._account(len(content) + len(source))
        return Entry(key, path, description)

    def _staging(self, key: str) -> Path:
        """On the same file system as the entry, in the place that is swept when its user dies."""
        directory = self._writable_root() / "build" / key
        directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        return directory

    def _libraries(self) -> Iterator[Path]:
        return self.root.glob(f"{_SHARDS}/*.so")

    def _account(self, added: int) -> None:
        """Adds to the size, and prunes when it is over the cap. The directory is walked once a process."""
        with self._lock:
            if self._bytes is None:
                self._bytes = sum(_entry_bytes(library) for library in self._libraries())
            else:
                self._bytes += added
            if self._bytes > self.max_bytes:
                self._bytes = self._prune()

    def _prune(self) -> int:
        """Removes what was not used for longest, down to 90 % of the cap. Returns the bytes left."""
        by_age = sorted((_last_used(library), library) for library in self._libraries())
        total = sum(_entry_bytes(library) for _, library in by_age)
        newest = time.time() - _IN_USE_SECONDS
        removed = 0
        for last_used, library in by_age:
            if total <= 0.9 * self.max_bytes or last_used > newest:
                break
            total -= _entry_bytes(library)
            removed += 1
            with suppress(OSError):
                _remove_entry(library)
        _log.info("kernel cache over %d bytes: removed %d old entries", self.max_bytes, removed)
        return total


def _path(root: Path, key: str) -> Path:
    return root / key[:2] / f"{key}.so"


def _read(root: Path, key: str) -> Entry | None:
    """Raises _CorruptError for an entry that is there and wrong."""
    path = _path(root, key)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _CorruptError(f"it cannot be read ({error.strerror})") from error
    try:
        sidecar = cast("dict[str, Any]", json.loads(path.with_suffix(".json").read_bytes()))
        description = Description(
            requires=str(sidecar["requires"]),
            compiler=str(sidecar["compiler"]),
            source_name=str(sidecar["source_name"]),
            created=float(sidecar["created"]),
        )
        checksum = sidecar["sha256"]
    except FileNotFoundError as error:
        raise _CorruptError("its .json is missing") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _CorruptError("its .json is damaged") from error
    if hashlib.sha256(content).hexdigest() != checksum:
        raise _CorruptError("its checksum is not the one it was stored with")
    return Entry(key, path, description)


def _remove_entry(library: Path) -> None:
    for suffix in (".so", ".json", ".cpp"):
        library.with_suffix(suffix).unlink(missing_ok=True)


def _entry_bytes(library: Path) -> int:
    total = 0
    for suffix in (".so", ".json", ".cpp"):
        with suppress(OSError):
            total += library.with_suffix(suffix).stat().st_size
    return total


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _configured_max_bytes() -> int:
    text = os.environ.get("TF_STITCH_CACHE_MAX_BYTES", "")
    try:
        return int(text) if text else DEFAULT_MAX_BYTES
    except ValueError:
        _log.warning("TF_STITCH_CACHE_MAX_BYTES=%s is not a number of bytes; the cap is 1 GiB", text)
        return DEFAULT_MAX_BYTES


def _remove_at_exit(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a child that was forked
        remove_tree(directory)
