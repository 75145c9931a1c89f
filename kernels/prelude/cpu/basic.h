// Functions of a few instructions, with TF's values at NaN, infinities and zeros.
#ifndef TF_STITCH_CPU_BASIC_H_
#define TF_STITCH_CPU_BASIC_H_

#include "pack.h"

namespace stitch {
namespace vec {

template <class V>
STITCH_INLINE V softsign(V x) {
  return x / (1 + abs(x));
}

template <class V>
STITCH_INLINE V rsqrt(V x) {
  return 1 / sqrt(x);
}

template <class V>
STITCH_INLINE V reciprocal(V x) {
  return 1 / x;
}

// max and min with a number that is not zero: one instruction. NaN stays NaN; of a number that is NaN it is x.
template <class V>
STITCH_INLINE V at_least(V x, V number) {
  return max2(number, x);
}
template <class V>
STITCH_INLINE V at_most(V x, V number) {
  return min2(number, x);
}

// NaN stays NaN, and -0 becomes 0
template <class V>
STITCH_INLINE V relu(V x) {
#ifdef STITCH_AVX512
  // One instruction: 0 for zeros and what is below, by a table of four bits a class of numbers.
  if constexpr (same<V, Vec<f32, 16>>) {
    return __builtin_ia32_fixupimmps512_mask(x, x, fill<Vec<i32, 16>>(0x18181811), 0, -1, 4);
  } else
#endif
  return x <= 0 ? V{} : x;
}

template <class V>
STITCH_INLINE V relu6(V x) {
  return min2(fill<V>(6), relu(x));
}

template <class V>
STITCH_INLINE V xdivy(V x, V y) {
  return x == 0 ? V{} : x / y;
}

template <class V>
STITCH_INLINE V div_no_nan(V x, V y) {
  return y == 0 ? V{} : x / y;
}

template <class V>
STITCH_INLINE V mul_no_nan(V x, V y) {
  return y == 0 ? V{} : x * y;
}

}  // namespace vec

STITCH_LIFT_UNARY(softsign)
STITCH_LIFT_UNARY(rsqrt)
STITCH_LIFT_UNARY(reciprocal)
STITCH_LIFT_BINARY(at_least)
STITCH_LIFT_BINARY(at_most)
STITCH_LIFT_UNARY(relu)
STITCH_LIFT_UNARY(relu6)
STITCH_LIFT_BINARY(xdivy)
STITCH_LIFT_BINARY(div_no_nan)
STITCH_LIFT_BINARY(mul_no_nan)

template <class T, int L>
STITCH_INLINE Pack<T, L> square(Pack<T, L> x) {
  return x * x;
}
template <class T, int L>
STITCH_INLINE Pack<T, L> squared_difference(Pack<T, L> x, Pack<T, L> y) {
  Pack<T, L> d = x - y;
  return d * d;
}
template <class T, int L>
STITCH_INLINE Pack<T, L> leaky_relu(Pack<T, L> x, T alpha) {
  return select(x > splat<T, L>(0), x, x * splat<T, L>(alpha));
}
// Gradients: y is the function's value, dy the gradient by it.
template <class T, int L>
STITCH_INLINE Pack<T, L> tanh_grad(Pack<T, L> y, Pack<T, L> dy) {
  return dy * (splat<T, L>(1) - y * y);
}
template <class T, int L>
STITCH_INLINE Pack<T, L> sigmoid_grad(Pack<T, L> y, Pack<T, L> dy) {
  return dy * y * (splat<T, L>(1) - y);
}
template <class T, int L>
STITCH_INLINE Pack<T, L> sqrt_grad(Pack<T, L> y, Pack<T, L> dy) {
  return dy * splat<T, L>(T(0.5)) / y;
}
template <class T, int L>
STITCH_INLINE Pack<T, L> rsqrt_grad(Pack<T, L> y, Pack<T, L> dy) {
  return splat<T, L>(T(-0.5)) * (dy * y) * (y * y);
}
template <class T, int L>
STITCH_INLINE Pack<T, L> reciprocal_grad(Pack<T, L> y, Pack<T, L> dy) {
  return -dy * (y * y);
}

}  // namespace stitch
#endif  // TF_STITCH_CPU_BASIC_H_
