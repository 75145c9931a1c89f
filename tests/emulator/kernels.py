"""Kernels written by hand, one of each kind that is generated: what the emulator and the mutations are tested with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.emulator.emulated import Argument, Counters, Module, Scratch

_REDUCE = """\
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

// `slots` belong to this call alone.
__device__ __forceinline__ float block_sum(float v, float* slots) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  v = warp_sum(v);
  if (lane == 0) slots[warp] = v;
  __syncthreads();
  v = 0.0f;
  if (lane < blockDim.x / 32) v = slots[lane];
  return warp_sum(v);
}
"""

_GRID = """\
__device__ __forceinline__ void grid_barrier(unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(arrived, 1u) == gridDim.x - 1) {
      atomicExch(arrived, 0u);
    } else {
      while (*static_cast<volatile unsigned*>(arrived) != 0) __nanosleep(32);
    }
    __threadfence();
#ifdef TF_STITCH_EMULATOR
    stitch_emulator::stitch_emulator_grid_barrier();
#endif
  }
  __syncthreads();
}
"""

# A block a row: the row lies in shared memory, as other threads read it than wrote it.
LAYER_NORM = (
    _REDUCE
    + """
extern "C" __global__ void __launch_bounds__(128) layer_norm(const float* __restrict__ x,
                                                             const float* __restrict__ gamma,
                                                             const float* __restrict__ beta, float* __restrict__ y,
                                                             long long n, float epsilon) {
  extern __shared__ float row[];
  __shared__ float slots[2][32];
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  float sum = 0.0f;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) {
    const float value = x[i];
    row[n - 1 - i] = value;
    sum += value;
  }
  const float mean = block_sum(sum, slots[0]) / n;
  float squares = 0.0f;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) {
    const float difference = row[i] - mean;
    squares += difference * difference;
  }
  const float scale = rsqrtf(block_sum(squares, slots[1]) / n + epsilon);
  for (long long i = threadIdx.x; i < n; i += blockDim.x) {
    y[i] = (row[n - 1 - i] - mean) * scale * __ldg(gamma + i) + __ldg(beta + i);
  }
}
"""
)

# A warp a row; what a lane needs of another goes through shared memory that is the warp's own.
SOFTMAX = """\
extern "C" __global__ void softmax(const float* x, float* y, long long rows, long long n) {
  __shared__ float totals[4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long row = blockIdx.x * 4ll + warp;
  if (row >= rows) return;
  x += row * n;
  y += row * n;
  float most = -3.4e38f;
  for (long long i = lane; i < n; i += 32) most = fmaxf(most, x[i]);
  for (int o = 16; o > 0; o >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, o));
  float sum = 0.0f;
  for (long long i = lane; i < n; i += 32) sum += expf(x[i] - most);
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, o);
  if (lane == 0) totals[warp] = sum;
  __syncwarp();
  for (long long i = lane; i < n; i += 32) y[i] = expf(x[i] - most) / totals[warp];
}
"""

# Two passes with a barrier of the grid between them; what a thread leaves in scratch all blocks read.
GLOBAL_NORM = (
    _REDUCE
    + _GRID
    + """
extern "C" __global__ void global_norm(const float* x, float* y, float* parts, unsigned* arrived, long long n) {
  __shared__ float slots[32];
  float sum = 0.0f;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x) {
    sum += x[i] * x[i];
  }
  parts[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  grid_barrier(arrived);
  sum = 0.0f;
  for (int i = threadIdx.x; i < gridDim.x * blockDim.x; i += blockDim.x) sum += __ldcg(parts + i);
  const float scale = rsqrtf(block_sum(sum, slots));
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x) {
    y[i] = x[i] * scale;
  }
}
"""
)

# Sums down the rows: a tile of 32 columns, 4 rows of threads, whose partial sums are combined in order.
COLUMN_SUMS = """\
extern "C" __global__ void column_sums(const float* x, float* y, long long rows, long long columns) {
  __shared__ float partial[4][33];
  const int lane = threadIdx.x % 32, down = threadIdx.x / 32;
  const long long column = blockIdx.x * 32ll + lane;
  float sum = 0.0f;
  if (column < columns) {
    for (long long row = down; row < rows; row += 4) sum += x[row * columns + column];
  }
  partial[down][lane] = sum;
  __syncthreads();
  if (down == 0) {
    for (int n = 1; n < 4; ++n) sum += partial[n][lane];
    if (column < columns) y[column] = sum;
  }
}
"""


@dataclass(frozen=True)
class Case:
    """A kernel with a launch, and what it must give: `expected`, in the argument at `output`."""

    text: str
    name: str
    grid: int
    block: int
    shared_bytes: int
    arguments: Callable[[], list[Argument]]
    output: int
    expected: np.ndarray
    resident_blocks: int | None = None

    def run(self, module: Module, seed: int | None = None) -> Counters:
        """Launches it. Raises what the emulator finds, and WrongNumbers."""
        arguments = self.arguments()
        counters = module.launch(
            self.name, self.grid, self.block, self.shared_bytes, arguments,
            seed=seed, resident_blocks=self.resident_blocks,
        )  # fmt: skip
        result = arguments[self.output]
        if not np.allclose(result, self.expected, rtol=1e-5, atol=1e-5):
            raise WrongNumbers(
                f"{self.name}: {np.sum(~np.isclose(result, self.expected))} of {self.expected.size} elements"
            )
        return counters


class WrongNumbers(AssertionError):
    """A kernel ran to its end, with another result."""


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def layer_norm(rows: int = 3, n: int = 333) -> Case:
    x, gamma, beta = _random(rows, n), _random(n), _random(n + 1)[:n].copy()
    exact = x.astype(np.float64)
    centred = exact - exact.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * gamma + beta

    def arguments() -> list[Argument]:
        return [x.copy(), gamma.copy(), beta.copy(), np.zeros_like(x), n, 1e-5]

    return Case(LAYER_NORM, "layer_norm", rows, 128, 4 * n, arguments, 3, expected)


def softmax(rows: int = 6, n: int = 77) -> Case:
    x = _random(rows, n)
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True)
    return Case(
        SOFTMAX, "softmax", -(-rows // 4), 128, 0, lambda: [x.copy(), np.zeros_like(x), rows, n], 1, expected
    )  # fmt: skip


def global_norm(n: int = 1023, blocks: int = 4, resident_blocks: int | None = None) -> Case:
    x = _random(n)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).sum())

    def arguments() -> list[Argument]:
        return [x.copy(), np.zeros_like(x), Scratch(4 * 64 * blocks), np.zeros(1, np.uint32), n]

    return Case(GLOBAL_NORM, "global_norm", blocks, 64, 0, arguments, 1, expected, resident_blocks)


def column_sums(rows: int = 37, columns: int = 45) -> Case:
    x = _random(rows, columns)
    expected = x.astype(np.float64).sum(0)
    return Case(
        COLUMN_SUMS, "column_sums", -(-columns // 32), 128, 0,
        lambda: [x.copy(), np.zeros(columns, np.float32), rows, columns], 1, expected,
    )  # fmt: skip


def every_case() -> list[Case]:
    return [layer_norm(), softmax(), global_norm(), column_sums()]
