"""A directory that is written whole or not at all, whatever is at its place already.

    .NAME.xxxxxxxx.partial/       locked with flock by the process that writes
    .NAME.xxxxxxxx.partial/new    what is being written, until it is renamed to NAME
    .NAME.xxxxxxxx.partial/old    what was at NAME, until `new` is there

Between the two renames there is nothing at NAME. So whoever removes such a directory, be it the writer after an
interrupt or `sweep` after a writer that was killed, first gives `old` its name back.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tf_stitch.errors import StitchError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_log = logging.getLogger("tf_stitch.convert")


@contextmanager
def replacing(destination: Path) -> Generator[Path]:
    """A path to make a directory at; it becomes `destination` when the block ends well.

    Otherwise, and also when this is interrupted, what was at `destination` stays or comes back.

    Raises:
      OSError: when there is no place for it beside `destination`.
      StitchError: when what was there cannot be brought back. It is not removed then.
    """
    scratch, descriptor = _locked_scratch(destination)
    try:
        yield scratch / "new"
        if os.path.lexists(destination):
            destination.replace(scratch / "old")
        (scratch / "new").replace(destination)
    finally:
        try:
            _clear(scratch, destination)
        finally:
            os.close(descriptor)


def sweep(destination: Path) -> None:
    """Removes what writers of `destination` that were killed have left, and brings back what they moved away."""
    for scratch in list(_scratches(destination)):
        with suppress(OSError):
            descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # Fails while its writer lives, and on file systems without locks, where nobody can tell.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid() and _clear(scratch, destination):
                    _log.warning("%s: brought back what an interrupted conversion had moved away", destination)
            finally:
                os.close(descriptor)


def _scratches(destination: Path) -> Iterator[Path]:
    name = re.compile(rf"\.{re.escape(destination.name)}\.\w+\.partial")
    with suppress(OSError):
        for path in destination.absolute().parent.iterdir():
            if name.fullmatch(path.name):
                yield path


def _locked_scratch(destination: Path) -> tuple[Path, int]:
    parent = destination.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        scratch = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".partial", dir=parent))
        with suppress(FileNotFoundError):  # another has swept it away before it was locked
            descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(OSError):  # no locks on this file system: then nobody sweeps either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if scratch.exists():
                return scratch, descriptor
            os.close(descriptor)


def _clear(scratch: Path, destination: Path) -> bool:
    """Removes `scratch`; whether something in it was brought back."""
    old = scratch / "old"
    lost = os.path.lexists(old) and not os.path.lexists(destination)
    if lost:
        try:
            old.replace(destination)
        except OSError as error:
            raise StitchError(f"{destination} could not be put back: {error}. It is kept in {old}.") from error
    shutil.rmtree(scratch, ignore_errors=True)
    return lost
