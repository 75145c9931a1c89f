"""What a kernel costs to compile, and that it compiles for machines that are not here."""

from __future__ import annotations

import importlib.util
import os
import resource
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.prelude.functions import UNARY
from tests.prelude.harness import BEGIN, FLAGS, PRELUDE, Variant, variants, zig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAYER_NORM_GELU = """
constexpr int L = kNative;
using P = Pack<f32, L>;

static inline P constant(f32 v) { return splat<f32, L>(v); }
static inline P gelu(P x) { return constant(0.5f) * x * (constant(1) + erf(x * constant(0.70710677f))); }

extern "C" void layer_norm_gelu(const f32* x, const f32* g, const f32* b, f32* y, i64 rows, i64 n) {
  for (i64 row = 0; row < rows; ++row, x += n, y += n) {
    P sum = constant(0), squares = constant(0);
    i64 i = 0;
    for (; i + L <= n; i += L) sum = sum + load<L>(x + i);
    if (i < n) sum = sum + load<L>(x + i, n - i);
    const P mean = splat<L>(reduce_add(sum) / splat<f32, 1>(f32(n)));
    for (i = 0; i + L <= n; i += L) squares = squares + square(load<L>(x + i) - mean);
    if (i < n) squares = squares + select(lanes_below<L>(n - i), square(load<L>(x + i, n - i) - mean), constant(0));
    const P scale = splat<L>(rsqrt(reduce_add(squares) / splat<f32, 1>(f32(n)) + splat<f32, 1>(1e-5f)));
    for (i = 0; i + L <= n; i += L)
      store(y + i, gelu((load<L>(x + i) - mean) * scale * load<L>(g + i) + load<L>(b + i)));
    if (i < n)
      store(y + i, gelu((load<L>(x + i, n - i) - mean) * scale * load<L>(g + i, n - i) + load<L>(b + i, n - i)), n - i);
  }
}
"""


@pytest.mark.parametrize("variant", variants(), ids=str)
def test_compile_time(variant: Variant, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Prints the CPU seconds of a typical kernel. The bound only catches what explodes: machines differ."""
    source = tmp_path / "kernel.cc"
    source.write_text(BEGIN + LAYER_NORM_GELU)
    command = [*variant.command, *FLAGS.split(), "-fPIC", f"-I{PRELUDE}"]
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "-c", str(source), "-o", os.devnull], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    record_property("cpu_seconds", best)
    print(f"{variant}: layer norm and GELU compile in {best:.3f} CPU seconds")
    assert best < 1.5


@pytest.mark.parametrize("variant", variants(), ids=str)
def test_no_calls_and_no_scalars_in_the_loops(variant: Variant, tmp_path: Path) -> None:
    source, assembly = tmp_path / "kernel.cc", tmp_path / "kernel.s"
    source.write_text(BEGIN + LAYER_NORM_GELU)
    command = [*variant.command, *FLAGS.split(), "-fPIC", f"-I{PRELUDE}", "-g0"]
    subprocess.run([*command, "-S", str(source), "-o", str(assembly)], check=True)
    text = assembly.read_text()
    calls = {line.split()[-1] for line in text.splitlines() if line.strip().startswith("call")}
    assert not {c for c in calls if "copy_bytes" not in c and "memcpy" not in c and "memmove" not in c}, calls
    assert text.count("vdivss") + text.count("\tdivss") <= 4  # the mean, the variance and 1 / sqrt


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang, to compile for AArch64")
@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "x86_64-linux-gnu"])
def test_other_machines_compile(target: str, tmp_path: Path) -> None:
    lines = [BEGIN, LAYER_NORM_GELU]
    for t in ("f32", "f64"):
        for lanes in (1, 16):
            lines += [
                f'extern "C" void {f.name}_{t}_{lanes}({t}* p) {{ store(p, {f.name}(load<{lanes}>(p))); }}\n'
                for f in UNARY
            ]
    for t in ("f16", "bf16", "boolean", "i32", "i64"):
        lines.append(f'extern "C" void copy_{t}({t}* p, i64 n) {{ store(p, load<16>(p + n, n), n); }}\n')
    source = tmp_path / "all.cc"
    source.write_text("".join(lines))
    flags = [*FLAGS.split(), f"-I{PRELUDE}", "-target", target, "-Wno-unused-command-line-argument"]
    subprocess.run([*zig(), *flags, "-c", str(source), "-o", str(tmp_path / "all.o")], check=True)
