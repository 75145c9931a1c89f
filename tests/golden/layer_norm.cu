// layer_norm: f32[d0, 96]
#include "prelude/cuda/core.h"
#include "prelude/cuda/block.h"
namespace stitch {

// Where 96 * d0 is at most 2147418112.
extern "C" __global__ void __launch_bounds__(256, 4)
layer_norm_0(
    const f32* add_in,
    const f32* add_in_2,
    const f32* __restrict__ mul_in,
    const f32* __restrict__ add_in_3,
    f32* add_out,
    i64 d0) {
  const int thread = threadIdx.x;
  // A row to 32 lanes of a warp; tiles in registers.
  const int lane = thread % 32;
  const i64 units = (d0 + 7) / 8;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int row = int(unit) * 8 + thread / 32;
    Pack<f32, 4> add_tile;
    if (row < d0) {
      const f32* add_in_at = add_in + row * 96;
      const f32* add_in_2_at = add_in_2 + row * 96;
      f32* add_out_at = add_out + row * 96;
      f32 mean_part = 0.0f;
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> add_in_pack = load<4>(add_in_at + n);
        const Pack<f32, 4> add_in_2_pack = load<4>(add_in_2_at + n);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 add = add_in_pack.v[e] + add_in_2_pack.v[e];
          add_tile.v[e] = add;
          mean_part += add;
        }
      }
      const f32 mean = across<Sum, 32>(mean_part);
      const f32 mean_2 = 96.0f;
      const f32 mean_3 = mean / mean_2;
      f32 mean_4_part = 0.0f;
      if (const int n = lane * 4; n < 96) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 squareddifference = add_tile.v[e] - mean_3;
          const f32 squareddifference_2 = square(squareddifference);
          mean_4_part += squareddifference_2;
        }
      }
      const f32 mean_4 = across<Sum, 32>(mean_4_part);
      const f32 mean_5 = mean_4 / mean_2;
      const f32 add_2 = 1e-05f;
      const f32 add_3 = mean_5 + add_2;
      const f32 rsqrt_2 = rsqrt(add_3);
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> mul_in_pack = load_constant<4>(mul_in + n);
        const Pack<f32, 4> add_in_3_pack = load_constant<4>(add_in_3 + n);
        Pack<f32, 4> add_out_pack;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 squareddifference = add_tile.v[e] - mean_3;
          const f32 mul = squareddifference * rsqrt_2;
          const f32 mul_2 = mul * mul_in_pack.v[e];
          const f32 add_4 = mul_2 + add_in_3_pack.v[e];
          add_out_pack.v[e] = add_4;
        }
        store(add_out_at + n, add_out_pack);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
layer_norm_1(
    const f32* add_in,
    const f32* add_in_2,
    const f32* __restrict__ mul_in,
    const f32* __restrict__ add_in_3,
    f32* add_out,
    i64 d0) {
  const int thread = threadIdx.x;
  // A row to 32 lanes of a warp; tiles in registers.
  const int lane = thread % 32;
  const i64 units = (d0 + 7) / 8;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const i64 row = unit * 8 + thread / 32;
    Pack<f32, 4> add_tile;
    if (row < d0) {
      const f32* add_in_at = add_in + row * 96;
      const f32* add_in_2_at = add_in_2 + row * 96;
      f32* add_out_at = add_out + row * 96;
      f32 mean_part = 0.0f;
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> add_in_pack = load<4>(add_in_at + n);
        const Pack<f32, 4> add_in_2_pack = load<4>(add_in_2_at + n);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 add = add_in_pack.v[e] + add_in_2_pack.v[e];
          add_tile.v[e] = add;
          mean_part += add;
        }
      }
      const f32 mean = across<Sum, 32>(mean_part);
      const f32 mean_2 = 96.0f;
      const f32 mean_3 = mean / mean_2;
      f32 mean_4_part = 0.0f;
      if (const int n = lane * 4; n < 96) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 squareddifference = add_tile.v[e] - mean_3;
          const f32 squareddifference_2 = square(squareddifference);
          mean_4_part += squareddifference_2;
        }
      }
      const f32 mean_4 = across<Sum, 32>(mean_4_part);
      const f32 mean_5 = mean_4 / mean_2;
      const f32 add_2 = 1e-05f;
      const f32 add_3 = mean_5 + add_2;
      const f32 rsqrt_2 = rsqrt(add_3);
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> mul_in_pack = load_constant<4>(mul_in + n);
        const Pack<f32, 4> add_in_3_pack = load_constant<4>(add_in_3 + n);
        Pack<f32, 4> add_out_pack;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 squareddifference = add_tile.v[e] - mean_3;
          const f32 mul = squareddifference * rsqrt_2;
          const f32 mul_2 = mul * mul_in_pack.v[e];
          const f32 add_4 = mul_2 + add_in_3_pack.v[e];
          add_out_pack.v[e] = add_4;
        }
        store(add_out_at + n, add_out_pack);
      }
    }
  }
}

}  // namespace stitch
using namespace stitch;  // its entries are found by their names alone
