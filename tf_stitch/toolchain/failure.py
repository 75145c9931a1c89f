"""CompileError: what a report of a kernel that does not compile needs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol

from tf_stitch.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tf_stitch.toolchain.artifact import Source
    from tf_stitch.toolchain.cache import KernelCache
    from tf_stitch.toolchain.process import Outcome

_OUTPUT_LINES = 20


class AnyCompiler(Protocol):
    """What a report needs of a compiler, be it for the host or for a GPU."""

    @property
    def name(self) -> str:
        """For people: the command, or what it is."""
        ...

    @property
    def version(self) -> str: ...


class CompileError(BuildError):
    """A kernel that `compiler` did not build.

    command: what was run, as one would type it; empty when it did not come to that.
    output: the first lines of what the compiler said.
    source_path: where the source is kept, for a bug report; None when it could not be kept.
    """

    def __init__(
        self,
        message: str,
        *,
        compiler: AnyCompiler,
        command: str = "",
        output: str = "",
        source_path: Path | None = None,
        timed_out: bool = False,
    ) -> None:
        super().__init__(message)
        self.compiler = compiler
        self.command = command
        self.output = output
        self.source_path = source_path
        self.timed_out = timed_out

    def report(self) -> str:
        """All there is to say, on several lines."""
        return f"{self}\ncommand: {self.command}\n{self.output}"


def compile_error(
    source: Source,
    compiler: AnyCompiler,
    command: Sequence[str],
    outcome: Outcome,
    timeout: float,
    cache: KernelCache,
    key: str,
) -> CompileError:
    """The error for a command that failed; keeps the source, unless the command was interrupted."""
    name = f"kernel {source.name}: the compiler {compiler.name}"
    if outcome.interrupted:
        return CompileError(f"{name} was interrupted", compiler=compiler)
    lines = outcome.output.strip().splitlines()
    if outcome.timed_out:
        what = f"was stopped after {timeout:g} seconds"
    else:
        complaint = next((line for line in lines if "error" in line.lower()), "".join(lines[:1]))
        what = f"failed with exit code {outcome.exit_code}: {complaint.strip()}"
    output = "\n".join(lines[:_OUTPUT_LINES])
    typed = shlex.join(command)
    path = cache.keep_failure(key, source.text, f"{compiler.version}\n{typed}\n{what}\n\n{output}\n")
    kept = f"; its source is kept in {path}" if path else ""
    return CompileError(
        f"{name} {what}{kept}",
        compiler=compiler,
        command=typed,
        output=output,
        source_path=path,
        timed_out=outcome.timed_out,
    )
