"""The `artefact` attr of StitchOp: a kernel's shared library behind a header with its checksum.

Read by ``kernels/kernel_cache.cc``, which must agree on the layout: 8 bytes of magic, the CRC-32 of the
library in 4 little-endian bytes, the library.
"""

from __future__ import annotations

import zlib

MAGIC = b"STITCH01"


def pack(library: bytes) -> bytes:
    """The artefact that carries `library`, the bytes of a kernel's .so file."""
    return MAGIC + zlib.crc32(library).to_bytes(4, "little") + library


def unpack(artefact: bytes) -> bytes:
    """The library in an artefact.

    Raises:
      ValueError: when the header or the checksum is wrong.
    """
    header = len(MAGIC) + 4
    library = artefact[header:]
    if artefact[:header] != MAGIC + zlib.crc32(library).to_bytes(4, "little"):
        raise ValueError("not a tf_stitch artefact, or a corrupted one")
    return library
