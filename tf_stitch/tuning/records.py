"""Records: outcomes of races on disk, beside the kernels, so that a second conversion races nothing again.

    <root>/races/<kernel's key>/<hash>.json      hash: of the contest, the machine and the version of TensorFlow

A record is renamed into place, and carries a checksum: one that is damaged is no record. They are never needed, so
nothing here raises, and a directory that cannot be written is left alone. Whoever could forge one could cost us time,
and no answer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

from tf_stitch.toolchain.cache_dir import PRIVATE, configured_root, distrust
from tf_stitch.toolchain.once import warn_once
from tf_stitch.tuning.contest import Contest
from tf_stitch.tuning.race import Outcome

RACES = "races"
_LOG = logging.getLogger("tf_stitch.tuning")
_SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """An outcome, and the operands that it was measured with, in words."""

    sizes: str
    outcome: Outcome


class Records:
    """The records of one machine. Any number of processes and threads may use a directory at a time."""

    def __init__(self, machine: str, root: Path | None = None) -> None:
        """machine: in words, all that outcomes depend on beside the contest: CPU, threads, TensorFlow's version."""
        self.machine = machine
        self._root = root or configured_root()
        self._problem: str | None = None

    @property
    def exist(self) -> bool:
        """Whether there are any, of whatever machine."""
        return (self._root / RACES).is_dir()

    def lookup(self, contest: Contest) -> Outcome | None:
        """What the race gave; None where there was none, or its record is damaged."""
        record = self._read(self._path(contest))
        return None if record is None or record["nodes"] != contest.nodes else _outcome(record)

    def of_kernel(self, kernel: str, nodes: str) -> list[Record]:
        """All that is known of a kernel in place of these nodes, for whatever sizes."""
        found: list[Record] = []
        with suppress(OSError):
            for path in sorted((self._root / RACES / kernel).glob("*.json")):
                record = self._read(path)
                if record is not None and record["nodes"] == nodes and record["machine"] == self.machine:
                    found.append(Record(str(record["sizes"]), _outcome(record)))
        return found

    def store(self, contest: Contest, outcome: Outcome) -> None:
        self._problem = self._problem or distrust(self._root)
        if self._problem is not None:
            return
        content: dict[str, Any] = {
            "schema": _SCHEMA,
            "machine": self.machine,
            "nodes": contest.nodes,
            "sizes": contest.sizes,
            "outcome": asdict(outcome),
        }
        text = json.dumps(content | {"sha256": _checksum(content)}, indent=1)
        path = self._path(contest)
        try:
            path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as staging:
                staged = Path(staging) / path.name
                staged.write_text(text, encoding="utf-8")
                staged.replace(path)
        except OSError as error:
            self._problem = error.strerror or str(error)
            warn_once(_LOG, ("races", self._root), "outcomes of races are not kept in %s: %s", self._root, error)

    def _path(self, contest: Contest) -> Path:
        name = hashlib.sha256(f"{self.machine}\n{contest.key}".encode()).hexdigest()
        return self._root / RACES / contest.kernel / f"{name[:32]}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        """A record that is whole, else None."""
        try:
            content = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
            checksum = content.pop("sha256")
            if content["schema"] != _SCHEMA or checksum != _checksum(content):
                raise ValueError("its checksum is not the one it was stored with")
            _outcome(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _LOG.warning("record %s of a race is damaged (%s); racing again", path, error)
            return None
        return content


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _outcome(content: dict[str, Any]) -> Outcome:
    return Outcome(**{field.name: content["outcome"][field.name] for field in fields(Outcome)})
