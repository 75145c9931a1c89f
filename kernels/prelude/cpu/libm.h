// Lane by lane through the process's libm, for what is rare or hard. The kernel needs no header and no -lm: the
// names are resolved in the process that loads it.
#ifndef TF_STITCH_CPU_LIBM_H_
#define TF_STITCH_CPU_LIBM_H_

#include "vector.h"

namespace stitch {
namespace libm {

using namespace vec;

#define STITCH_LIBM(name)                                                        \
  template <class V>                                                             \
  STITCH_INLINE V name(V x) {                                                    \
    for (int i = 0; i < lanes<V>; ++i) {                                         \
      if constexpr (is_f32<V>) x[i] = __builtin_##name##f(x[i]);                 \
      else x[i] = __builtin_##name(x[i]);                                        \
    }                                                                            \
    return x;                                                                    \
  }
#define STITCH_LIBM_BINARY(name)                                                 \
  template <class V>                                                             \
  STITCH_INLINE V name(V x, V y) {                                               \
    for (int i = 0; i < lanes<V>; ++i) {                                         \
      if constexpr (is_f32<V>) x[i] = __builtin_##name##f(x[i], y[i]);           \
      else x[i] = __builtin_##name(x[i], y[i]);                                  \
    }                                                                            \
    return x;                                                                    \
  }

STITCH_LIBM(erf)
STITCH_LIBM(erfc)
STITCH_LIBM(sin)
STITCH_LIBM(cos)
STITCH_LIBM(tan)
STITCH_LIBM(asin)
STITCH_LIBM(acos)
STITCH_LIBM(atan)
STITCH_LIBM(sinh)
STITCH_LIBM(cosh)
STITCH_LIBM(asinh)
STITCH_LIBM(acosh)
STITCH_LIBM(atanh)
STITCH_LIBM_BINARY(atan2)
STITCH_LIBM_BINARY(pow)
STITCH_LIBM_BINARY(fmod)
#undef STITCH_LIBM
#undef STITCH_LIBM_BINARY

}  // namespace libm
}  // namespace stitch
#endif  // TF_STITCH_CPU_LIBM_H_
