"""A directory to build one kernel in, that is at the same time the lock on its key.

    <root>/build/<key>/           locked with flock while someone builds; removed when they are done
    <root>/build/<key>/<random>/  what the compiler writes to

The operating system drops the lock when its holder dies, however it dies: so there is no stale lock. What a
dead builder leaves behind is swept away by the next one, who knows by the lock that nobody needs it. Each
attempt has a directory of its own, because a compiler may outlive the builder that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tf_stitch.toolchain.cache_dir import PRIVATE, remove_tree

if TYPE_CHECKING:
    from collections.abc import Generator

_POLL_SECONDS = 0.005


class BusyError(Exception):
    """Someone else holds the lock."""


@contextmanager
def workspace(root: Path, key: str, patience: float) -> Generator[Path]:
    """Locks `key` and gives a fresh directory; waits for at most `patience` seconds.

    Raises:
      BusyError: when the lock was not free in that time.
      OSError: when `root` cannot be written.
    """
    directory = root / "build" / key
    descriptor = _lock(directory, time.monotonic() + patience)
    try:
        yield Path(tempfile.mkdtemp(dir=directory))
    finally:
        remove_tree(directory)
        os.close(descriptor)


def sweep(root: Path) -> None:
    """Removes what builders that died have left."""
    with suppress(OSError):
        for directory in (root / "build").iterdir():
            with suppress(OSError, BusyError):
                descriptor = _lock(directory, deadline=0.0)
                remove_tree(directory)
                os.close(descriptor)


def _lock(directory: Path, deadline: float) -> int:
    """A descriptor of `directory`, made if missing, that holds its lock."""
    while True:
        descriptor = _open(directory)
        try:
            if _try_lock(descriptor) and _is_still(directory, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() >= deadline:
            raise BusyError(str(directory))
        time.sleep(_POLL_SECONDS)


def _open(directory: Path) -> int:
    while True:
        directory.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            directory.mkdir(mode=PRIVATE)
        with suppress(FileNotFoundError):  # its holder has just removed it
            return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        # A file system without locks: then two processes may build one kernel, and both are right.
    return True


def _is_still(directory: Path, descriptor: int) -> bool:
    """Whether the directory that we locked is the one of that name, and not one removed before we got it."""
    try:
        return os.path.samestat(directory.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
