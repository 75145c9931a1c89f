"""Hand-written kernels for tests of the runtime, compiled by g++: no part of the compiler is needed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tf_stitch.runtime import paths

_TEMPLATE = """
#include "abi.h"
extern "C" {{
{support}
static const int output_ranks[] = {{{ranks}}};
static const int forwards[] = {{{forwards}-1}};
static const char* const guard_texts[] = {{{guards}nullptr}};
static int shape(const StitchTensor* in, long long* symbols, long long* dims) {{ {shape} return 0; }}
static void run(const StitchTensor* in, void* const* out, const long long* symbols, const StitchHost* host) {{
  {run}
}}
extern const StitchKernel tf_stitch_kernel;
const StitchKernel tf_stitch_kernel = {{
    {abi}, {inputs}, {outputs}, {symbols}, {guard_count},
    output_ranks, forwards, "{name}", guard_texts, shape, run}};
}}
"""


@dataclass(frozen=True)
class Handmade:
    """A kernel. `shape` and `run` are bodies of functions over `in`, `symbols`, `dims`, `out` and `host`."""

    shape: str
    run: str
    inputs: int = 1
    ranks: tuple[int, ...] = (1,)
    symbols: int = 1
    forwards: tuple[tuple[int, int], ...] = ()
    guards: tuple[str, ...] = ()
    support: str = ""
    name: str = "handmade"
    abi: str = "TF_STITCH_ABI_VERSION"

    def source(self) -> str:
        return _TEMPLATE.format(
            support=self.support,
            ranks=", ".join(map(str, self.ranks)),
            forwards="".join(f"{i}, {o}, " for i, o in self.forwards),
            guards="".join(f'"{text}", ' for text in self.guards),
            shape=self.shape,
            run=self.run,
            abi=self.abi,
            inputs=self.inputs,
            outputs=len(self.ranks),
            symbols=self.symbols,
            guard_count=len(self.guards),
            name=self.name,
        )

    def build(self, directory: Path) -> Path:
        """Compiles the kernel to a shared library in `directory`."""
        number = len(list(directory.glob("kernel*.cc")))
        source = directory / f"kernel{number}.cc"
        library = directory / f"kernel{number}.so"
        source.write_text(self.source())
        command = ["g++", "-O2", "-shared", "-fPIC", "-I", paths.include_root(), source, "-o", library]
        subprocess.run(command, check=True)
        return library


def plus(constant: float) -> Handmade:
    """out = in + constant, for a vector of at least one and at most a million elements."""
    return Handmade(
        shape="if (in[0].dims[0] > 1000000) return 1; dims[0] = symbols[0] = in[0].dims[0];",
        guards=("x has at most a million elements",),
        run=f"""
          const float* x = (const float*)in[0].data; float* y = (float*)out[0];
          for (long long i = 0; i < symbols[0]; ++i) y[i] = x[i] + (float){constant};""",
        name=f"plus_{constant}",
    )


# out0 = a + b; out1 = whether out0 was computed in the buffer of a (1), of b (2) or in its own (0).
ADD_AND_TELL = Handmade(
    inputs=2,
    ranks=(1, 0),
    forwards=((0, 0), (1, 0)),
    shape="dims[0] = symbols[0] = in[0].dims[0];",
    run="""
      const float* a = (const float*)in[0].data; const float* b = (const float*)in[1].data;
      float* y = (float*)out[0];
      *(long long*)out[1] = y == a ? 1 : y == b ? 2 : 0;
      for (long long i = 0; i < symbols[0]; ++i) y[i] = a[i] + b[i];""",
)

# [r, c] -> the sums of the rows and the doubled elements, in a parallel loop over the rows.
ROW_SUM_AND_DOUBLE = Handmade(
    ranks=(1, 2),
    symbols=2,
    shape="symbols[0] = in[0].dims[0]; symbols[1] = in[0].dims[1];"
    "dims[0] = symbols[0]; dims[1] = symbols[0]; dims[2] = symbols[1];",
    support="""
      struct Rows { const float* x; float* sum; float* twice; long long columns; };
      static void rows(void* argument, long long begin, long long end) {
        Rows* r = (Rows*)argument;
        for (long long i = begin; i < end; ++i) {
          float sum = 0;
          for (long long j = 0; j < r->columns; ++j) {
            sum += r->x[i * r->columns + j];
            r->twice[i * r->columns + j] = 2 * r->x[i * r->columns + j];
          }
          r->sum[i] = sum;
        }
      }""",
    run="""
      Rows r = {(const float*)in[0].data, (float*)out[0], (float*)out[1], symbols[1]};
      host->parallel_for(host->context, symbols[0], 1000, rows, &r);""",
)

# x -> for each element how often a task visited it, the thread that did, and that thread's MXCSR register.
VISITS = Handmade(
    ranks=(1, 1, 1),
    shape="dims[0] = dims[1] = dims[2] = symbols[0] = in[0].dims[0];",
    support="""
      extern long syscall(long, ...);
      struct Visits { int* count; int* thread; int* mxcsr; };
      static void visit(void* argument, long long begin, long long end) {
        Visits* v = (Visits*)argument;
        for (long long i = begin; i < end; ++i) {
          __atomic_fetch_add(&v->count[i], 1, __ATOMIC_RELAXED);
          v->thread[i] = syscall(186);  // gettid
          v->mxcsr[i] = __builtin_ia32_stmxcsr();
          for (volatile int spin = 0; spin < 5000; ++spin) {}
        }
      }""",
    run="""
      Visits v = {(int*)out[0], (int*)out[1], (int*)out[2]};
      for (long long i = 0; i < symbols[0]; ++i) v.count[i] = 0;
      host->parallel_for(host->context, symbols[0], 5000, visit, &v);""",
)

# x -> [misalignment of scratch over many sizes, whether slots are apart, whether a slot that fits stays put].
SCRATCH = Handmade(
    shape="dims[0] = 3; symbols[0] = 0;",
    run="""
      long long* result = (long long*)out[0];
      result[0] = 0;
      for (long long bytes = 1; bytes < 3000000; bytes = bytes * 3 + 1) {
        char* p = (char*)host->scratch(0, bytes); char* q = (char*)host->scratch(1, bytes);
        p[0] = p[bytes - 1] = q[0] = q[bytes - 1] = 1;
        result[0] |= ((long long)p | (long long)q) % 64;
      }
      result[1] = host->scratch(0, 64) != host->scratch(1, 64);
      result[2] = host->scratch(0, 64) == host->scratch(0, 128);""",
)
