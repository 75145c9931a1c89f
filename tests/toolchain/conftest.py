"""Compilers that misbehave, a cache of its own for every test, and headers that compile in no time."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tf_stitch.plan.target import Target
from tf_stitch.toolchain import once
from tf_stitch.toolchain.artifact import Artifact, Source
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.host import HostToolchain

REAL_COMPILER = shutil.which("g++") or shutil.which("clang++")
NOBODY = 65534
LEAST = Target.baseline("x86-64-v2" if platform.machine() == "x86_64" else "aarch64")
EXPORT = 'extern "C" __attribute__((visibility("default")))'

needs_compiler = pytest.mark.skipif(REAL_COMPILER is None, reason="no g++ or clang++ in PATH")


def answer(value: int, name: str = "") -> Source:
    """A library with one function, which tells it from others."""
    return Source(name or f"answer_{value}", f'#include "abi.h"\n{EXPORT} int answer() {{ return {value}; }}\n')


def call(artifact: object) -> int:
    """What the library answers. Loaded by its content, since the loader knows files by their path."""
    assert isinstance(artifact, Artifact), artifact
    with tempfile.NamedTemporaryFile(suffix=".so") as copy:
        copy.write(artifact.content())
        copy.flush()
        return int(ctypes.CDLL(copy.name).answer())


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("TF_STITCH_CACHE_MAX_BYTES", raising=False)
    monkeypatch.setenv("TF_STITCH_CACHE_DIR", str(tmp_path / "cache"))
    once.forget()


@pytest.fixture
def headers(tmp_path: Path) -> Headers:
    kernels = tmp_path / "kernels"
    (kernels / "prelude" / "cpu").mkdir(parents=True)
    (kernels / "abi.h").write_text("#pragma once\n#define TF_STITCH_ABI_VERSION 1\n")
    (kernels / "prelude" / "cpu" / "stitch.h").write_text("#pragma once\n")
    return Headers(kernels, kernels / "prelude" / "cpu")


@pytest.fixture
def cache() -> KernelCache:
    return KernelCache()


@pytest.fixture
def find(cache: KernelCache, headers: Headers) -> Callable[..., HostToolchain]:
    """HostToolchain.find with this test's cache and headers."""

    def find(target: Target | None = None, timeout: float = 30.0) -> HostToolchain:
        return HostToolchain.find(target or LEAST, timeout, cache, headers)

    return find


class FakeCompiler:
    """A shell script that says it is g++, notes each compile, and does what it is told to."""

    def __init__(self, directory: Path, name: str = "g++") -> None:
        self.directory = directory
        self.path = directory / name
        self.log = directory / f"{name}.log"
        directory.mkdir(parents=True, exist_ok=True)

    def does(self, script: str, version: str = "fake g++ 1.0") -> Path:
        self.path.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit 0; fi\n'
            f'echo $$ >> "{self.log}"\n{script}\n'
        )
        self.path.chmod(0o755)
        return self.path

    def compiles(self, **options: str) -> Path:
        return self.does(f'exec "{REAL_COMPILER}" "$@"', **options)

    @property
    def pids(self) -> list[int]:
        """Of the compiles that were started."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    """A compiler that CXX names; say what it `does`."""
    compiler = FakeCompiler(tmp_path / "bin")
    monkeypatch.setenv("CXX", str(compiler.path))
    return compiler


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory of a user for whom file permissions count: root can write anywhere."""
    directory = Path(tempfile.mkdtemp(prefix="tf_stitch-test-"))
    as_root = os.geteuid() == 0
    if as_root:
        os.chown(directory, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield directory
    finally:
        if as_root:
            os.seteuid(0)
        for path in (directory, *directory.rglob("*")):
            if path.is_dir():
                path.chmod(stat.S_IRWXU)
        shutil.rmtree(directory)
