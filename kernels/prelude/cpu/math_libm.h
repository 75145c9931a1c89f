// Functions that are rare or hard: lane by lane through the process's libm, as TF computes most of them.
#ifndef TF_STITCH_CPU_MATH_LIBM_H_
#define TF_STITCH_CPU_MATH_LIBM_H_

#include "pack.h"

namespace stitch {
namespace vec {

#define STITCH_LIBM_UNARY(name)                                              \
  template <class V>                                                         \
  STITCH_INLINE V name(V x) {                                                \
    Element<V> lane[lanes<V>];                                               \
    __builtin_memcpy(lane, &x, sizeof(x));                                   \
    for (int i = 0; i < lanes<V>; ++i) {                                     \
      if constexpr (is_f32<V>) lane[i] = __builtin_##name##f(lane[i]);       \
      else lane[i] = __builtin_##name(lane[i]);                              \
    }                                                                        \
    __builtin_memcpy(&x, lane, sizeof(x));                                   \
    return x;                                                                \
  }

#define STITCH_LIBM_BINARY(name)                                             \
  template <class V>                                                         \
  STITCH_INLINE V name(V x, V y) {                                           \
    Element<V> lane[lanes<V>], other[lanes<V>];                              \
    __builtin_memcpy(lane, &x, sizeof(x));                                   \
    __builtin_memcpy(other, &y, sizeof(y));                                  \
    for (int i = 0; i < lanes<V>; ++i) {                                     \
      if constexpr (is_f32<V>) lane[i] = __builtin_##name##f(lane[i], other[i]); \
      else lane[i] = __builtin_##name(lane[i], other[i]);                    \
    }                                                                        \
    __builtin_memcpy(&x, lane, sizeof(x));                                   \
    return x;                                                                \
  }

STITCH_LIBM_UNARY(erfc)
STITCH_LIBM_UNARY(sin)
STITCH_LIBM_UNARY(cos)
STITCH_LIBM_UNARY(tan)
STITCH_LIBM_UNARY(asin)
STITCH_LIBM_UNARY(acos)
STITCH_LIBM_UNARY(atan)
STITCH_LIBM_UNARY(sinh)
STITCH_LIBM_UNARY(cosh)
STITCH_LIBM_UNARY(asinh)
STITCH_LIBM_UNARY(acosh)
STITCH_LIBM_UNARY(atanh)
STITCH_LIBM_BINARY(atan2)
STITCH_LIBM_BINARY(pow)
STITCH_LIBM_BINARY(fmod)
#undef STITCH_LIBM_UNARY
#undef STITCH_LIBM_BINARY

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_MATH_LIBM_H_
