// batch_norm: f32[d0, 5, 7, 24]
#include "prelude/cuda/core.h"
namespace stitch {

// Where 840 * d0 is at most 2147418112.
extern "C" __global__ void __launch_bounds__(256, 4)
batch_norm_0(
    const f32* __restrict__ fusedbatchnormv3_in,
    const f32* __restrict__ fusedbatchnormv3_in_2,
    const f32* fusedbatchnormv3_in_3,
    const f32* __restrict__ fusedbatchnormv3_in_4,
    const f32* __restrict__ fusedbatchnormv3_in_5,
    f32* mul_out,
    i64 d0) {
  const int thread = threadIdx.x;
  // 4 elements to a thread.
  const i64 units = ((840 * d0) + 1023) / 1024;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int element = (int(unit) * 256 + thread) * 4;
    if (element < 840 * d0) {
      const int n = element % 24, row = element / 24;
      const f32* fusedbatchnormv3_in_3_at = fusedbatchnormv3_in_3 + row * 24;
      f32* mul_out_at = mul_out + row * 24;
      const f32 mul = 2.0f;
      const f32 fusedbatchnormv3_again = 1e-04f;
      const Pack<f32, 4> fusedbatchnormv3_in_again_pack = load_constant<4>(fusedbatchnormv3_in + n);
      const Pack<f32, 4> fusedbatchnormv3_in_2_again_pack = load_constant<4>(fusedbatchnormv3_in_2 + n);
      const Pack<f32, 4> fusedbatchnormv3_in_3_pack = load<4>(fusedbatchnormv3_in_3_at + n);
      const Pack<f32, 4> fusedbatchnormv3_in_4_pack = load_constant<4>(fusedbatchnormv3_in_4 + n);
      const Pack<f32, 4> fusedbatchnormv3_in_5_pack = load_constant<4>(fusedbatchnormv3_in_5 + n);
      Pack<f32, 4> mul_out_pack;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const f32 fusedbatchnormv3_2_again = fusedbatchnormv3_in_again_pack.v[e] + fusedbatchnormv3_again;
        const f32 fusedbatchnormv3_3_again = rsqrt(fusedbatchnormv3_2_again);
        const f32 fusedbatchnormv3_scratch = fusedbatchnormv3_3_again * fusedbatchnormv3_in_2_again_pack.v[e];
        const f32 fusedbatchnormv3 = fusedbatchnormv3_in_3_pack.v[e] - fusedbatchnormv3_in_4_pack.v[e];
        const f32 fusedbatchnormv3_2 = fusedbatchnormv3_scratch * fusedbatchnormv3;
        const f32 fusedbatchnormv3_3 = fusedbatchnormv3_2 + fusedbatchnormv3_in_5_pack.v[e];
        const f32 relu_2 = relu(fusedbatchnormv3_3);
        const f32 mul_2 = mul * relu_2;
        mul_out_pack.v[e] = mul_2;
      }
      store(mul_out_at + n, mul_out_pack);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
batch_norm_1(
    const f32* __restrict__ fusedbatchnormv3_in,
    const f32* __restrict__ fusedbatchnormv3_in_2,
    const f32* fusedbatchnormv3_in_3,
    const f32* __restrict__ fusedbatchnormv3_in_4,
    const f32* __restrict__ fusedbatchnormv3_in_5,
    f32* mul_out,
    i64 d0) {
  const int thread = threadIdx.x;
  // 4 elements to a thread.
  const i64 units = ((840 * d0) + 1023) / 1024;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const i64 element = (unit * 256 + thread) * 4;
    if (element < 840 * d0) {
      const i64 n = element % 24, row = element / 24;
      const f32* fusedbatchnormv3_in_3_at = fusedbatchnormv3_in_3 + row * 24;
      f32* mul_out_at = mul_out + row * 24;
      const f32 mul = 2.0f;
      const f32 fusedbatchnormv3_again = 1e-04f;
      const Pack<f32, 4> fusedbatchnormv3_in_again_pack = load_constant<4>(fusedbatchnormv3_in + n);
      const Pack<f32, 4> fusedbatchnormv3_in_2_again_pack = load_constant<4>(fusedbatchnormv3_in_2 + n);
      const Pack<f32, 4> fusedbatchnormv3_in_3_pack = load<4>(fusedbatchnormv3_in_3_at + n);
      const Pack<f32, 4> fusedbatchnormv3_in_4_pack = load_constant<4>(fusedbatchnormv3_in_4 + n);
      const Pack<f32, 4> fusedbatchnormv3_in_5_pack = load_constant<4>(fusedbatchnormv3_in_5 + n);
      Pack<f32, 4> mul_out_pack;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const f32 fusedbatchnormv3_2_again = fusedbatchnormv3_in_again_pack.v[e] + fusedbatchnormv3_again;
        const f32 fusedbatchnormv3_3_again = rsqrt(fusedbatchnormv3_2_again);
        const f32 fusedbatchnormv3_scratch = fusedbatchnormv3_3_again * fusedbatchnormv3_in_2_again_pack.v[e];
        const f32 fusedbatchnormv3 = fusedbatchnormv3_in_3_pack.v[e] - fusedbatchnormv3_in_4_pack.v[e];
        const f32 fusedbatchnormv3_2 = fusedbatchnormv3_scratch * fusedbatchnormv3;
        const f32 fusedbatchnormv3_3 = fusedbatchnormv3_2 + fusedbatchnormv3_in_5_pack.v[e];
        const f32 relu_2 = relu(fusedbatchnormv3_3);
        const f32 mul_2 = mul * relu_2;
        mul_out_pack.v[e] = mul_2;
      }
      store(mul_out_at + n, mul_out_pack);
    }
  }
}

}  // namespace stitch
using namespace stitch;  // its entries are found by their names alone
