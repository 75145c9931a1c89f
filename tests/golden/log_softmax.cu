// log_softmax: f32[d0, 96]
#include "prelude/cuda/core.h"
#include "prelude/cuda/block.h"
#include "prelude/cuda/math_exp.h"
namespace stitch {

// Where 96 * d0 is at most 2147418112.
extern "C" __global__ void __launch_bounds__(256, 4)
log_softmax_0(const f32* mul_in, f32* logsoftmax_out, i64 d0) {
  const int thread = threadIdx.x;
  // A row to 32 lanes of a warp; tiles in registers.
  const int lane = thread % 32;
  const i64 units = (d0 + 7) / 8;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int row = int(unit) * 8 + thread / 32;
    Pack<f32, 4> mul_in_tile;
    if (row < d0) {
      const f32* mul_in_at = mul_in + row * 96;
      f32* logsoftmax_out_at = logsoftmax_out + row * 96;
      const f32 mul = 2.0f;
      f32 logsoftmax_part = -__builtin_inff();
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> mul_in_pack = load<4>(mul_in_at + n);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          mul_in_tile.v[e] = mul_in_pack.v[e];
          const f32 mul_2 = mul * mul_in_pack.v[e];
          logsoftmax_part = max(logsoftmax_part, mul_2);
        }
      }
      const f32 logsoftmax = across<Largest, 32>(logsoftmax_part);
      f32 logsoftmax_4_part = 0.0f;
      if (const int n = lane * 4; n < 96) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 mul_2 = mul * mul_in_tile.v[e];
          const f32 logsoftmax_2 = mul_2 - logsoftmax;
          const f32 logsoftmax_3 = exp(logsoftmax_2);
          logsoftmax_4_part += logsoftmax_3;
        }
      }
      const f32 logsoftmax_4 = across<Sum, 32>(logsoftmax_4_part);
      const f32 logsoftmax_5 = log(logsoftmax_4);
      if (const int n = lane * 4; n < 96) {
        Pack<f32, 4> logsoftmax_out_pack;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 mul_2 = mul * mul_in_tile.v[e];
          const f32 logsoftmax_2 = mul_2 - logsoftmax;
          const f32 logsoftmax_6 = logsoftmax_2 - logsoftmax_5;
          logsoftmax_out_pack.v[e] = logsoftmax_6;
        }
        store(logsoftmax_out_at + n, logsoftmax_out_pack);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
log_softmax_1(const f32* mul_in, f32* logsoftmax_out, i64 d0) {
  const int thread = threadIdx.x;
  // A row to 32 lanes of a warp; tiles in registers.
  const int lane = thread % 32;
  const i64 units = (d0 + 7) / 8;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const i64 row = unit * 8 + thread / 32;
    Pack<f32, 4> mul_in_tile;
    if (row < d0) {
      const f32* mul_in_at = mul_in + row * 96;
      f32* logsoftmax_out_at = logsoftmax_out + row * 96;
      const f32 mul = 2.0f;
      f32 logsoftmax_part = -__builtin_inff();
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> mul_in_pack = load<4>(mul_in_at + n);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          mul_in_tile.v[e] = mul_in_pack.v[e];
          const f32 mul_2 = mul * mul_in_pack.v[e];
          logsoftmax_part = max(logsoftmax_part, mul_2);
        }
      }
      const f32 logsoftmax = across<Largest, 32>(logsoftmax_part);
      f32 logsoftmax_4_part = 0.0f;
      if (const int n = lane * 4; n < 96) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 mul_2 = mul * mul_in_tile.v[e];
          const f32 logsoftmax_2 = mul_2 - logsoftmax;
          const f32 logsoftmax_3 = exp(logsoftmax_2);
          logsoftmax_4_part += logsoftmax_3;
        }
      }
      const f32 logsoftmax_4 = across<Sum, 32>(logsoftmax_4_part);
      const f32 logsoftmax_5 = log(logsoftmax_4);
      if (const int n = lane * 4; n < 96) {
        Pack<f32, 4> logsoftmax_out_pack;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 mul_2 = mul * mul_in_tile.v[e];
          const f32 logsoftmax_2 = mul_2 - logsoftmax;
          const f32 logsoftmax_6 = logsoftmax_2 - logsoftmax_5;
          logsoftmax_out_pack.v[e] = logsoftmax_6;
        }
        store(logsoftmax_out_at + n, logsoftmax_out_pack);
      }
    }
  }
}

}  // namespace stitch
using namespace stitch;  // its entries are found by their names alone
