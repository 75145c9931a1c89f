from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuning import models


@pytest.fixture(scope="session")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(tmp_path_factory.mktemp("models") / "layers")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for the records of this test alone."""
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("TF_STITCH_CACHE_DIR", str(root))
    return root
