// Quotients and remainders: truncate_div, truncate_mod, floor_div, floor_mod. Of integers by zero they are 0 (TF's
// error is the host's business; the hardware would give -1), and the least integer by -1 is itself.
#ifndef TF_STITCH_CUDA_DIVIDE_H_
#define TF_STITCH_CUDA_DIVIDE_H_

#include "prelude/cuda/arithmetic.h"

namespace stitch {

STITCH_DEVICE f32 remainder_of(f32 a, f32 b) { return STITCH_LIBM(fmodf)(a, b); }  // exact, with a's sign
STITCH_DEVICE f64 remainder_of(f64 a, f64 b) { return STITCH_LIBM(fmod)(a, b); }

template <class T>
STITCH_DEVICE T truncate_div(T a, T b) {
  if constexpr (is_float<T>) return trunc(a / b);
  else return b == 0 ? T(0) : b == -1 ? negated(a) : a / b;
}
template <class T>
STITCH_DEVICE T truncate_mod(T a, T b) {
  if constexpr (is_float<T>) return remainder_of(a, b);
  else return b == 0 || b == -1 ? T(0) : a % b;
}
template <class T>
STITCH_DEVICE T floor_div(T a, T b) {
  if constexpr (is_float<T>) return floor(a / b);
  else return minus(truncate_div(a, b), T((truncate_mod(a, b) != 0) & ((a < 0) != (b < 0))));
}
// b's sign, or 0 with a's sign
template <class T>
STITCH_DEVICE T floor_mod(T a, T b) {
  const T rest = truncate_mod(a, b);
  return (rest != 0) & ((rest < 0) != (b < 0)) ? rest + b : rest;
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_DIVIDE_H_
