"""`tf-stitch cache`: the compiled kernels on disk."""

from __future__ import annotations

import time

import click

from tf_stitch.cli import output
from tf_stitch.cli.exit_codes import Exit
from tf_stitch.errors import EnvironmentProblem, StitchError
from tf_stitch.report.text import human_bytes


@click.group()
def cache() -> None:
    """The compiled kernels on disk: what there is, whether it is sound, away with it."""


@cache.command()
@output.json_option
def info(*, as_json: bool) -> None:
    """Where the cache is, and how much is in it."""
    from tf_stitch.toolchain.cache import KernelCache

    found = KernelCache().info()
    if as_json:
        output.print_json(
            {
                "root": str(found.root),
                "entries": found.entries,
                "bytes": found.bytes,
                "max_bytes": found.max_bytes,
                "last_used": found.last_used,
                "problem": found.problem,
            }
        )
        return
    console = output.console()
    console.print(f"directory   {found.root}", soft_wrap=True)
    console.print(f"kernels     {found.entries}")
    console.print(f"size        {human_bytes(found.bytes)} of {human_bytes(found.max_bytes)}")
    if found.last_used is not None:
        console.print(f"last used   {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(found.last_used))}")
    if found.problem is not None:
        console.print(f"not written {found.problem}", soft_wrap=True)


@cache.command()
@output.json_option
def clear(*, as_json: bool) -> None:
    """Removes every kernel. Each is compiled again when it is next wanted."""
    from tf_stitch.toolchain.cache import KernelCache

    kernels = KernelCache()
    problem = kernels.info().problem
    if problem is not None:
        raise EnvironmentProblem(f"the kernel cache {kernels.root} cannot be cleared: {problem}.")
    try:
        removed = kernels.clear()
    except OSError as error:
        raise StitchError(
            f"the kernel cache {kernels.root} cannot be cleared: {error}; remove the directory by hand."
        ) from error
    if as_json:
        output.print_json({"root": str(kernels.root), "removed": removed})
    else:
        output.console().print(f"removed {removed} kernels from {kernels.root}", soft_wrap=True)


@cache.command()
@output.json_option
@click.pass_context
def verify(ctx: click.Context, *, as_json: bool) -> None:
    """Reads every kernel and checks its checksum."""
    from tf_stitch.toolchain.cache import KernelCache

    kernels = KernelCache()
    found = kernels.verify()
    if as_json:
        problems = [{"path": str(path), "problem": problem} for path, problem in found.problems]
        output.print_json({"root": str(kernels.root), "checked": found.checked, "problems": problems})
    else:
        console = output.console()
        for path, problem in found.problems:
            console.print(f"{path}: {problem}", soft_wrap=True)
        console.print(f"{found.checked} kernels checked, {len(found.problems)} damaged")
    if found.problems:
        output.log("tf-stitch: damaged kernels do no harm, they are compiled again; `tf-stitch cache clear`.")
        ctx.exit(Exit.FAILURE)
