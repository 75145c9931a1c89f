"""The C++ compilers that can build a kernel: where each is found, and its commands.

Kernels include no system header and link to nothing, so a bare compiler is enough: no headers, no C library,
no start files. What they leave undefined (memcpy, memset) the process that loads them has.
"""

from __future__ import annotations

import enum
import functools
import importlib.util
import os
import platform
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tf_stitch.errors import EnvironmentProblem
from tf_stitch.toolchain.process import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tf_stitch.plan.target import Target

# In the workspace, which is the compiler's working directory: so no path gets into a key or a library.
SOURCE: Final = "kernel.cpp"
OBJECT: Final = "kernel.o"
LIBRARY: Final = "kernel.so"

_LANGUAGE = ("-std=c++17", "-nostdinc", "-nostdinc++")
_CODE = (
    "-fPIC",
    # Exactly the arithmetic that was written, and never -ffast-math.
    "-ffp-contract=off",
    "-fwrapv",
    # These two change no result, since nobody reads errno or the floating-point status flags.
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    # Distributions turn this on by default; it needs the C library.
    "-fno-stack-protector",
)
_VERSION_TIMEOUT = 10.0


class Family(enum.Enum):
    """How a compiler is driven."""

    GCC = "g++"
    CLANG = "clang++"
    ZIG = "zig clang"  # the clang inside the zig binary, and its lld
    ZIG_CC = "zig cc"  # the same behind zig's own driver, for versions of zig without the former


@dataclass(frozen=True)
class Compiler:
    """A compiler that is there and says its version.

    command: how to call it, before any option.
    version: what it says to --version, first line.
    """

    family: Family
    command: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        return self.command[0]

    def flags(self, target: Target) -> tuple[str, ...]:
        """Options for compiling, all of them but where the headers are."""
        # The loops are vectors, unrolled as far as they gain by it: clang has nothing to add, g++ has.
        flags = ["-x", "c++", *_LANGUAGE, "-O3" if self.family is Family.GCC else "-O1", *_CODE]
        if self.family in (Family.ZIG, Family.ZIG_CC):
            flags += ["-target", f"{target.machine}-linux-gnu"]
        if self.family is Family.ZIG_CC:
            flags += _as_zig_spells(target.compiler_flags)
        else:
            flags += target.compiler_flags
        if target.machine == "x86_64":
            # The width for loops without vectors of their own; else clang takes 256 bits for AVX-512 CPUs.
            flags += ["-fcf-protection=none", f"-mprefer-vector-width={8 * target.vector_bytes}"]
        if self.family is Family.GCC:
            flags += ["-pipe", "-Wno-psabi"]
        return tuple(flags)

    def build_commands(self, target: Target, include_flags: tuple[str, ...]) -> list[list[str]]:
        """From SOURCE to LIBRARY; to be run one after another in the workspace."""
        compile_flags = [*self.command, *self.flags(target), *include_flags]
        match self.family:
            case Family.GCC:
                return [[*compile_flags, *_LINK_WITH_DRIVER, "-o", LIBRARY, SOURCE, "-x", "none", "-lgcc"]]
            case Family.CLANG:
                return [[*compile_flags, *_LINK_WITH_DRIVER, "-o", LIBRARY, SOURCE]]
            case Family.ZIG | Family.ZIG_CC:
                linker = [self.command[0], "ld.lld", "-shared", *_LINKER_FLAGS, "-o", LIBRARY, OBJECT]
                return [[*compile_flags, "-c", "-o", OBJECT, SOURCE], linker]

    def precompile_command(
        self, target: Target, include_flags: tuple[str, ...], header: Path, product: str
    ) -> list[str] | None:
        """From a header to what `-include-pch` takes; None where the compiler has no such thing.

        g++'s takes ten times as much room, and as much time to read as it saves.
        """
        if self.family not in (Family.CLANG, Family.ZIG):
            return None
        flags = ["c++-header" if flag == "c++" else flag for flag in self.flags(target)]
        return [*self.command, *flags, *include_flags, "-o", product, str(header)]


def _as_zig_spells(flags: tuple[str, ...]) -> list[str]:
    """The zig driver has its own names for CPUs, and armv8-a is what it takes for AArch64 anyway."""
    return [flag.replace("x86-64", "x86_64") for flag in flags if flag != "-march=armv8-a"]


# noseparate-code: one page less for each segment, where the library travels inside a model.
_LINKER_FLAGS = ("--threads=1", "--build-id=none", "-z", "noseparate-code")
_LINK_WITH_DRIVER = ("-shared", "-nostdlib", "-Wl,--build-id=none", "-Wl,-z,noseparate-code")


def find_compilers(target: Target) -> Iterator[Compiler]:
    """The compilers that can build for `target`, best first: only CXX, if that is set.

    Raises:
      EnvironmentProblem: when CXX names no compiler.
    """
    configured = os.environ.get("CXX", "").strip()
    if configured:
        yield _configured_compiler(configured)
        return
    for families, command in _candidates(target):
        compiler = _first_that_answers(families, command)
        if compiler is not None:
            yield compiler


def no_compiler(target: Target) -> EnvironmentProblem:
    """What to raise when `find_compilers` found nothing."""
    if target.machine == platform.machine():
        return EnvironmentProblem(
            "no C++ compiler was found: no g++ and no clang++ in PATH, and no ziglang package in "
            f"{sys.prefix}. Install one: `pip install tf-stitch[compiler]`, or the g++ of your system"
        )
    return EnvironmentProblem(
        f"no C++ compiler for {target.machine} was found: no {_gcc_for(target)} in PATH, and no ziglang "
        f"package in {sys.prefix}. Install one: `pip install tf-stitch[compiler]`"
    )


def _gcc_for(target: Target) -> str:
    return "g++" if target.machine == platform.machine() else f"{target.machine}-linux-gnu-g++"


def _configured_compiler(configured: str) -> Compiler:
    command = tuple(shlex.split(configured))
    if shutil.which(command[0]) is None:
        raise EnvironmentProblem(
            f"CXX={configured} names a compiler that is not there; unset CXX to let tf_stitch look for one"
        )
    if command[-1] in ("c++", "cc") and len(command) > 1:  # CXX="zig c++"
        zig = _zig_of(command[:-1])
        compiler = _first_that_answers(_ZIG_FAMILIES, zig) if zig else None
        if compiler is not None:
            return compiler
    compiler = _compiler(None, command)
    if compiler is None:
        raise EnvironmentProblem(f"CXX={configured} does not answer to --version")
    return compiler


def _candidates(target: Target) -> Iterator[tuple[tuple[Family, ...], tuple[str, ...]]]:
    """Best first, by the figures in `measure`."""
    native = target.machine == platform.machine()
    zig = bundled_zig() or shutil.which("zig")
    if zig:
        yield _ZIG_FAMILIES, (zig,)
    if native and (path := shutil.which("clang++")):
        yield (Family.CLANG,), (path,)
    if path := shutil.which(_gcc_for(target)):
        yield (Family.GCC,), (path,)


def bundled_zig() -> str | None:
    """The zig binary of the `ziglang` package, if that is installed."""
    try:
        spec = importlib.util.find_spec("ziglang")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    binary = Path(next(iter(spec.submodule_search_locations))) / "zig"
    return str(binary) if os.access(binary, os.X_OK) else None


def _zig_of(command: tuple[str, ...]) -> tuple[str, ...] | None:
    """The zig binary behind "zig" or "python -m ziglang"."""
    if command[-1] == "ziglang":
        zig = bundled_zig()
        return (zig,) if zig else None
    return command if Path(command[0]).name == "zig" else None


def _first_that_answers(families: tuple[Family, ...], command: tuple[str, ...]) -> Compiler | None:
    answers = (_compiler(family, command) for family in families)
    return next((compiler for compiler in answers if compiler is not None), None)


def _compiler(family: Family | None, command: tuple[str, ...]) -> Compiler | None:
    """Asks for the version; with no family given, tells it by the answer. None when it does not answer."""
    driver = (*command, *_DRIVERS.get(family, ()))
    try:
        binary = Path(shutil.which(command[0]) or command[0]).resolve().stat()
    except OSError:
        return None
    version = _version(driver, binary.st_mtime_ns, binary.st_size)
    if version is None:
        return None
    if family is None:
        family = Family.CLANG if "clang" in version.lower() else Family.GCC
    return Compiler(family, driver, version)


@functools.cache
def _version(command: tuple[str, ...], mtime_ns: int, size: int) -> str | None:
    """The first line of what a compiler says; asked again when its file has changed."""
    del mtime_ns, size
    outcome = Runner().run((*command, "--version"), cwd=Path("/"), environment=environment(), timeout=_VERSION_TIMEOUT)
    return outcome.output.strip().partition("\n")[0] if outcome.ok else None


_ZIG_FAMILIES: Final = (Family.ZIG, Family.ZIG_CC)
_DRIVERS: Final[dict[Family | None, tuple[str, ...]]] = {Family.ZIG: ("clang",), Family.ZIG_CC: ("cc",)}

# Variables by which a compiler is made to find other headers than ours, or to write more than we asked for.
_MEDDLING = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "DEPENDENCIES_OUTPUT",
    "SUNPRO_DEPENDENCIES",
)


def environment(workspace: Path | None = None) -> dict[str, str]:
    """The environment for a compiler: messages in English, temporary files in the workspace."""
    variables = {name: value for name, value in os.environ.items() if name not in _MEDDLING}
    variables["LC_ALL"] = "C"
    if workspace is not None:
        variables["TMPDIR"] = str(workspace)
        variables["ZIG_LOCAL_CACHE_DIR"] = variables["ZIG_GLOBAL_CACHE_DIR"] = str(workspace / "zig")
    return variables
