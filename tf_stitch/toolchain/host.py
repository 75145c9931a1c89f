"""HostToolchain: from C++ to shared libraries, each built once."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING

from tf_stitch.toolchain.artifact import Artifact
from tf_stitch.toolchain.building import Job, build_once
from tf_stitch.toolchain.cache import Entry, KernelCache
from tf_stitch.toolchain.compilers import LIBRARY, SOURCE, Compiler, find_compilers, no_compiler
from tf_stitch.toolchain.failure import CompileError
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.once import warn_once
from tf_stitch.toolchain.precompiled import PrecompiledPrelude
from tf_stitch.toolchain.process import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tf_stitch.errors import BuildError
    from tf_stitch.plan.target import Target
    from tf_stitch.toolchain.artifact import Source

_log = logging.getLogger("tf_stitch.toolchain")


class HostToolchain:
    """Builds kernels for one target. Safe to use from many threads at a time."""

    def __init__(
        self,
        target: Target,
        compilers: Iterator[Compiler],
        *,
        timeout: float,
        cache: KernelCache,
        headers: Headers,
    ) -> None:
        """`find` is the usual way to make one. `compilers` are tried in order, and asked for when needed."""
        self.target = target
        self.timeout = timeout
        self.cache = cache
        self._headers = headers
        self._headers_digest = headers.digest()
        self._precompiled = PrecompiledPrelude(target, headers, self._headers_digest, cache, timeout)
        self._lock = threading.Lock()
        self._more_compilers = compilers
        self._compilers: list[Compiler] = []

    @classmethod
    def find(
        cls,
        target: Target,
        timeout: float = 60.0,
        cache: KernelCache | None = None,
        headers: Headers | None = None,
    ) -> HostToolchain:
        """The best compiler of this machine for `target`, or the one that CXX names.

        Raises:
          EnvironmentProblem: when there is none, or CXX names none.
        """
        toolchain = cls(
            target,
            find_compilers(target),
            timeout=timeout,
            cache=cache or KernelCache(),
            headers=headers or Headers.find(),
        )
        _ = toolchain.compiler
        return toolchain

    @property
    def compiler(self) -> Compiler:
        """The one that is tried first.

        Raises:
          EnvironmentProblem: when there is none.
        """
        for compiler in self._choices():
            return compiler
        raise no_compiler(self.target)

    def key(self, source: Source, compiler: Compiler | None = None) -> str:
        """The content hash of what `source` compiles to: over all that can change a byte of it."""
        compiler = compiler or self.compiler
        digest = hashlib.sha256()
        commands = compiler.build_commands(self.target, include_flags=())
        compiled_by = (compiler.version, repr(commands))
        for part in (source.text, self._headers_digest, *compiled_by, self.target.requires):
            encoded = part.encode()
            digest.update(f"{len(encoded)}\n".encode())
            digest.update(encoded)
        return digest.hexdigest()

    def build(self, sources: Sequence[Source]) -> list[Artifact | BuildError]:
        """Each source's library, or why there is none, in the order of `sources`.

        Equal texts are built once; what the cache has is not built at all; the rest in parallel. A kernel
        that one compiler fails on is tried with the next. Of equal texts the first has the compile_seconds.
        """
        by_text: dict[str, Source] = {}
        for source in sources:
            by_text.setdefault(source.text, source)
        built = dict(zip(by_text, self._build_all(list(by_text.values())), strict=True))
        results: list[Artifact | BuildError] = []
        for source in sources:
            result = built[source.text]
            results.append(result)
            if isinstance(result, Artifact):
                built[source.text] = replace(result, compile_seconds=0.0)
        return results

    # ---- inside

    def _choices(self) -> Iterator[Compiler]:
        """The compilers, best first."""
        tried: set[Compiler] = set()
        while True:
            with self._lock:
                untried = [compiler for compiler in self._compilers if compiler not in tried]
                if not untried:
                    untried = [compiler for compiler in (next(self._more_compilers, None),) if compiler]
                    self._compilers += untried
            if not untried:
                return
            tried.add(untried[0])
            yield untried[0]

    def _build_all(self, sources: list[Source]) -> list[Artifact | BuildError]:
        first = self.compiler
        found = [self._cached(self.key(source, first)) for source in sources]
        missing = [source for source, artifact in zip(sources, found, strict=True) if artifact is None]
        if not missing:
            return [artifact for artifact in found if artifact is not None]
        runner = Runner()
        with ThreadPoolExecutor(min(len(missing), len(os.sched_getaffinity(0))), "tf_stitch-build") as pool:
            try:
                built = iter(list(pool.map(self._build_one, missing, repeat(runner))))
            except BaseException:  # KeyboardInterrupt: leave no compiler behind
                runner.stop()
                pool.shutdown(cancel_futures=True)
                raise
        return [artifact or next(built) for artifact in found]

    def _build_one(self, source: Source, runner: Runner) -> Artifact | BuildError:
        first_failure: CompileError | None = None
        for compiler in self._choices():
            result = self._build_with(compiler, source, runner)
            if isinstance(result, Artifact):
                if first_failure is not None:
                    self._prefer_another(first_failure)
                return result
            first_failure = first_failure or result
            if runner.stopped:
                break
            warn_once(_log, (self.key(source, compiler),), "%s", result)
        if first_failure is None:
            raise no_compiler(self.target)
        return first_failure

    def _prefer_another(self, failure: CompileError) -> None:
        """A compiler that hangs is the last choice from now on, so that its time limit is not met again."""
        with self._lock:
            if failure.timed_out:
                self._compilers.sort(key=lambda compiler: compiler == failure.compiler)

    def _build_with(self, compiler: Compiler, source: Source, runner: Runner) -> Artifact | CompileError:
        ahead = self._precompiled.flags(compiler, runner)
        result = self._attempt(compiler, source, runner, ahead)
        if ahead and isinstance(result, CompileError) and not (result.timed_out or runner.stopped):
            self._precompiled.give_up(compiler)  # it may have been that
            result = self._attempt(compiler, source, runner, ())
        return result

    def _attempt(
        self, compiler: Compiler, source: Source, runner: Runner, ahead: tuple[str, ...]
    ) -> Artifact | CompileError:
        job = Job(
            key=self.key(source, compiler),
            source=source,
            compiler=compiler,
            commands=compiler.build_commands(self.target, (*self._headers.flags(), *ahead)),
            source_file=SOURCE,
            product_file=LIBRARY,
            requires=self.target.requires,
            timeout=self.timeout,
        )
        built = build_once(job, self.cache, runner)
        if isinstance(built, CompileError):
            return built
        return replace(_artifact(built.entry), compile_seconds=built.compile_seconds)

    def _cached(self, key: str) -> Artifact | None:
        entry = self.cache.lookup(key, warn=False)
        return _artifact(entry) if entry else None


def _artifact(entry: Entry) -> Artifact:
    return Artifact(entry.key, entry.path, entry.description.requires, compile_seconds=0.0)
