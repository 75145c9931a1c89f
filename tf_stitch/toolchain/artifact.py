"""Source and Artifact: a kernel as text and as a shared library; Toolchain: what turns one into the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tf_stitch.errors import BuildError


@dataclass(frozen=True)
class Source:
    """One kernel's C++ text. `name` is for people (file names, dumps); equal text is one kernel."""

    name: str
    text: str


@dataclass(frozen=True)
class Artifact:
    """A built kernel.

    key: hex content hash over source, prelude, compiler identity, flags and ABI version.
    path: the shared library in the cache.
    requires: CPU features it needs, comma-separated, in the spelling of __builtin_cpu_supports ("avx2,fma").
    compile_seconds: CPU seconds of the compiler; 0.0 when it came from the cache.
    """

    key: str
    path: Path
    requires: str
    compile_seconds: float

    def content(self) -> bytes:
        return self.path.read_bytes()


class Toolchain(Protocol):
    """HostToolchain is one; tests and `explain` have others."""

    def build(self, sources: Sequence[Source]) -> list[Artifact | BuildError]:
        """Each source's library, or why there is none, in the order of `sources`."""
        ...
