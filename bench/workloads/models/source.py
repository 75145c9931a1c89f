"""One source file of a package, without the rest of the package and what that would import."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def load_source(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
