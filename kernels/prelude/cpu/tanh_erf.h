// tanh, erf, sigmoid.
#ifndef TF_STITCH_CPU_TANH_ERF_H_
#define TF_STITCH_CPU_TANH_ERF_H_

#include "exp_log.h"
#include "libm.h"

namespace stitch {
namespace vec {

template <class V>
STITCH_INLINE V clamp(V x, Element<V> end) {
  return min2(fill<V>(end), max2(fill<V>(-end), x));  // NaN stays NaN
}

// 2 t / (1 + t^2) of t = above / below. It is 1 for all t near 1: the errors of a quotient vanish there.
template <class V>
STITCH_INLINE V from_half(V above, V below) {
  V product = above * below;
  return (product + product) / madd(below, below, above * above);
}

template <class V>
STITCH_INLINE V tanh(V x) {
  if constexpr (is_f32<V>) {
    x = clamp(x, 9.01f);
    V z = x * x;
    V above = madd(z, kTanhF32[2], kTanhF32[1]);
    above = madd(above, z, kTanhF32[0]);
    V below = madd(z, kTanhBelowF32[3], kTanhBelowF32[2]);
    below = madd(below, z, kTanhBelowF32[1]);
    below = madd(below, z, kTanhBelowF32[0]);
    return from_half(x * above, below);
  } else {
    V t = expm1(-2 * abs(x));  // in (-1, 0]
    return copysign(-t / (2 + t), x);
  }
}

template <class V>
STITCH_INLINE V erf_f32(V x) {
  x = clamp(x, 3.92f);
  V z = x * x;
  V above = madd(z, kErfF32[4], kErfF32[3]);
  above = madd(above, z, kErfF32[2]);
  above = madd(above, z, kErfF32[1]);
  above = madd(above, z, kErfF32[0]);
  V below = madd(z, kErfBelowF32[3], kErfBelowF32[2]);
  below = madd(below, z, kErfBelowF32[1]);
  below = madd(below, z, kErfBelowF32[0]);
  return from_half(x * above, below);
}

template <class V>
STITCH_INLINE V erf(V x) {
  if constexpr (is_f32<V>) return erf_f32(x);
  else return libm::erf(x);
}

template <class V>
STITCH_INLINE V sigmoid(V x) {
  return 1 / (1 + exp(-x));
}

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_TANH_ERF_H_
