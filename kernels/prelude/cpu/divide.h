// Quotients and remainders: truncate_div, truncate_mod, floor_div, floor_mod.
#ifndef TF_STITCH_CPU_DIVIDE_H_
#define TF_STITCH_CPU_DIVIDE_H_

#include "libm.h"
#include "pack.h"

namespace stitch {

// ---- integers divide lane by lane. Never a trap: by zero gives 0 (TF's error is the host's business), and the
// smallest integer by -1 gives itself.

template <class T>
STITCH_INLINE T truncate_div_one(T a, T b) {
  return b == 0 ? T(0) : b == -1 ? -a : a / b;
}
template <class T>
STITCH_INLINE T truncate_mod_one(T a, T b) {
  return b == 0 || b == -1 ? T(0) : a % b;
}
template <class T>
STITCH_INLINE T floor_div_one(T a, T b) {
  T q = truncate_div_one(a, b);
  return q - T(b != 0 && q * b != a && (a < 0) != (b < 0));
}
template <class T>
STITCH_INLINE T floor_mod_one(T a, T b) {
  T r = truncate_mod_one(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

namespace vec {

#define STITCH_INTEGER(name)                                                                   \
  template <class V>                                                                           \
  STITCH_INLINE V integer_##name(V a, V b) {                                                   \
    for (int i = 0; i < lanes<V>; ++i) a[i] = name##_one<Element<V>>(a[i], b[i]);              \
    return a;                                                                                  \
  }
STITCH_INTEGER(truncate_div)
STITCH_INTEGER(truncate_mod)
STITCH_INTEGER(floor_div)
STITCH_INTEGER(floor_mod)
#undef STITCH_INTEGER

template <class V>
STITCH_INLINE V truncate_div(V a, V b) {
  if constexpr (is_integer<V>) return integer_truncate_div(a, b);
  else return trunc(a / b);
}
template <class V>
STITCH_INLINE V truncate_mod(V a, V b) {
  if constexpr (is_integer<V>) return integer_truncate_mod(a, b);
  else return libm::fmod(a, b);
}
template <class V>
STITCH_INLINE V floor_div(V a, V b) {
  if constexpr (is_integer<V>) return integer_floor_div(a, b);
  else return floor(a / b);
}
// b's sign, or 0 with fmod's sign
template <class V>
STITCH_INLINE V floor_mod(V a, V b) {
  if constexpr (is_integer<V>) return integer_floor_mod(a, b);
  else {
    V m = libm::fmod(a, b);
    return ((m != 0) & ((b < 0) != (m < 0))) ? m + b : m;
  }
}

}  // namespace vec

STITCH_LIFT_BINARY(truncate_div)
STITCH_LIFT_BINARY(truncate_mod)
STITCH_LIFT_BINARY(floor_div)
STITCH_LIFT_BINARY(floor_mod)

}  // namespace stitch
#endif  // TF_STITCH_CPU_DIVIDE_H_
