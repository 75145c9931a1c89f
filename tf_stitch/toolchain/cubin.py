"""What the entries of a compiled GPU kernel need of a multiprocessor, read from the cubin itself.

So it is known for every compiler, without its log and without a driver. A cubin is an ELF file of 64 bits:

    .nv.info            attributes of functions, each named by the number of its symbol: registers, stack frame
    .nv.info.<entry>    attributes of one entry: how many bytes of parameters
    .nv.shared.<entry>  as large as the entry's static shared memory; where there is a section .nv.shared.reserved.0
                        (from sm_90 on) the 1024 bytes are counted in that the system has of each block
    .symtab, .strtab    the names of the symbols

An attribute is a byte for its format, a byte for what it says, and two bytes: the value, or in format 4 the number of
bytes that follow. Numbers are little-endian. The names are those of NVIDIA's `cuobjdump --dump-elf`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ELF64 = b"\x7fELF\x02\x01"
_CUDA_MACHINE = 190
_SYMTAB = 2  # a section's type

_SIZED = 4  # an attribute's format
_PARAM_CBANK = 0x0A
_FRAME_SIZE = 0x11
_CBANK_PARAM_SIZE = 0x19
_REGCOUNT = 0x2F

_RESERVED = ".nv.shared.reserved.0"
_SYSTEM_BYTES = 1024


@dataclass(frozen=True)
class Resources:
    """What one entry needs.

    registers: 32-bit ones, of a thread. local_bytes: of a thread, in memory: its stack, with what the registers had no
    room for; 0 where nothing was spilled. shared_bytes: static, of a block. parameter_bytes: of a launch.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    parameter_bytes: int


@dataclass(frozen=True)
class _Section:
    name: str
    type: int
    content: bytes
    size: int
    link: int


def is_cubin(image: bytes) -> bool:
    """Whether it starts as one; the emulator's images, for one, do not."""
    return image[: len(_ELF64)] == _ELF64 and image[18:20] == struct.pack("<H", _CUDA_MACHINE)


def resources_of(cubin: bytes) -> dict[str, Resources]:
    """The entries of a cubin, by name.

    Raises:
      ValueError: for anything else than a cubin.
    """
    try:
        return _resources_of(cubin)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a damaged cubin: {error}") from error


def _resources_of(cubin: bytes) -> dict[str, Resources]:
    sections = _sections(cubin)
    by_name = {section.name: section for section in sections}
    symbols = list(_symbols(sections))
    reserved = _SYSTEM_BYTES if _RESERVED in by_name else 0
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for attribute, value in _attributes(by_name[".nv.info"].content if ".nv.info" in by_name else b""):
        if attribute in (_REGCOUNT, _FRAME_SIZE):
            symbol, number = struct.unpack("<II", value)
            (registers if attribute == _REGCOUNT else frames)[symbols[symbol]] = number
    found: dict[str, Resources] = {}
    for section in sections:
        entry = section.name.removeprefix(".nv.info.")
        if entry != section.name:
            shared = by_name.get(f".nv.shared.{entry}")
            found[entry] = Resources(
                registers=registers.get(entry, 0),
                local_bytes=frames.get(entry, 0),
                shared_bytes=max(shared.size - reserved, 0) if shared else 0,
                parameter_bytes=_parameter_bytes(section.content),
            )
    return found


def _sections(elf: bytes) -> list[_Section]:
    if not is_cubin(elf):
        raise ValueError("not a cubin")
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_bytes, count, names_at = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + entry_bytes * n) for n in range(count)]
    names = headers[names_at][4]
    return [
        _Section(_text(elf, names + name), type_, elf[at : at + size], size, link)
        for name, type_, _, _, at, size, link, _, _, _ in headers
    ]


def _symbols(sections: list[_Section]) -> Iterator[str]:
    for table in sections:
        if table.type == _SYMTAB:
            names = sections[table.link].content
            yield from (_text(names, name) for name, *_ in struct.iter_unpack("<IBBHQQ", table.content))


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(content):
        format_, attribute, value = struct.unpack_from("<BBH", content, at)
        at += 4
        size = value if format_ == _SIZED else 0
        yield attribute, content[at : at + size] if size else struct.pack("<H", value)
        at += size


def _parameter_bytes(content: bytes) -> int:
    """Said twice: by itself, or behind where the parameters lie."""
    for attribute, value in _attributes(content):
        if attribute == _CBANK_PARAM_SIZE:
            return struct.unpack("<H", value)[0]
        if attribute == _PARAM_CBANK and len(value) == 8:
            return struct.unpack("<IHH", value)[2]
    return 0


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()
