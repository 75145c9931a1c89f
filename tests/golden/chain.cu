// chain: f32[d0, 96]
#include "prelude/cuda/core.h"
#include "prelude/cuda/math_exp.h"
#include "prelude/cuda/math_tanh.h"
namespace stitch {

// Where 96 * d0 is at most 2147418112.
extern "C" __global__ void __launch_bounds__(256, 4)
chain_0(const f32* tanh_in, f32* maximum_out, i64 d0) {
  const int thread = threadIdx.x;
  // 4 elements to a thread.
  const i64 units = ((96 * d0) + 1023) / 1024;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int n = (int(unit) * 256 + thread) * 4;
    if (n < 96 * d0) {
      const f32 mul = 0.5f;
      const f32 add = 0.1f;
      const f32 mul_2 = 1.5f;
      const f32 sub = 0.3f;
      const Pack<f32, 4> tanh_in_pack = load<4>(tanh_in + n);
      Pack<f32, 4> maximum_out_pack;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const f32 tanh_2 = tanh(tanh_in_pack.v[e]);
        const f32 mul_3 = mul_2 * tanh_2;
        const f32 add_2 = add + mul_3;
        const f32 abs_2 = abs(add_2);
        const f32 neg = -abs_2;
        const f32 exp_2 = exp(neg);
        const f32 mul_4 = mul * exp_2;
        const f32 sub_2 = mul_4 - sub;
        const f32 neg_2 = -mul_4;
        const f32 maximum = max(sub_2, neg_2);
        const f32 tanh_3 = tanh(maximum);
        const f32 mul_5 = mul_2 * tanh_3;
        const f32 add_3 = add + mul_5;
        const f32 abs_3 = abs(add_3);
        const f32 neg_3 = -abs_3;
        const f32 exp_3 = exp(neg_3);
        const f32 mul_6 = mul * exp_3;
        const f32 sub_3 = mul_6 - sub;
        const f32 neg_4 = -mul_6;
        const f32 maximum_2 = max(sub_3, neg_4);
        const f32 tanh_4 = tanh(maximum_2);
        const f32 mul_7 = mul_2 * tanh_4;
        const f32 add_4 = add + mul_7;
        const f32 abs_4 = abs(add_4);
        const f32 neg_5 = -abs_4;
        const f32 exp_4 = exp(neg_5);
        const f32 mul_8 = mul * exp_4;
        const f32 sub_4 = mul_8 - sub;
        const f32 neg_6 = -mul_8;
        const f32 maximum_3 = max(sub_4, neg_6);
        const f32 tanh_5 = tanh(maximum_3);
        const f32 mul_9 = mul_2 * tanh_5;
        const f32 add_5 = add + mul_9;
        const f32 abs_5 = abs(add_5);
        const f32 neg_7 = -abs_5;
        const f32 exp_5 = exp(neg_7);
        const f32 mul_10 = mul * exp_5;
        const f32 sub_5 = mul_10 - sub;
        const f32 neg_8 = -mul_10;
        const f32 maximum_4 = max(sub_5, neg_8);
        maximum_out_pack.v[e] = maximum_4;
      }
      store(maximum_out + n, maximum_out_pack);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
chain_1(const f32* tanh_in, f32* maximum_out, i64 d0) {
  const int thread = threadIdx.x;
  // 4 elements to a thread.
  const i64 units = ((96 * d0) + 1023) / 1024;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const i64 n = (unit * 256 + thread) * 4;
    if (n < 96 * d0) {
      const f32 mul = 0.5f;
      const f32 add = 0.1f;
      const f32 mul_2 = 1.5f;
      const f32 sub = 0.3f;
      const Pack<f32, 4> tanh_in_pack = load<4>(tanh_in + n);
      Pack<f32, 4> maximum_out_pack;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const f32 tanh_2 = tanh(tanh_in_pack.v[e]);
        const f32 mul_3 = mul_2 * tanh_2;
        const f32 add_2 = add + mul_3;
        const f32 abs_2 = abs(add_2);
        const f32 neg = -abs_2;
        const f32 exp_2 = exp(neg);
        const f32 mul_4 = mul * exp_2;
        const f32 sub_2 = mul_4 - sub;
        const f32 neg_2 = -mul_4;
        const f32 maximum = max(sub_2, neg_2);
        const f32 tanh_3 = tanh(maximum);
        const f32 mul_5 = mul_2 * tanh_3;
        const f32 add_3 = add + mul_5;
        const f32 abs_3 = abs(add_3);
        const f32 neg_3 = -abs_3;
        const f32 exp_3 = exp(neg_3);
        const f32 mul_6 = mul * exp_3;
        const f32 sub_3 = mul_6 - sub;
        const f32 neg_4 = -mul_6;
        const f32 maximum_2 = max(sub_3, neg_4);
        const f32 tanh_4 = tanh(maximum_2);
        const f32 mul_7 = mul_2 * tanh_4;
        const f32 add_4 = add + mul_7;
        const f32 abs_4 = abs(add_4);
        const f32 neg_5 = -abs_4;
        const f32 exp_4 = exp(neg_5);
        const f32 mul_8 = mul * exp_4;
        const f32 sub_4 = mul_8 - sub;
        const f32 neg_6 = -mul_8;
        const f32 maximum_3 = max(sub_4, neg_6);
        const f32 tanh_5 = tanh(maximum_3);
        const f32 mul_9 = mul_2 * tanh_5;
        const f32 add_5 = add + mul_9;
        const f32 abs_5 = abs(add_5);
        const f32 neg_7 = -abs_5;
        const f32 exp_5 = exp(neg_7);
        const f32 mul_10 = mul * exp_5;
        const f32 sub_5 = mul_10 - sub;
        const f32 neg_8 = -mul_10;
        const f32 maximum_4 = max(sub_5, neg_8);
        maximum_out_pack.v[e] = maximum_4;
      }
      store(maximum_out + n, maximum_out_pack);
    }
  }
}

}  // namespace stitch
using namespace stitch;  // its entries are found by their names alone
