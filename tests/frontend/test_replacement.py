"""A directory takes another's place, or the other stays: whatever interrupts it, and when."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tf_stitch.errors import StitchError
from tf_stitch.frontend.replacement import replacing, sweep

pytestmark = pytest.mark.faults


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    """A directory that says "old"."""
    path = tmp_path / "parent" / "a.b"
    path.mkdir(parents=True)
    (path / "word").write_text("old")
    return path


def replace(destination: Path) -> None:
    with replacing(destination) as new:
        new.mkdir()
        (new / "word").write_text("new")


def word(directory: Path) -> str:
    return (directory / "word").read_text()


def beside(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.parent.iterdir())


def test_takes_its_place(destination: Path) -> None:
    replace(destination)
    assert word(destination) == "new"
    assert beside(destination) == ["a.b"]


def test_where_there_is_nothing(tmp_path: Path) -> None:
    replace(tmp_path / "some" / "where")
    assert word(tmp_path / "some" / "where") == "new"
    assert beside(tmp_path / "some" / "where") == ["where"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2])
def test_interrupted_at_a_rename(destination: Path, number: int, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.replace
    renamed: list[Path] = []

    def interrupted(self: Path, target: Path) -> Path:
        renamed.append(self)
        if len(renamed) == number and moment == "before":
            raise KeyboardInterrupt
        moved = rename(self, target)
        if len(renamed) == number:
            raise KeyboardInterrupt
        return moved

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace(destination)
    assert word(destination) == ("new" if (number, moment) == (2, "after") else "old")
    assert beside(destination) == ["a.b"]


def test_what_cannot_be_put_back_is_kept(destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.replace

    def fails(self: Path, target: Path) -> Path:
        if self == destination:
            return rename(self, target)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(StitchError, match=r"kept in .*partial/old"):
        replace(destination)
    (left,) = beside(destination)
    assert word(destination.parent / left / "old") == "old"


def test_a_second_interrupt_loses_nothing(destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        if self == destination:
            return rename(self, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace(destination)
    monkeypatch.undo()
    assert not destination.exists()
    sweep(destination)
    assert word(destination) == "old"


KILLED = """
import os, signal, sys
from pathlib import Path
from tf_stitch.frontend.replacement import replacing
rename, calls = Path.replace, []
def killed(self, target):
    calls.append(self)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
Path.replace = killed
with replacing(Path(sys.argv[1])) as new:
    new.mkdir()
"""


@pytest.mark.parametrize("number", [1, 2])
def test_what_a_killed_writer_left_is_swept(destination: Path, number: int, caplog: pytest.LogCaptureFixture) -> None:
    subprocess.run([sys.executable, "-c", KILLED, destination, str(number)], check=False)
    assert len(beside(destination)) == (2 if number == 1 else 1)
    assert destination.exists() == (number == 1)
    with caplog.at_level(logging.WARNING, "tf_stitch"):
        sweep(destination)
    assert word(destination) == "old"
    assert beside(destination) == ["a.b"]
    assert caplog.text.count("brought back") == number - 1


def test_what_is_not_ours_to_sweep(destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [".a.b.partial", ".a.b.c.12345678.partial", ".axb.12345678.partial", "a.b.12345678.partial"]
    for name in (*others, ".a.b.12345678.partial"):
        (destination.parent / name).mkdir()
    (destination.parent / ".a.b.87654321.partial").symlink_to(destination)
    kept = [*others, ".a.b.87654321.partial", "a.b"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        sweep(destination)
    assert beside(destination) == sorted([*kept, ".a.b.12345678.partial"])
    sweep(destination)
    assert beside(destination) == sorted(kept)
    assert word(destination) == "old"


def test_a_writer_that_lives_is_left_alone(destination: Path) -> None:
    with replacing(destination) as new:
        new.mkdir()
        sweep(destination)
        assert new.is_dir()
        replace(destination)  # another's turn
        assert word(destination) == "new"
        (new / "word").write_text("newer")
    assert word(destination) == "newer"
    assert beside(destination) == ["a.b"]


def test_a_file_system_without_locks(destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    with replacing(destination) as new:
        new.mkdir()
        (new / "word").write_text("new")
        sweep(destination)  # which of them live nobody can tell
    assert word(destination) == "new"
    assert beside(destination) == ["a.b"]
