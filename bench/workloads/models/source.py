"""A part of a package, without the rest of it and what that would import."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_source(path: Path, package: str = "") -> ModuleType:
    """The module of a file; `package` is what its relative imports start from."""
    name = f"{package}.{path.stem}" if package else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in(*names: str) -> None:
    """Empty modules, parents first, for packages that a model's package imports and the model never calls."""
    for name in names:
        sys.modules[name] = ModuleType(name)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
