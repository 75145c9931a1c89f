// masked_softmax: f32[d0, 3, 5, 33]
#include "prelude/cuda/core.h"
#include "prelude/cuda/block.h"
#include "prelude/cuda/math_exp.h"
namespace stitch {

// Where 33 * d0 is at most 2147418112.
// Where 495 * d0 is at most 2147418112.
extern "C" __global__ void __launch_bounds__(256, 4)
masked_softmax_0(const f32* __restrict__ sub_in, const f32* mul_in, f32* softmax_out, i64 d0) {
  const int thread = threadIdx.x;
  // A row to 32 lanes of a warp; tiles in registers.
  const int lane = thread % 32;
  const i64 units = ((15 * d0) + 7) / 8;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int row = int(unit) * 8 + thread / 32;
    f32 add_tile[2];
    f32 softmax_3_tile[2];
    if (row < (15 * d0)) {
      const int o1 = row % 15, r1 = row / 15;
      const f32* sub_in_at = sub_in + r1 * 33;
      const f32* mul_in_at = mul_in + r1 * 495 + o1 * 33;
      f32* softmax_out_at = softmax_out + r1 * 495 + o1 * 33;
      const f32 mul = -10000.0f;
      const f32 sub = 1.0f;
      const f32 mul_3 = 0.125f;
      f32 softmax_part = -__builtin_inff();
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (const int n = (k * 32 + lane); n < 33) {
          const f32 sub_in = load_constant(sub_in_at + n);
          const f32 sub_2 = sub - sub_in;
          const f32 mul_2 = mul * sub_2;
          const f32 mul_in = load(mul_in_at + n);
          const f32 mul_4 = mul_3 * mul_in;
          const f32 add = mul_2 + mul_4;
          add_tile[k] = add;
          softmax_part = max(softmax_part, add);
        }
      }
      const f32 softmax = across<Largest, 32>(softmax_part);
      f32 softmax_4_part = 0.0f;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (const int n = (k * 32 + lane); n < 33) {
          const f32 softmax_2 = add_tile[k] - softmax;
          const f32 softmax_3 = exp(softmax_2);
          softmax_3_tile[k] = softmax_3;
          softmax_4_part += softmax_3;
        }
      }
      const f32 softmax_4 = across<Sum, 32>(softmax_4_part);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (const int n = (k * 32 + lane); n < 33) {
          const f32 softmax_5 = softmax_3_tile[k] / softmax_4;
          store(softmax_out_at + n, softmax_5);
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
masked_softmax_1(const f32* __restrict__ sub_in, const f32* mul_in, f32* softmax_out, i64 d0) {
  const int thread = threadIdx.x;
  // A row to 32 lanes of a warp; tiles in registers.
  const int lane = thread % 32;
  const i64 units = ((15 * d0) + 7) / 8;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const i64 row = unit * 8 + thread / 32;
    f32 add_tile[2];
    f32 softmax_3_tile[2];
    if (row < (15 * d0)) {
      const i64 o1 = row % 15, r1 = row / 15;
      const f32* sub_in_at = sub_in + r1 * 33;
      const f32* mul_in_at = mul_in + r1 * 495 + o1 * 33;
      f32* softmax_out_at = softmax_out + r1 * 495 + o1 * 33;
      const f32 mul = -10000.0f;
      const f32 sub = 1.0f;
      const f32 mul_3 = 0.125f;
      f32 softmax_part = -__builtin_inff();
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (const int n = (k * 32 + lane); n < 33) {
          const f32 sub_in = load_constant(sub_in_at + n);
          const f32 sub_2 = sub - sub_in;
          const f32 mul_2 = mul * sub_2;
          const f32 mul_in = load(mul_in_at + n);
          const f32 mul_4 = mul_3 * mul_in;
          const f32 add = mul_2 + mul_4;
          add_tile[k] = add;
          softmax_part = max(softmax_part, add);
        }
      }
      const f32 softmax = across<Largest, 32>(softmax_part);
      f32 softmax_4_part = 0.0f;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (const int n = (k * 32 + lane); n < 33) {
          const f32 softmax_2 = add_tile[k] - softmax;
          const f32 softmax_3 = exp(softmax_2);
          softmax_3_tile[k] = softmax_3;
          softmax_4_part += softmax_3;
        }
      }
      const f32 softmax_4 = across<Sum, 32>(softmax_4_part);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (const int n = (k * 32 + lane); n < 33) {
          const f32 softmax_5 = softmax_3_tile[k] / softmax_4;
          store(softmax_out_at + n, softmax_5);
        }
      }
    }
  }
}

}  // namespace stitch
using namespace stitch;  // its entries are found by their names alone
