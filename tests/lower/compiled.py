"""Calls a compiled kernel outside TensorFlow: as StitchOp does, with a host of its own that can be odd on purpose.

    Compiled(artifact.path)([x, gamma], threads=8, order="reversed")      ->      the outputs

The host watches: memory around each output is checked for stray writes, scratch is filled with NaNs at each request,
and input buffers are surrounded by NaNs, so that what is read beside them shows in the results.
"""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tf_stitch.lower.kernel import Kernel
from tf_stitch.runtime.reference import GuardFailed

Array = np.ndarray[Any, np.dtype[Any]]

_PAD = 256  # bytes watched on either side of a buffer
_CANARY = 0xA5


class _Tensor(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("dims", ctypes.POINTER(ctypes.c_longlong)), ("rank", ctypes.c_longlong))


_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong)
_PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_void_p, ctypes.c_void_p
)
_SCRATCH = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong)


class _Host(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("threads", ctypes.c_longlong),
        ("parallel_for", _PARALLEL_FOR),
        ("scratch", _SCRATCH),
        ("cache_bytes", ctypes.c_longlong),
    )


_SYMBOLS = ctypes.POINTER(ctypes.c_longlong)


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_int),
        ("inputs", ctypes.c_int),
        ("outputs", ctypes.c_int),
        ("symbols", ctypes.c_int),
        ("guards", ctypes.c_int),
        ("output_ranks", ctypes.POINTER(ctypes.c_int)),
        ("forwards", ctypes.POINTER(ctypes.c_int)),
        ("name", ctypes.c_char_p),
        ("guard_texts", ctypes.POINTER(ctypes.c_char_p)),
        ("shape", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Tensor), _SYMBOLS, _SYMBOLS)),
        (
            "run",
            ctypes.CFUNCTYPE(
                None, ctypes.POINTER(_Tensor), ctypes.POINTER(ctypes.c_void_p), _SYMBOLS, ctypes.POINTER(_Host)
            ),
        ),
    )


class _Buffer:
    """Bytes of an array at a 64-byte boundary, between two watched margins."""

    def __init__(self, size: int, fill: int) -> None:
        self._bytes = np.full(size + 2 * _PAD + 64, fill, np.uint8)
        start = _PAD + (-(self._bytes.ctypes.data + _PAD)) % 64
        self._start, self._fill = start, fill
        self.content = self._bytes[start : start + size]

    @property
    def address(self) -> int:
        return self.content.ctypes.data

    def check(self, what: str) -> None:
        before, after = self._bytes[: self._start], self._bytes[self._start + len(self.content) :]
        assert (before == self._fill).all(), f"{what}: written in front of it"
        assert (after == self._fill).all(), f"{what}: written behind it"


@dataclass
class Host:
    """What a kernel asks of its host.

    threads: what it is told. pool: on how many threads its loops really run; 0 for the caller's alone.
    order: of the chunks of a loop: "whole" (one chunk), "forward", "reversed" or "strided", with `chunk` units each.
    cache_bytes: a call that moves more has streaming stores; 0: every call has.
    """

    threads: int = 1
    pool: int = 0
    order: str = "whole"
    chunk: int = 1
    cache_bytes: int = 1 << 62
    loops: list[int] = field(default_factory=list[int])
    _slots: dict[tuple[int, int], _Buffer] = field(default_factory=dict[Any, Any])

    def struct(self) -> _Host:
        services = _PARALLEL_FOR(self._parallel_for), _SCRATCH(self._scratch)
        return _Host(None, self.threads, *services, self.cache_bytes)

    def _parallel_for(self, _context: int, total: int, _cost: int, task: int, argument: int) -> None:
        self.loops.append(total)
        run = _TASK(task)
        step = max(self.chunk, -(-total // 400)) if self.order != "whole" else max(total, 1)
        chunks = [(begin, min(begin + step, total)) for begin in range(0, total, step)]
        if self.order == "reversed":
            chunks.reverse()
        elif self.order == "strided":
            chunks = chunks[::3] + chunks[1::3] + chunks[2::3]
        if self.pool:
            with ThreadPoolExecutor(self.pool) as pool:
                list(pool.map(lambda c: run(argument, *c), chunks))
        else:
            for chunk in chunks:
                run(argument, *chunk)

    def _scratch(self, slot: int, size: int) -> int:
        if size <= 0:
            return 0  # as StitchOp's may; a row of no elements has an empty tile
        buffer = _Buffer(size, 0xFF)  # NaNs
        self._slots[slot, threading.get_ident()] = buffer
        return buffer.address

    def check(self) -> None:
        for (slot, _), buffer in self._slots.items():
            buffer.check(f"scratch {slot}")


class Compiled:
    """A kernel out of a shared library. `kernel` says how its outputs are typed."""

    def __init__(self, library: Path, kernel: Kernel) -> None:
        self._library = ctypes.CDLL(str(library))
        self._kernel = _Kernel.in_dll(self._library, "tf_stitch_kernel")
        self._outputs = kernel.outputs
        assert self._kernel.inputs == len(kernel.inputs)
        assert self._kernel.outputs == len(kernel.outputs)
        self.forwards = kernel.forwards

    def __call__(self, inputs: list[Array | None], host: Host | None = None, *, forward: bool = False) -> list[Array]:
        """The outputs. `forward`: computed in the inputs' buffers as far as the kernel allows it.

        Raises:
          GuardFailed: where `shape` refuses.
        """
        host = host or Host()
        fed = [np.zeros(0, np.float32) if array is None else np.asarray(array) for array in inputs]
        buffers = [_Buffer(array.nbytes, 0xFF) for array in fed]
        for buffer, array in zip(buffers, fed, strict=True):
            buffer.content[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        dims = [(ctypes.c_longlong * max(a.ndim, 1))(*a.shape) for a in fed]
        tensors = (_Tensor * max(len(fed), 1))(
            *(_Tensor(b.address, d, a.ndim) for b, d, a in zip(buffers, dims, fed, strict=True))
        )
        symbols = (ctypes.c_longlong * max(self._kernel.symbols, 1))()
        extents = (ctypes.c_longlong * max(sum(len(t.dims) for t in self._outputs), 1))()
        broken = self._kernel.shape(tensors, symbols, extents)
        if broken:
            raise GuardFailed(self._kernel.guard_texts[broken - 1].decode())
        shapes: list[tuple[int, ...]] = []
        rest = list(extents)
        for type_ in self._outputs:
            shapes.append(tuple(rest[: len(type_.dims)]))
            rest = rest[len(type_.dims) :]
        sizes = [int(np.prod(s)) * t.dtype.size for s, t in zip(shapes, self._outputs, strict=True)]
        results = [_Buffer(size, _CANARY) for size in sizes]
        if forward:
            taken: set[int] = set()
            for source, output in self.forwards:
                if source not in taken and results[output] not in buffers and sizes[output] == fed[source].nbytes:
                    results[output] = buffers[source]
                    taken.add(source)
        pointers = (ctypes.c_void_p * max(len(results), 1))(*(b.address for b in results))
        struct = host.struct()
        self._kernel.run(tensors, pointers, symbols, ctypes.byref(struct))
        host.check()
        for number, buffer in enumerate(buffers):
            buffer.check(f"input {number}")
            unchanged = buffer.content.tobytes() == np.ascontiguousarray(fed[number]).tobytes()
            assert unchanged or buffer in results, f"input {number} is changed"
        for number, buffer in enumerate(results):
            buffer.check(f"output {number}")
        return [
            np.frombuffer(b.content.tobytes(), t.dtype.numpy).reshape(s)
            for b, t, s in zip(results, self._outputs, shapes, strict=True)
        ]
