"""One build of one file by one compiler: looked up first, made once however many ask for it, and kept in the cache."""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch.toolchain.cache import Description, Entry, KernelCache
from tf_stitch.toolchain.compilers import environment
from tf_stitch.toolchain.failure import AnyCompiler, CompileError, compile_error
from tf_stitch.toolchain.workspace import BusyError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tf_stitch.toolchain.artifact import Source
    from tf_stitch.toolchain.process import Runner


@dataclass(frozen=True)
class Job:
    """What to build.

    key: over all that can change a byte of it. source: its text goes into `source_file` of the workspace.
    commands: run one after another in the workspace; they leave `product_file` there.
    requires: what a CPU must have to run it, for the cache's record.
    timeout: seconds for one command.
    """

    key: str
    source: Source
    compiler: AnyCompiler
    commands: Sequence[Sequence[str]]
    source_file: str
    product_file: str
    requires: str
    timeout: float

    @property
    def patience(self) -> float:
        """Seconds to wait for whoever else builds the same."""
        return 2 * self.timeout + 1


@dataclass(frozen=True)
class Built:
    """compile_seconds: CPU seconds of the compiler; 0.0 when it came from the cache."""

    entry: Entry
    compile_seconds: float


def build_once(job: Job, cache: KernelCache, runner: Runner) -> Built | CompileError:
    """Raises nothing for what a compiler or a disk does."""
    entry = cache.lookup(job.key, warn=False)
    if entry is not None:
        return Built(entry, 0.0)
    try:
        try:
            return _build_locked(job, cache, runner)
        except OSError as error:
            cache.stop_writing(error.strerror or str(error))
            return _build_locked(job, cache, runner)
    except OSError as error:
        return CompileError(
            f"kernel {job.source.name}: no place to build it in: {error.strerror or error}", compiler=job.compiler
        )


def _build_locked(job: Job, cache: KernelCache, runner: Runner) -> Built | CompileError:
    """Raises OSError when the cache cannot be written."""
    try:
        with cache.building(job.key, job.patience) as workspace:
            # Another may have built it while we waited for the lock.
            entry = cache.lookup(job.key)
            return Built(entry, 0.0) if entry else _compile(job, cache, workspace, runner)
    except BusyError:  # whoever holds the lock has had the time to build it twice; a race is harmless
        with cache.building(f"{job.key}.{os.getpid()}.{threading.get_ident()}", 0) as workspace:
            return _compile(job, cache, workspace, runner)


def _compile(job: Job, cache: KernelCache, workspace: Path, runner: Runner) -> Built | CompileError:
    source, product = workspace / job.source_file, workspace / job.product_file
    source.write_text(job.source.text, encoding="utf-8")
    seconds = 0.0
    for command in job.commands:
        outcome = runner.run(command, cwd=workspace, environment=environment(workspace), timeout=job.timeout)
        seconds += outcome.cpu_seconds
        if not outcome.ok:
            # Not `writes_elsewhere`: another thread may have met the full disk while this one was compiling on it.
            if _is_full(workspace, outcome.output) and workspace.is_relative_to(cache.root):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return compile_error(job.source, job.compiler, command, outcome, job.timeout, cache, job.key)
    if not product.is_file():
        return CompileError(
            f"kernel {job.source.name}: {job.compiler.version} ended well and wrote nothing", compiler=job.compiler
        )
    description = Description(job.requires, job.compiler.version, job.source.name, time.time())
    return Built(cache.store(job.key, product, source, description), seconds)


def _is_full(directory: Path, output: str) -> bool:
    """Whether a compiler failed for want of room on the disk."""
    if os.strerror(errno.ENOSPC) in output or os.strerror(errno.EDQUOT) in output:
        return True
    if "ld returned" in output:  # a linker that maps its output dies of a signal there, and says nothing
        return True
    try:
        return os.statvfs(directory).f_bavail == 0
    except OSError:
        return False
