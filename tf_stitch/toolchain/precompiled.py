"""The prelude, compiled ahead: a fifth of the time of a small kernel is spent on reading headers.

clang's form of it holds what was parsed, as it would be parsed again: a kernel comes out with the same bytes, and so
nothing of this is in its key. It is made once for each compiler, target and state of the headers, kept in a cache of
its own beside the kernels', and done without wherever it cannot be had.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Final

from tf_stitch.toolchain.artifact import Source
from tf_stitch.toolchain.building import Job, build_once
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.failure import CompileError

if TYPE_CHECKING:
    from pathlib import Path

    from tf_stitch.plan.target import Target
    from tf_stitch.toolchain.compilers import Compiler
    from tf_stitch.toolchain.headers import Headers
    from tf_stitch.toolchain.process import Runner

_log = logging.getLogger("tf_stitch.toolchain")

DIRECTORY: Final = "prelude"  # in the kernels' cache
_WHOLE: Final = "whole.h"  # of the prelude: it includes all the rest
_PRODUCT: Final = "prelude.pch"
_MAX_BYTES: Final = 64 << 20


class PrecompiledPrelude:
    """That of one target. Safe to use from many threads at a time."""

    def __init__(self, target: Target, headers: Headers, digest: str, cache: KernelCache, timeout: float) -> None:
        """digest: of the headers. cache: the kernels'."""
        self._target = target
        self._headers = headers
        self._digest = digest
        self._kernels = cache
        self._timeout = timeout
        self._lock = threading.Lock()
        self._cache: KernelCache | None = None
        self._made: dict[Compiler, Path | None] = {}

    def flags(self, compiler: Compiler, runner: Runner) -> tuple[str, ...]:
        """What to give a compiler besides; nothing where there is no precompiled prelude."""
        with self._lock:
            if compiler not in self._made:
                self._made[compiler] = self._make(compiler, runner)
            path = self._made[compiler]
        return () if path is None else ("-include-pch", str(path))

    def give_up(self, compiler: Compiler) -> None:
        """Do without from now on."""
        with self._lock:
            self._made[compiler] = None

    def _make(self, compiler: Compiler, runner: Runner) -> Path | None:
        whole = self._headers.prelude / _WHOLE
        command = compiler.precompile_command(self._target, self._headers.flags(), whole, _PRODUCT)
        # A cache that is not written would have every process compile it for a kernel or two.
        if command is None or self._kernels.problem is not None:
            return None
        try:
            text = whole.read_text(encoding="utf-8")
            key = self._key(compiler, command)
        except OSError:
            return None
        if self._cache is None:
            self._cache = KernelCache(self._kernels.root / DIRECTORY, _MAX_BYTES, inside=self._kernels.root)
        source = Source("the prelude", text)
        job = Job(key, source, compiler, [command], _WHOLE, _PRODUCT, self._target.requires, self._timeout)
        built = build_once(job, self._cache, runner)
        if isinstance(built, CompileError):
            _log.info("no precompiled prelude: %s", built)
            return None
        return built.entry.path

    def _key(self, compiler: Compiler, command: list[str]) -> str:
        """Over the files as they are on the disk, too: clang refuses it when one has another time."""
        files = [(f, f.stat()) for f in self._headers.files()]
        stamps = [(str(f), s.st_mtime_ns, s.st_size) for f, s in files]
        return hashlib.sha256(repr((compiler.version, command, self._digest, stamps)).encode()).hexdigest()
