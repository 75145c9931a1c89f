"""Where the headers are that generated code includes, and what is in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch.runtime import paths

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Headers:
    """kernels: the directory of abi.h. prelude: the directory of the prelude for one kind of target."""

    kernels: Path
    prelude: Path

    @staticmethod
    def find(kind: str = "cpu") -> Headers:
        """Those of this installation.

        Raises:
          EnvironmentProblem: when they were never installed.
        """
        kernels = paths.include_root()
        return Headers(kernels, kernels / "prelude" / kind)

    def files(self) -> list[Path]:
        """Every header that generated code can reach."""
        return [self.kernels / "abi.h", *sorted(self.prelude.rglob("*.h"))]

    def digest(self) -> str:
        """A hash of all of them, names and contents."""
        digest = hashlib.sha256()
        for path in self.files():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(self.kernels).as_posix()} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()

    def flags(self) -> tuple[str, ...]:
        return (f"-I{self.kernels}", f"-I{self.prelude}")
