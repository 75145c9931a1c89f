// Functions of a few instructions, with TF's values at NaN, infinities and zeros.
#ifndef TF_STITCH_CUDA_BASIC_H_
#define TF_STITCH_CUDA_BASIC_H_

#include "prelude/cuda/arithmetic.h"

namespace stitch {

template <class T>
STITCH_DEVICE T square(T x) {
  return times(x, x);
}

template <class T>
STITCH_DEVICE T reciprocal(T x) {
  return 1 / x;
}

template <class T>
STITCH_DEVICE T softsign(T x) {
  return x / (1 + abs(x));
}

// f32: CUDA's is within 2 ulps (it is one instruction); a step of Newton's brings it to 1. 1 / sqrt(x) would be two
// subroutines. Of 0, of infinity and of less there is nothing to improve.
STITCH_DEVICE f32 rsqrt(f32 x) {
#if STITCH_ON_DEVICE
  const f32 y = ::rsqrtf(x);
#else
  const f32 y = 1 / sqrt(x);
#endif
  const f32 better = fused(y * 0.5f, fused(-(x * y), y, 1.0f), y);
  return (x > 0) & (x < infinity<f32>) ? better : y;
}
STITCH_DEVICE f64 rsqrt(f64 x) {
#if STITCH_ON_DEVICE
  return ::rsqrt(x);
#else
  return 1 / sqrt(x);
#endif
}

// NaN stays NaN, and -0 becomes 0
template <class T>
STITCH_DEVICE T relu(T x) {
  return x <= 0 ? T(0) : x;
}
template <class T>
STITCH_DEVICE T relu6(T x) {
  return at_most(relu(x), T(6));
}

template <class T>
STITCH_DEVICE T xdivy(T x, T y) {
  return x == 0 ? T(0) : x / y;
}
template <class T>
STITCH_DEVICE T div_no_nan(T x, T y) {
  return y == 0 ? T(0) : x / y;
}
template <class T>
STITCH_DEVICE T mul_no_nan(T x, T y) {
  return y == 0 ? T(0) : x * y;
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_BASIC_H_
