// What the hardware does in a few instructions. Integers wrap: they are added, subtracted and multiplied unsigned, for
// there is no -fwrapv on a device. Floats keep TF's values at NaN, infinities and zeros.
#ifndef TF_STITCH_CUDA_ARITHMETIC_H_
#define TF_STITCH_CUDA_ARITHMETIC_H_

#include "prelude/cuda/libm.h"

namespace stitch {

// ---- operators: those that C++'s own would not do for every type

#define STITCH_WRAPPING(name, op)                              \
  template <class T>                                           \
  STITCH_DEVICE T name(T a, T b) {                             \
    if constexpr (is_float<T>) return a op b;                  \
    else return T(Bits<T>(a) op Bits<T>(b));                   \
  }
STITCH_WRAPPING(plus, +)
STITCH_WRAPPING(minus, -)
STITCH_WRAPPING(times, *)
#undef STITCH_WRAPPING

template <class T>
STITCH_DEVICE T negated(T a) {
  if constexpr (is_float<T>) return -a;
  else return T(0 - Bits<T>(a));
}

template <class T>
STITCH_DEVICE T select(bool condition, T a, T b) {
  return condition ? a : b;
}

// ---- signs and extremes

template <class T>
STITCH_DEVICE T abs(T x) {
  if constexpr (is_float<T>) return from_bits<T>(bits_of(x) & ~sign_bit<T>);
  else return x < 0 ? negated(x) : x;
}

// |x| with the sign of s
template <class T>
STITCH_DEVICE T copysign(T x, T s) {
  return from_bits<T>((bits_of(x) & ~sign_bit<T>) | (bits_of(s) & sign_bit<T>));
}

// 0 for both zeros, NaN for NaN
template <class T>
STITCH_DEVICE T sign(T x) {
  if constexpr (is_float<T>) return x == 0 ? T(0) : x != x ? x : copysign(T(1), x);
  else return T(x > 0) - T(x < 0);
}

// NaN from either side; of equal operands (so of -0 and +0) the second. fmaxf has neither, max.NaN not the zeros.
template <class T>
STITCH_DEVICE T max(T a, T b) {
  if constexpr (is_float<T>) return a > b || a != a ? a : b;
  else return a > b ? a : b;
}
template <class T>
STITCH_DEVICE T min(T a, T b) {
  if constexpr (is_float<T>) return a < b || a != a ? a : b;
  else return a < b ? a : b;
}

// max and min with a number that is not zero. NaN stays NaN; of a number that is NaN it is x.
template <class T>
STITCH_DEVICE T at_least(T x, T number) {
  return number > x ? number : x;
}
template <class T>
STITCH_DEVICE T at_most(T x, T number) {
  return number < x ? number : x;
}

template <class T>
STITCH_DEVICE bool is_nan(T x) {
  return x != x;
}
template <class T>
STITCH_DEVICE bool is_inf(T x) {
  return abs(x) == infinity<T>;
}
template <class T>
STITCH_DEVICE bool is_finite(T x) {
  return abs(x) < infinity<T>;
}

// ---- rounding to whole numbers (rint: halves to even) and the root: exact, all of them

STITCH_FROM_LIBM(floor)
STITCH_FROM_LIBM(ceil)
STITCH_FROM_LIBM(trunc)
STITCH_FROM_LIBM(rint)

#if STITCH_ON_DEVICE  // rounded to nearest, whatever -prec-sqrt says
STITCH_DEVICE f32 sqrt(f32 x) { return __fsqrt_rn(x); }
STITCH_DEVICE f64 sqrt(f64 x) { return __dsqrt_rn(x); }
#else
STITCH_FROM_LIBM(sqrt)
#endif

}  // namespace stitch
#endif  // TF_STITCH_CUDA_ARITHMETIC_H_
