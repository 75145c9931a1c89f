"""Which compiler is the default: `python -m tf_stitch.toolchain.measure` reproduces these figures.

`reference_kernel.cpp` (three kernels in one file), f32 512×768, one thread of an AMD EPYC (Zen 4, 2 cores),
g++ 12.2 and the clang 22.1 of ziglang 0.17.1, interleaved, best of many:

                        compile, CPU s    layer norm+GELU    softmax    LSTM, ms
    x86-64-v4   clang        .21               .180            .125       .128
                g++          .35               .194            .150       .154
    x86-64-v3   clang        .20               .230            .201       .203
                g++          .31               .221            .181       .214
    x86-64-v2   clang        .21               .541            .516       .587
                g++          .30               .544            .464       .533

clang takes two thirds of the time to compile, and its kernels are 15 % faster with AVX-512, 3 % slower with
AVX2, 7 % slower with SSE (geometric means). Nine generated kernels (norms, softmaxes, GELU, LSTM) were in sum
built in .75 s against .83, and ran 8 % faster on x86-64-v4, as fast within 2 % on -v3 and -v2, with results
equal to the bit. So clang comes first: the wheel's before the system's, whose version may be any.

One generated kernel's CPU seconds (clang / g++): starting and linking .026 / .022, the prelude .020 / .016,
its own code .02 to .06. What was tried to save more, and why it is not done:

- A precompiled header saves .018 / .010 a kernel. It costs .044 / .090 once, 5 MB with g++, and one more
  cache that must be checked against headers and options.
- -O2 saves g++ a quarter, and its softmax gets a fifth slower. clang is at -O1: -O2 and -O3 took 5 to 33 % longer
  (33 % for 60 optimizer updates in one kernel), and nine kernels ran alike within 1 %.
- -mtune for this CPU, unrolling more or less, no auto-vectorising: within the noise in both columns.
- `zig cc` is the same clang behind a driver with a cache of its own: .12 s the first time.
- Another linker: the time is that of starting it, 3 to 8 ms.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tf_stitch.plan.target import Target
from tf_stitch.toolchain.compilers import LIBRARY, SOURCE, Compiler, environment, find_compilers
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.process import Runner

REFERENCE = Path(__file__).with_name("reference_kernel.cpp")
FUNCTIONS = ("layer_norm_gelu", "softmax", "lstm")
_ROWS, _COLUMNS = 512, 768


@dataclass
class Figures:
    """compile: CPU seconds of each build. run: milliseconds of each call, by function."""

    compiler: Compiler
    library: Path = Path()
    compile: list[float] = field(default_factory=list[float])
    run: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


def measure(target: Target, compilers: list[Compiler], repeats: int, options: list[str]) -> list[Figures]:
    """The figures of each compiler for the reference kernel; `options` go to each compiler besides ours.

    Raises:
      RuntimeError: when one does not compile it.
    """
    figures = [Figures(compiler) for compiler in compilers]
    with tempfile.TemporaryDirectory() as directory:
        # Interleaved, so that all compilers meet the same load on the machine.
        for repeat in range(repeats):
            for number, each in enumerate(figures):
                workspace = Path(directory) / f"{repeat}-{number}"
                workspace.mkdir()
                each.compile.append(_compile(each.compiler, target, workspace, options))
                each.library = workspace / LIBRARY
        loaded = [ctypes.CDLL(str(each.library)) for each in figures]
        x = np.random.default_rng(0).standard_normal((_ROWS, _COLUMNS), np.float32)
        y = np.empty_like(x)
        for _ in range(20 * repeats):
            for function in FUNCTIONS:
                for each, library in zip(figures, loaded, strict=True):
                    each.run.setdefault(function, []).append(_call(library, function, x.ctypes.data, y.ctypes.data))
    return figures


def _compile(compiler: Compiler, target: Target, workspace: Path, options: list[str]) -> float:
    (workspace / SOURCE).write_text(REFERENCE.read_text(encoding="utf-8"), encoding="utf-8")
    commands = compiler.build_commands(target, (*Headers.find().flags(), *options))
    seconds = 0.0
    for command in commands:
        outcome = Runner().run(command, cwd=workspace, environment=environment(workspace), timeout=60)
        if not outcome.ok:
            raise RuntimeError(f"{command}: {outcome.output}")
        seconds += outcome.cpu_seconds
    return seconds


def _call(library: ctypes.CDLL, function: str, x: int, y: int) -> float:
    sizes = (ctypes.c_longlong(_ROWS), ctypes.c_longlong(_COLUMNS))
    start = time.perf_counter()
    library[function](ctypes.c_void_p(x), ctypes.c_void_p(y), *sizes)
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tf_stitch.toolchain.measure",
        description="Compiles and runs a reference kernel with every compiler that is here.",
    )
    parser.add_argument("--isa", default="native", help="CPU baseline, say x86-64-v3")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--options", default="", help="more options for the compilers, say --options=-O2")
    arguments = parser.parse_args()
    target = Target.baseline(arguments.isa)
    figures = measure(target, list(find_compilers(target)), arguments.repeats, arguments.options.split())
    print(f"{target.name} ({target.isa})")
    print(f"{'':40}{'compile s':>18}" + "".join(f"{name + ' ms':>20}" for name in FUNCTIONS))
    for each in figures:
        cost = f"{min(each.compile):.3f} ({statistics.median(each.compile):.3f})"
        times = "".join(f"{min(each.run[name]):>20.3f}" for name in FUNCTIONS)
        print(f"{each.compiler.version[:39]:40}{cost:>18}{times}")


if __name__ == "__main__":
    main()
