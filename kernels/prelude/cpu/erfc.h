// erfc.
#ifndef TF_STITCH_CPU_ERFC_H_
#define TF_STITCH_CPU_ERFC_H_

#include "exp_log.h"
#include "libm.h"

namespace stitch {
namespace vec {

// x^2 less `square`, which is x^2 rounded
template <class V>
STITCH_INLINE V square_error(V x, V square) {
#ifdef STITCH_FUSED
  return madd(x, x, -square);
#else
  V high = (V)((Bits<V>)x & ~0xfff), low = x - high;
  return ((high * high - square) + 2 * high * low) + low * low;
#endif
}

// e^(-x^2) times a quotient of polynomials whose coefficients are positive, so that nothing cancels. The exponent is
// large: what rounding x^2 leaves out counts. Where the result is subnormal it may be 0, as that of exp.
template <class V>
STITCH_INLINE V erfc_f32(V x) {
  V a = min2(fill<V>(10.1f), abs(x));  // NaN stays NaN
  V above = madd(a, kErfcF32[4], kErfcF32[3]);
  above = madd(above, a, kErfcF32[2]);
  above = madd(above, a, kErfcF32[1]);
  above = madd(above, a, kErfcF32[0]);
  V below = madd(a, kErfcBelowF32[5], kErfcBelowF32[4]);
  below = madd(below, a, kErfcBelowF32[3]);
  below = madd(below, a, kErfcBelowF32[2]);
  below = madd(below, a, kErfcBelowF32[1]);
  below = madd(below, a, kErfcBelowF32[0]);
  V square = a * a;
  V y = exp(-square) * (above / below);
  y = madd(-square_error(a, square), y, y);
  return x < 0 ? 2 - y : y;
}

template <class V>
STITCH_INLINE V erfc(V x) {
  if constexpr (is_f32<V>) return erfc_f32(x);
  else return libm::erfc(x);
}

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_ERFC_H_
