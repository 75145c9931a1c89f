from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tf_stitch.errors import UsageError
from tf_stitch.plan import target as target_module
from tf_stitch.plan.target import Target


def test_this_cpu_is_described_in_full() -> None:
    target = Target.this_cpu()
    assert target.name
    assert target.machine == platform.machine()
    assert target.vector_bytes in (16, 32, 64)
    assert 4096 < target.l1_bytes < target.l2_bytes
    assert target.l3_bytes > 0
    assert target.threads >= 1


@pytest.mark.parametrize(
    ("name", "vector_bytes", "has", "lacks"),
    [
        ("x86-64", 16, set(), {"sse3"}),
        ("x86-64-v2", 16, {"sse4.2"}, {"avx"}),
        ("x86-64-v3", 32, {"avx2", "fma", "f16c"}, {"avx512f"}),
        ("x86-64-v4", 64, {"avx512vl", "avx2"}, {"avx512bf16"}),
        ("aarch64", 16, {"asimd"}, {"avx2"}),
    ],
)
def test_baselines(name: str, vector_bytes: int, has: set[str], lacks: set[str]) -> None:
    target = Target.baseline(name)
    assert target == Target.baseline(name)
    assert target.vector_bytes == vector_bytes
    assert has <= target.features
    assert not lacks & target.features


def test_requirements_are_what_the_compiler_may_use() -> None:
    target = Target.baseline("x86-64-v3")
    assert target.requires == "x86_64,avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,popcnt,sse3,sse4.1,sse4.2,ssse3"
    flags = target.compiler_flags
    assert flags == ("-march=x86-64", *(f"-m{feature}" for feature in target.requires.split(",")[1:]))
    assert Target.baseline("aarch64").requires == "aarch64,asimd"


def test_native_is_this_cpu() -> None:
    assert Target.baseline("native") == Target.this_cpu()


def test_an_unknown_baseline_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"x86-64-v5.*native, x86-64, x86-64-v2.*aarch64"):
        Target.baseline("x86-64-v5")


@pytest.mark.parametrize(
    ("flags", "isa"),
    [
        ("fpu sse2", "x86-64"),
        ("pni ssse3 sse4_1 sse4_2 popcnt avx", "x86-64-v2"),
        ("pni ssse3 sse4_1 sse4_2 popcnt avx avx2 bmi1 bmi2 f16c fma abm movbe", "x86-64-v3"),
        ("pni ssse3 sse4_1 sse4_2 popcnt avx avx2 bmi1 bmi2 f16c fma abm movbe avx512f", "x86-64-v3"),
    ],
)
def test_this_cpu_is_the_highest_level_it_reaches_in_full(
    flags: str, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_module.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(target_module, "_cpuinfo_fields", lambda: {"flags": flags, "model name": "A CPU"})
    assert Target.this_cpu().isa == isa
    assert Target.this_cpu().name == "A CPU"


def test_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(target_module, "_cpuinfo_fields", lambda: {"processor": "0", "Features": "fp asimd"})
    target = Target.this_cpu()
    assert (target.isa, target.vector_bytes, target.march) == ("aarch64", 16, "armv8-a")


def test_a_foreign_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module.platform, "machine", lambda: "riscv64")
    with pytest.raises(UsageError, match="riscv64"):
        Target.this_cpu()


def test_a_machine_that_tells_nothing_gets_typical_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "Path", lambda _: Path("/nonexistent"))
    assert Target.this_cpu().l1_bytes == 32 * 1024


def test_needs_no_tensorflow() -> None:
    code = "import sys, tf_stitch.toolchain.host, tf_stitch.plan.target; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
