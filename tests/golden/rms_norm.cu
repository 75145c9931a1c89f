// rms_norm: f32[d0, 96]
#include "prelude/cuda/core.h"
#include "prelude/cuda/block.h"
namespace stitch {

// Where 96 * d0 is at most 2147418112.
extern "C" __global__ void __launch_bounds__(256, 4)
rms_norm_0(const f32* square_in, const f32* __restrict__ mul_in, f32* mul_out, i64 d0) {
  const int thread = threadIdx.x;
  // A row to 32 lanes of a warp; tiles in registers.
  const int lane = thread % 32;
  const i64 units = (d0 + 7) / 8;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int row = int(unit) * 8 + thread / 32;
    Pack<f32, 4> square_in_tile;
    if (row < d0) {
      const f32* square_in_at = square_in + row * 96;
      f32* mul_out_at = mul_out + row * 96;
      f32 mean_part = 0.0f;
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> square_in_pack = load<4>(square_in_at + n);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          square_in_tile.v[e] = square_in_pack.v[e];
          const f32 square_2 = square(square_in_pack.v[e]);
          mean_part += square_2;
        }
      }
      const f32 mean = across<Sum, 32>(mean_part);
      const f32 mean_2 = 96.0f;
      const f32 mean_3 = mean / mean_2;
      const f32 add = 1e-06f;
      const f32 add_2 = mean_3 + add;
      const f32 rsqrt_2 = rsqrt(add_2);
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> mul_in_pack = load_constant<4>(mul_in + n);
        Pack<f32, 4> mul_out_pack;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 mul = rsqrt_2 * square_in_tile.v[e];
          const f32 mul_2 = mul * mul_in_pack.v[e];
          mul_out_pack.v[e] = mul_2;
        }
        store(mul_out_at + n, mul_out_pack);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
rms_norm_1(const f32* square_in, const f32* __restrict__ mul_in, f32* mul_out, i64 d0) {
  const int thread = threadIdx.x;
  // A row to 32 lanes of a warp; tiles in registers.
  const int lane = thread % 32;
  const i64 units = (d0 + 7) / 8;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const i64 row = unit * 8 + thread / 32;
    Pack<f32, 4> square_in_tile;
    if (row < d0) {
      const f32* square_in_at = square_in + row * 96;
      f32* mul_out_at = mul_out + row * 96;
      f32 mean_part = 0.0f;
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> square_in_pack = load<4>(square_in_at + n);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          square_in_tile.v[e] = square_in_pack.v[e];
          const f32 square_2 = square(square_in_pack.v[e]);
          mean_part += square_2;
        }
      }
      const f32 mean = across<Sum, 32>(mean_part);
      const f32 mean_2 = 96.0f;
      const f32 mean_3 = mean / mean_2;
      const f32 add = 1e-06f;
      const f32 add_2 = mean_3 + add;
      const f32 rsqrt_2 = rsqrt(add_2);
      if (const int n = lane * 4; n < 96) {
        const Pack<f32, 4> mul_in_pack = load_constant<4>(mul_in + n);
        Pack<f32, 4> mul_out_pack;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 mul = rsqrt_2 * square_in_tile.v[e];
          const f32 mul_2 = mul * mul_in_pack.v[e];
          mul_out_pack.v[e] = mul_2;
        }
        store(mul_out_at + n, mul_out_pack);
      }
    }
  }
}

}  // namespace stitch
using namespace stitch;  // its entries are found by their names alone
