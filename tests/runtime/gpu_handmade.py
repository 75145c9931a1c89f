"""Kernels for GPUs, written by hand: what the launch code, the toolchain and the host part are tested with."""

from __future__ import annotations

from tf_stitch.ir.types import Dim, DType, TensorType
from tf_stitch.lower.gpu_launch import Condition, Larger, Launch, Parameter, Variant, ceil_div, times
from tf_stitch.lower.kernel import Guard, Kernel, SymbolSource
from tf_stitch.render.cuda_host import DeviceText

B, W, N = Dim.symbol("B"), Dim.symbol("W"), Dim.symbol("N")
NOTHING = Dim(0)

# y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta, over rows of W elements: a warp for short rows, else a block.
LAYER_NORM = """
#include "prelude/cuda/core.h"
namespace stitch {

STITCH_DEVICE f32 sum_of_warp(f32 x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

extern "C" __global__ void __launch_bounds__(128, 4) layer_norm_warp(
    const f32* x, const f32* gamma, const f32* beta, f32* y, i64 B, i64 W) {
  const i64 row = i64(blockIdx.x) * 4 + threadIdx.x / 32;
  if (row >= B) return;
  const int lane = threadIdx.x % 32;
  f32 sum = 0.0f, squares = 0.0f;
  for (i64 i = lane; i < W; i += 32) sum += load_constant(x + row * W + i);
  const f32 mean = sum_of_warp(sum) / f32(W);
  for (i64 i = lane; i < W; i += 32) {
    const f32 d = load_constant(x + row * W + i) - mean;
    squares += d * d;
  }
  const f32 scale = 1.0f / sqrt(sum_of_warp(squares) / f32(W) + 1e-5f);
  for (i64 i = lane; i < W; i += 32) {
    const f32 d = load_constant(x + row * W + i) - mean;
    store(y + row * W + i, d * scale * load_constant(gamma + i) + load_constant(beta + i));
  }
}

STITCH_DEVICE f32 sum_of_block(f32 x, f32* partial) {
  x = sum_of_warp(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0.0f;
  for (int i = 0; i < int(blockDim.x) / 32; ++i) x += partial[i];
  return x;
}

extern "C" __global__ void __launch_bounds__(256, 2) layer_norm_block(
    const f32* x, const f32* gamma, const f32* beta, f32* y, i64 B, i64 W) {
  __shared__ f32 partial[8];
  extern __shared__ f32 tile[];
  const i64 row = blockIdx.x;
  f32 sum = 0.0f, squares = 0.0f;
  for (i64 i = threadIdx.x; i < W; i += blockDim.x) {
    tile[i] = load_constant(x + row * W + i);
    sum += tile[i];
  }
  const f32 mean = sum_of_block(sum, partial) / f32(W);
  for (i64 i = threadIdx.x; i < W; i += blockDim.x) squares += (tile[i] - mean) * (tile[i] - mean);
  const f32 scale = 1.0f / sqrt(sum_of_block(squares, partial) / f32(W) + 1e-5f);
  for (i64 i = threadIdx.x; i < W; i += blockDim.x) {
    store(y + row * W + i, (tile[i] - mean) * scale * load_constant(gamma + i) + load_constant(beta + i));
  }
}
}  // namespace stitch
using namespace stitch;
"""


def layer_norm() -> tuple[Kernel, Launch]:
    """x [B, W], gamma [W], beta [W] -> y [B, W]."""
    x, row = TensorType(DType.F32, (B, W)), TensorType(DType.F32, (W,))
    kernel = Kernel(
        name="layer_norm",
        inputs=(x, row, row),
        outputs=(x,),
        symbols=(SymbolSource("B", 0, 0, Dim(1)), SymbolSource("W", 0, 1, Dim(1))),
        guards=tuple(Guard(n, 0, W, f"dim 0 of input {n} is W") for n in (1, 2)),
        scratch=(),
        nests=(),
        forwards=((0, 0),),
    )
    by_warp = Variant(
        entry="layer_norm_warp",
        conditions=(Condition(W, Dim(256)),),
        units=ceil_div(B, 4),
        resident=False,
        blocks=4,
        threads=128,
        shared=NOTHING,
        scratch=NOTHING,
    )
    by_block = Variant(
        entry="layer_norm_block",
        conditions=(),
        units=B,
        resident=False,
        blocks=2,
        threads=256,
        shared=Dim(4) * W,
        scratch=NOTHING,
    )
    inputs = [(Parameter.INPUT, number) for number in range(3)]
    symbols = [(Parameter.SYMBOL, number) for number in range(2)]
    return kernel, Launch((by_warp, by_block), (*inputs, (Parameter.OUTPUT, 0), *symbols))


# y = x / sqrt(sum x * x), over all N elements: each block writes its part of the sum, and waits for the others.
NORMALIZED = """
#include "prelude/cuda/core.h"
namespace stitch {

// For one barrier in a launch: the last block to leave makes it all zero again.
struct Barrier {
  unsigned arrived, left;
};

STITCH_DEVICE void wait_for_all(Barrier* barrier) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(&barrier->arrived, 1u);
    while (atomicAdd(&barrier->arrived, 0u) != gridDim.x) {}
    __threadfence();
    if (atomicAdd(&barrier->left, 1u) == gridDim.x - 1) {
      barrier->left = 0;
      barrier->arrived = 0;
    }
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(128, 2) normalized(const f32* x, f32* y, char* scratch, Barrier* barrier,
                                                                i64 N) {
  __shared__ f32 squares[128];
  f32* partial = reinterpret_cast<f32*>(scratch);
  f32 sum = 0.0f;
  for (i64 i = blockIdx.x * 128 + threadIdx.x; i < N; i += gridDim.x * 128) sum += x[i] * x[i];
  squares[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0.0f;
    for (int i = 0; i < 128; ++i) sum += squares[i];
    partial[blockIdx.x] = sum;
  }
  wait_for_all(barrier);
  sum = 0.0f;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += load_fresh(partial + i);
  const f32 norm = sqrt(sum);
  for (i64 i = blockIdx.x * 128 + threadIdx.x; i < N; i += gridDim.x * 128) y[i] = x[i] / norm;
}
}  // namespace stitch
using namespace stitch;
"""


def normalized() -> tuple[Kernel, Launch]:
    """x [N] -> y [N]. Input 0 is not read: it is there so that numbers of inputs and of parameters differ."""
    x = TensorType(DType.F32, (N,))
    kernel = Kernel(
        name="normalized",
        inputs=(None, x),
        outputs=(x,),
        symbols=(SymbolSource("N", 1, 0, Dim(1)),),
        guards=(),
        scratch=(),
        nests=(),
        forwards=(),
    )
    only = Variant(
        entry="normalized",
        conditions=(),
        units=ceil_div(N, 128),
        resident=True,
        blocks=2,
        threads=128,
        shared=NOTHING,
        scratch=Larger(Dim(256), times(Dim(4), ceil_div(N, 128))),
    )
    parameters = (Parameter.INPUT, 1), (Parameter.OUTPUT, 0), (Parameter.SCRATCH, 0), (Parameter.BARRIER, 0)
    return kernel, Launch((only,), (*parameters, (Parameter.SYMBOL, 0)))


def devices(text: str, launch: Launch, *archs: str) -> list[DeviceText]:
    return [DeviceText(arch, text, launch) for arch in archs]
