"""Runs CUDA kernels on the CPU: g++ compiles the text that goes to nvcc, `kernels/emulator` runs it. For tests only.

    module = compile_kernel(text)
    counters = module.launch("layer_norm", grid=4, block=128, shared_bytes=4096, args=[x, y, 1024], seed=7)

Arrays are copied into buffers that end at a page nobody may touch, and back after the launch. A kernel that goes
wrong raises: `Deadlock`, `Divergence`, `BadAccess`, `Trap`, and with `sanitizer="thread"` `Race`. See docs/emulator.md.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tests.emulator import building, reports, separate
from tests.emulator.reports import BadAccess, Deadlock, Divergence, Failure, Race, Trap

__all__ = [
    "BadAccess",
    "Counters",
    "Deadlock",
    "Divergence",
    "Failure",
    "Module",
    "Race",
    "Scratch",
    "Traffic",
    "Trap",
    "compile_kernel",
]

_SCALARS = {"i": ctypes.c_int64, "f": ctypes.c_float, "d": ctypes.c_double}

Size = int | tuple[int, ...]


@dataclass(frozen=True)
class Scratch:
    """An argument: a buffer of `bytes` bytes whose content is poison (NaN, -1) before the launch and lost after it."""

    bytes: int


Argument = np.ndarray | Scratch | int | float


@dataclass(frozen=True)
class Traffic:
    """Between the threads and one argument's buffer. Distinct sectors count once in a launch, however often they are
    touched: what a cache that keeps everything would fetch, and write back."""

    load_bytes: int = 0
    store_bytes: int = 0
    load_sectors: int = 0
    store_sectors: int = 0
    distinct_load_sectors: int = 0
    distinct_store_sectors: int = 0


@dataclass(frozen=True)
class Counters:
    """What one launch did. Bytes, sectors and conflicts are None unless the module counts accesses.

    Bytes are summed over threads. A sector is 32 bytes that the lanes of a warp touch with one instruction. Accesses to
    shared memory are those of a warp; a conflict is a further turn that one of them takes. `buffers` has the traffic of
    each argument, None for scalars.
    """

    switches: int
    block_barriers: int
    grid_barriers: int
    warp_meetings: int
    atomics: int
    fences: int
    load_bytes: int | None = None
    store_bytes: int | None = None
    load_sectors: int | None = None
    store_sectors: int | None = None
    shared_loads: int | None = None
    shared_stores: int | None = None
    bank_conflicts: int | None = None
    buffers: tuple[Traffic | None, ...] | None = None


@dataclass(frozen=True)
class Module:
    """A compiled `.cu` text. `path` is the shared library; `flavour` one of `building.FLAVOURS`."""

    path: Path
    flavour: str

    @cached_property
    def _library(self) -> ctypes.CDLL:
        library = ctypes.CDLL(str(self.path))
        for name in ("launch", "kernels"):
            getattr(library, f"stitch_emulator_{name}").restype = ctypes.c_char_p
        library.stitch_emulator_allocate.restype = ctypes.c_void_p
        library.stitch_emulator_static_shared.restype = ctypes.c_ulong
        return library

    def launch(
        self,
        name: str,
        grid: Size,
        block: Size,
        shared_bytes: int,
        args: Sequence[Argument],
        *,
        seed: int | None = None,
        resident_blocks: int | None = None,
        alignment: int = 16,
    ) -> Counters:
        """Runs the kernel `name` once. Arrays among `args` are read and written in place; they must be contiguous.

        seed: None runs threads in order; a number draws one of many other schedules.
        resident_blocks: how many blocks live at once; the others begin when one of them ends. None: all that fit.
        alignment: of the buffers, in bytes. What lies between their end and the next multiple of it is red zone.

        Raises Deadlock, Divergence, BadAccess, Race, Trap.
        """
        sizes = [*_three(grid), *_three(block)]
        if 0 in sizes or np.prod(sizes[3:]) > 1024:
            raise ValueError(
                f"{name}: grid {grid} and block {block}: CUDA launches at least one block of 1 to 1024 threads"
            )
        for array in (a for a in args if isinstance(a, np.ndarray)):
            if not array.flags.c_contiguous:
                raise ValueError(f"{name}: an argument is an array that is not contiguous: copy it first")
        schedule = (-1 if seed is None else seed, resident_blocks or 0)
        if self.flavour in building.SANITIZERS:
            report = separate.launch(self.path, self.flavour, name, sizes, shared_bytes, args, schedule, alignment)
        else:
            report = self._launch_here(name, sizes, shared_bytes, args, schedule, alignment)
        if report["failure"] is not None:
            raise reports.failure(report["failure"], self.path)
        return Counters(**report["counters"])

    def _launch_here(
        self,
        name: str,
        sizes: list[int],
        shared_bytes: int,
        args: Sequence[Argument],
        schedule: tuple[int, int],
        alignment: int,
    ) -> dict:
        library = self._library
        kinds = self.parameters(name, args)
        buffers: list[tuple[Argument, int]] = []
        values: list[ctypes._SimpleCData] = []
        for kind, argument in zip(kinds, args, strict=True):
            if isinstance(argument, np.ndarray | Scratch):
                values.append(ctypes.c_void_p(self._buffer(argument, alignment)))
                buffers.append((argument, values[-1].value or 0))
            else:
                values.append(_SCALARS[kind](argument))
        addresses = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        text = library.stitch_emulator_launch(
            name.encode(), (ctypes.c_uint * 6)(*sizes), ctypes.c_ulong(shared_bytes), addresses,
            ctypes.c_longlong(schedule[0]), ctypes.c_uint(schedule[1]),
        )  # fmt: skip
        for argument, address in buffers:
            if isinstance(argument, np.ndarray) and argument.flags.writeable:
                ctypes.memmove(argument.ctypes.data, address, argument.nbytes)
            library.stitch_emulator_free(ctypes.c_void_p(address))
        report = json.loads(text)
        if (traffic := report["counters"].get("buffers")) is not None:
            at = {id(argument): Traffic(*traffic.get(str(address), ())) for argument, address in buffers}
            report["counters"]["buffers"] = tuple(at.get(id(argument)) for argument in args)
        return report

    def _buffer(self, argument: Argument, alignment: int) -> int:
        size = argument.bytes if isinstance(argument, Scratch) else argument.nbytes
        address = self._library.stitch_emulator_allocate(ctypes.c_ulong(size), ctypes.c_ulong(alignment))
        if isinstance(argument, np.ndarray):
            ctypes.memmove(address, argument.ctypes.data, size)
        return address

    def parameters(self, name: str, args: Sequence[Argument]) -> str:
        """The kinds of the kernel's parameters (p, i, f, d), which `args` are checked against."""
        known = json.loads(self._library.stitch_emulator_kernels())
        if name not in known:
            raise ValueError(f"the module has no kernel {name}, only {', '.join(known)}")
        kinds = known[name]
        given = "".join(
            "p" if isinstance(a, np.ndarray | Scratch) else "i" if isinstance(a, int) else "f" for a in args
        )
        if given != kinds.replace("d", "f"):
            raise ValueError(f"{name}: the parameters are {kinds or 'none'}, the arguments {given or 'none'}")
        return kinds

    @property
    def static_shared_bytes(self) -> int:
        """Of all `__shared__` variables of the module."""
        return int(self._library.stitch_emulator_static_shared())


def _three(size: Size) -> tuple[int, int, int]:
    given = (size,) if isinstance(size, int) else size
    return (*given, *(1,) * (3 - len(given)))  # type: ignore[return-value]


def compile_kernel(
    text: str, sanitizer: str | None = None, *, counting: bool = False, options: Sequence[str] = ()
) -> Module:
    """Compiles a `.cu` text, once per content.

    sanitizer: "thread" finds races, "address" bad accesses; launches then run in a process of their own.
    counting: counts the accesses to memory; about ten times slower.
    options: further ones for g++, such as -D and -I.

    Raises building.CompilationFailed, with the compiler's messages.
    """
    flavour = sanitizer or ("counting" if counting else "plain")
    return Module(building.build(text, flavour, options), flavour)
