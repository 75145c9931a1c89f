"""Models that several tests look at, and the command line in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli import models
from tf_stitch.cli import cli


@dataclass(frozen=True)
class Outcome:
    """What one command did."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def tf_stitch(*arguments: object) -> Outcome:
    """Runs `tf-stitch ARGUMENTS`; an exception that is no exit is passed on."""
    result = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="tf-stitch", catch_exceptions=False)
    return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="session")
def block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.Block(), tmp_path_factory.mktemp("models") / "block")


@pytest.fixture(scope="session")
def other_block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.Block(1.01), tmp_path_factory.mktemp("models") / "other")


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.Reader(), tmp_path_factory.mktemp("models") / "reader")


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.Product(), tmp_path_factory.mktemp("models") / "product")


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.Words(), tmp_path_factory.mktemp("models") / "words")


@pytest.fixture(scope="session")
def stitched(block: Path) -> Path:
    """The block, converted by the command."""
    path = block.parent / "stitched"
    assert tf_stitch("convert", block, path).code == 0
    return path
