"""Where compilers of CUDA C++ are looked for, and in which order they come."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tf_stitch.toolchain import device_compilers
from tf_stitch.toolchain.device_compilers import DeviceCompiler, find_device_compilers, find_nvcc, find_nvrtc


def touch(path: Path, *, runs: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755 if runs else 0o644)
    return path


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any of it."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(device_compilers, "_toolkits", list)
    monkeypatch.setattr(device_compilers, "_wheel_directories", list)
    monkeypatch.setattr(device_compilers, "_known_to_the_loader", list)


def test_nothing_is_there() -> None:
    assert find_nvcc() is None
    assert find_nvrtc() == []
    assert list(find_device_compilers()) == []


def test_nvrtc_of_wheels_comes_first_and_that_of_cuda_12_before_13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = touch(tmp_path / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12")
    new = touch(tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13")
    touch(tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc-builtins.so.13.0")
    toolkit = touch(tmp_path / "toolkit" / "lib64" / "libnvrtc.so.12")
    (tmp_path / "toolkit" / "lib64" / "libnvrtc.so").symlink_to(toolkit)
    monkeypatch.setattr(device_compilers, "_wheel_directories", lambda: [old.parents[1], new.parents[1]])
    monkeypatch.setattr(device_compilers, "_toolkits", lambda: [tmp_path / "toolkit"])
    monkeypatch.setattr(device_compilers, "_known_to_the_loader", lambda: [toolkit, tmp_path / "gone.so.12"])
    assert find_nvrtc() == [old, new, toolkit]


def test_nvcc_in_path_comes_before_that_of_a_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_compilers, "_toolkits", lambda: [tmp_path / "toolkit"])
    assert find_nvcc() is None
    of_toolkit = touch(tmp_path / "toolkit" / "bin" / "nvcc", runs=True)
    assert find_nvcc() == str(of_toolkit)
    in_path = touch(tmp_path / "bin" / "nvcc", runs=True)
    assert find_nvcc() == str(in_path)


@pytest.mark.parametrize("answer", ["exit 1", "echo no JSON", "echo '{}'", "kill -SEGV $$"])
def test_what_does_not_answer_is_none(answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "compiler"
    script.write_text(f"#!/bin/sh\n{answer}\n")
    script.chmod(0o755)
    monkeypatch.setattr(device_compilers, "_candidates", lambda: iter([("odd", (str(script),))]))
    assert list(find_device_compilers()) == []


def test_of_two_that_are_the_same_the_first_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, tuple[str, ...]]] = []
    for name, version in (("a", "1.0"), ("b", "1.0"), ("c", "2.0")):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\necho a warning\necho \'{{"version": "{version}", "archs": ["sm_80"]}}\'\n')
        script.chmod(0o755)
        commands.append((name, (str(script),)))
    monkeypatch.setattr(device_compilers, "_candidates", lambda: iter(commands))
    assert [(c.name, c.version) for c in find_device_compilers()] == [("a", "1.0"), ("c", "2.0")]


def test_pycuda_comes_before_nvrtc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "bin" / "nvcc", runs=True)
    library = touch(tmp_path / "cuda_nvrtc" / "lib" / "libnvrtc.so.12")
    monkeypatch.setattr(device_compilers, "_is_installed", lambda _package: True)
    monkeypatch.setattr(device_compilers, "_wheel_directories", lambda: [library.parents[1]])
    candidates = list(device_compilers._candidates())
    assert [name for name, _ in candidates] == ["PyCUDA", "NVRTC"]
    assert all(command[0] == sys.executable for _, command in candidates)


def test_the_command_names_no_place_but_the_headers() -> None:
    compiler = DeviceCompiler("NVRTC", ("nvrtc",), "12.9", frozenset(("sm_80",)))
    command = compiler.build_command("sm_80", Path("/headers"))
    assert command[:4] == ["nvrtc", "sm_80", "kernel.cu", "kernel.image"]
    assert "--fmad=false" in command
    assert command[-1] == "-I/headers"
