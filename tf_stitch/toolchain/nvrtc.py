"""Compiles CUDA C++ with NVRTC, in a process of its own: what hangs or crashes there harms nobody.

    python nvrtc.py LIBRARY                                       says what the library is, as JSON
    python nvrtc.py LIBRARY CODE SOURCE OUTPUT [OPTION ...]       compiles; what NVRTC has to say goes to stderr

CODE is "sm_80" for a cubin, "compute_80" for PTX. No GPU and no driver is needed. Nothing but the standard library is
imported, so that the process starts in no time.

NVRTC is described in NVIDIA's "NVRTC" manual; its functions return 0 where all went well.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from pathlib import Path


class NvrtcError(Exception):
    """What NVRTC says of a failure."""


class Nvrtc:
    """The library at `path`."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def version(self) -> str:
        """All of it, "12.9.86", as it is written into PTX; nvrtcVersion knows two numbers of it."""
        ptx, _ = self.compile(b"", "version.cu", f"compute_{self.archs()[-1].removeprefix('sm_')}", [])
        found = re.search(rb"V(\d+\.\d+\.\d+)", ptx)
        return found[1].decode() if found else "of an unknown version"

    def archs(self) -> list[str]:
        """The architectures that it compiles for: sm_75, sm_80, ..."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return [f"sm_{number}" for number in numbers]

    def compile(self, source: bytes, name: str, code: str, options: list[str]) -> tuple[bytes, str]:
        """(the cubin or PTX, what there is to warn of).

        Raises:
          NvrtcError: with the compiler's log.
        """
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, name.encode(), 0, None, None)
        given = [f"--gpu-architecture={code}".encode(), *(option.encode() for option in options)]
        failed = self._library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        log = self._read(program, "ProgramLog").rstrip(b"\0").decode("utf-8", errors="replace")
        if failed:
            raise NvrtcError(log or self._reason(failed))
        if code.startswith("sm_"):
            return self._read(program, "CUBIN"), log
        return self._read(program, "PTX").rstrip(b"\0"), log

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]

    def _call(self, function: str, *arguments: object) -> None:
        failed = getattr(self._library, function)(*arguments)
        if failed:
            raise NvrtcError(f"{function}: {self._reason(failed)}")

    def _reason(self, code: int) -> str:
        return self._library.nvrtcGetErrorString(code).decode()


def _main(library: str, *arguments: str) -> int:
    try:
        nvrtc = Nvrtc(library)
        if not arguments:
            print(json.dumps({"version": f"NVRTC {nvrtc.version()}", "archs": nvrtc.archs()}))
            return 0
        code, source, output, *options = arguments
        image, log = nvrtc.compile(Path(source).read_bytes(), source, code, options)
        Path(output).write_bytes(image)
    except (NvrtcError, OSError, AttributeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(log, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
