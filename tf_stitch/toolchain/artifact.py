"""Source and Artifact: a kernel as text and as a shared library; Toolchain: what turns one into the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tf_stitch.errors import BuildError
    from tf_stitch.toolchain.cubin import Resources


@dataclass(frozen=True)
class Source:
    """One kernel's C++ text. `name` is for people (file names, dumps); equal text is one kernel."""

    name: str
    text: str


@dataclass(frozen=True)
class DeviceCode:
    """CUDA C++ of one kernel, and what to compile it to: "sm_80" for a cubin, "compute_80" for PTX."""

    code: str
    text: str


@dataclass(frozen=True)
class CudaSource(Source):
    """A kernel for GPUs. `text` is its device code, for people.

    host: C++ of the library that carries it. It finds the n-th of `images`, compiled, as the array `image_<n>`.
    """

    host: str
    images: tuple[DeviceCode, ...]


@dataclass(frozen=True)
class Artifact:
    """A built kernel.

    key: hex content hash over source, prelude, compiler identity, flags and ABI version.
    path: the shared library in the cache.
    requires: CPU features it needs, comma-separated, in the spelling of __builtin_cpu_supports ("avx2,fma").
    compile_seconds: CPU seconds of the compiler; 0.0 when it came from the cache.
    resources: of a GPU's kernel: what its entries need, by architecture ("sm_80") and entry.
    """

    key: str
    path: Path
    requires: str
    compile_seconds: float
    resources: Mapping[str, Mapping[str, Resources]] = field(default_factory=dict[str, "Mapping[str, Resources]"])

    def content(self) -> bytes:
        return self.path.read_bytes()


class Toolchain(Protocol):
    """HostToolchain and CudaToolchain are two; tests and `explain` have others."""

    def build(self, sources: Sequence[Source]) -> list[Artifact | BuildError]:
        """Each source's library, or why there is none, in the order of `sources`."""
        ...
