// lstm: f32[d0, 33], f32[d0, 33]
#include "prelude/cuda/core.h"
#include "prelude/cuda/math_tanh.h"
namespace stitch {

// Where 132 * d0 is at most 2147418112.
// Where 33 * d0 is at most 2147418112.
extern "C" __global__ void __launch_bounds__(256, 4)
lstm_0(
    const f32* __restrict__ add_in,
    const f32* __restrict__ add_in_2,
    const f32* mul_in,
    f32* mul_out,
    f32* add_out,
    i64 d0) {
  const int thread = threadIdx.x;
  // An element to a thread.
  const i64 units = ((33 * d0) + 255) / 256;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int element = int(unit) * 256 + thread;
    if (element < 33 * d0) {
      const int n = element % 33, row = element / 33;
      const f32* add_in_at = add_in + row * 132;
      const f32* add_in_2_at = add_in_2;
      const f32* add_in_at_ = add_in + row * 132 + 33;
      const f32* add_in_2_at_ = add_in_2 + 33;
      const f32* add_in_at__ = add_in + row * 132 + 99;
      const f32* add_in_2_at__ = add_in_2 + 99;
      const f32* mul_in_at = mul_in + row * 33;
      const f32* add_in_at___ = add_in + row * 132 + 66;
      const f32* add_in_2_at___ = add_in_2 + 66;
      f32* add_out_at = add_out + row * 33;
      f32* mul_out_at = mul_out + row * 33;
      const f32 add_5 = 1.0f;
      const f32 add_in_4 = load_constant(add_in_at + n);
      const f32 add_in_2_5 = load_constant(add_in_2_at + n);
      const f32 add_4 = add_in_4 + add_in_2_5;
      const f32 sigmoid_2 = sigmoid(add_4);
      const f32 add_in_3 = load_constant(add_in_at_ + n);
      const f32 add_in_2_4 = load_constant(add_in_2_at_ + n);
      const f32 add_3 = add_in_3 + add_in_2_4;
      const f32 tanh_2 = tanh(add_3);
      const f32 mul = sigmoid_2 * tanh_2;
      const f32 add_in_2_value = load_constant(add_in_at__ + n);
      const f32 add_in_2_3 = load_constant(add_in_2_at__ + n);
      const f32 add_2 = add_in_2_value + add_in_2_3;
      const f32 add_6 = add_5 + add_2;
      const f32 sigmoid_3 = sigmoid(add_6);
      const f32 mul_in = load(mul_in_at + n);
      const f32 mul_2 = sigmoid_3 * mul_in;
      const f32 add_7 = mul + mul_2;
      const f32 tanh_3 = tanh(add_7);
      const f32 add_in = load_constant(add_in_at___ + n);
      const f32 add_in_2_2 = load_constant(add_in_2_at___ + n);
      const f32 add = add_in + add_in_2_2;
      const f32 sigmoid_4 = sigmoid(add);
      const f32 mul_3 = tanh_3 * sigmoid_4;
      store(add_out_at + n, add_7);
      store(mul_out_at + n, mul_3);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
lstm_1(
    const f32* __restrict__ add_in,
    const f32* __restrict__ add_in_2,
    const f32* mul_in,
    f32* mul_out,
    f32* add_out,
    i64 d0) {
  const int thread = threadIdx.x;
  // An element to a thread.
  const i64 units = ((33 * d0) + 255) / 256;
  for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const i64 element = unit * 256 + thread;
    if (element < 33 * d0) {
      const i64 n = element % 33, row = element / 33;
      const f32* add_in_at = add_in + row * 132;
      const f32* add_in_2_at = add_in_2;
      const f32* add_in_at_ = add_in + row * 132 + 33;
      const f32* add_in_2_at_ = add_in_2 + 33;
      const f32* add_in_at__ = add_in + row * 132 + 99;
      const f32* add_in_2_at__ = add_in_2 + 99;
      const f32* mul_in_at = mul_in + row * 33;
      const f32* add_in_at___ = add_in + row * 132 + 66;
      const f32* add_in_2_at___ = add_in_2 + 66;
      f32* add_out_at = add_out + row * 33;
      f32* mul_out_at = mul_out + row * 33;
      const f32 add_5 = 1.0f;
      const f32 add_in_4 = load_constant(add_in_at + n);
      const f32 add_in_2_5 = load_constant(add_in_2_at + n);
      const f32 add_4 = add_in_4 + add_in_2_5;
      const f32 sigmoid_2 = sigmoid(add_4);
      const f32 add_in_3 = load_constant(add_in_at_ + n);
      const f32 add_in_2_4 = load_constant(add_in_2_at_ + n);
      const f32 add_3 = add_in_3 + add_in_2_4;
      const f32 tanh_2 = tanh(add_3);
      const f32 mul = sigmoid_2 * tanh_2;
      const f32 add_in_2_value = load_constant(add_in_at__ + n);
      const f32 add_in_2_3 = load_constant(add_in_2_at__ + n);
      const f32 add_2 = add_in_2_value + add_in_2_3;
      const f32 add_6 = add_5 + add_2;
      const f32 sigmoid_3 = sigmoid(add_6);
      const f32 mul_in = load(mul_in_at + n);
      const f32 mul_2 = sigmoid_3 * mul_in;
      const f32 add_7 = mul + mul_2;
      const f32 tanh_3 = tanh(add_7);
      const f32 add_in = load_constant(add_in_at___ + n);
      const f32 add_in_2_2 = load_constant(add_in_2_at___ + n);
      const f32 add = add_in + add_in_2_2;
      const f32 sigmoid_4 = sigmoid(add);
      const f32 mul_3 = tanh_3 * sigmoid_4;
      store(add_out_at + n, add_7);
      store(mul_out_at + n, mul_3);
    }
  }
}

}  // namespace stitch
using namespace stitch;  // its entries are found by their names alone
