#!/usr/bin/env python3
"""An nvcc for PyCUDA in tests: what it writes as a cubin is a module of the emulator, for the driver double.

nvcc.py --cubin [-arch sm_80] [-D... -I...] kernel.cu        writes kernel.cubin, as nvcc does
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.emulator import building


def main(arguments: list[str]) -> int:
    sources = [Path(a) for a in arguments if a.endswith(".cu")]
    if "--version" in arguments:
        print(
            "nvcc: a stand-in for tests, which compiles for the emulator\nCuda compilation tools, release 13.0, V13.0.0"
        )
        return 0
    text = sources[0].read_text(encoding="utf-8")
    if "--preprocess" in arguments:
        print(text)
        return 0
    kind = next(a[2:] for a in arguments if a in {"--cubin", "--ptx", "--fatbin"})
    options = [a for a in arguments if a.startswith(("-D", "-I"))]
    try:
        module = building.build(text, "plain", options)
    except building.CompilationFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    shutil.copy(module, sources[0].with_suffix(f".{kind}"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
