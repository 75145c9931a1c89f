// exp, expm1, log, log1p of f32 and f64: one algorithm, two sets of constants.
//
//   exp:  n = nearest integer to x / ln 2,  r = x - n ln 2,  |r| <= ln 2 / 2,  e^x = 2^n (1 + r + r^2 q(r))
//   log:  x = 2^e m,  2/3 <= m < 4/3,  f = m - 1,  log x = e ln 2 + f + (what log(1 + f) has beyond f)
//
// ln 2 is used in two parts. The upper one has so few bits that its product with an exponent is exact.
#ifndef TF_STITCH_CPU_EXP_LOG_H_
#define TF_STITCH_CPU_EXP_LOG_H_

#include "coefficients.h"
#include "vector.h"

namespace stitch {
namespace vec {

template <class T>
struct Float;
template <>
struct Float<f32> {
  typedef u32 Unsigned;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr f32 round = 0x1.8p23f;  // adding it leaves an integer in the low bits
  static constexpr f32 log2_e = 0x1.715476p+0f, ln2_upper = 0x1.63p-1f, ln2_lower = -0x1.bd0106p-13f;
  static constexpr f32 smallest = 0x1p-126f, infinity = __builtin_inff();
  static constexpr f32 exp_low = -0x1.5d589ep+6f;  // exp is subnormal below
  static constexpr f32 exp_high = 0x1.62e42ep+6f;  // exp is infinite above
  static constexpr f32 exp_zero = -0x1.a0p+6f;     // exp is 0 below, subnormals counted
};
template <>
struct Float<f64> {
  typedef u64 Unsigned;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr f64 round = 0x1.8p52;
  static constexpr f64 log2_e = 0x1.71547652b82fep+0, ln2_upper = 0x1.62e42fefap-1, ln2_lower = 0x1.cf79abc9e3b3ap-40;
  static constexpr f64 smallest = 0x1p-1022, infinity = __builtin_inf();
  static constexpr f64 exp_low = -0x1.6232bdd7abcd2p+9;
  static constexpr f64 exp_high = 0x1.62e42fefa39efp+9;
  static constexpr f64 exp_zero = -0x1.75p+9;
};
template <class V>
using FloatOf = Float<Element<V>>;
template <class V>
using Unsigned = Vec<typename FloatOf<V>::Unsigned, lanes<V>>;

// e^r - 1 for |r| <= ln 2 / 2
template <class V>
STITCH_INLINE V expm1_near_zero(V r) {
  V q;
  if constexpr (is_f32<V>) {
    q = madd(r, kExpF32[4], kExpF32[3]);
    q = madd(q, r, kExpF32[2]);
    q = madd(q, r, kExpF32[1]);
    q = madd(q, r, kExpF32[0]);
  } else {
    q = madd(r, kExpF64[10], kExpF64[9]);
    q = madd(q, r, kExpF64[8]);
    q = madd(q, r, kExpF64[7]);
    q = madd(q, r, kExpF64[6]);
    q = madd(q, r, kExpF64[5]);
    q = madd(q, r, kExpF64[4]);
    q = madd(q, r, kExpF64[3]);
    q = madd(q, r, kExpF64[2]);
    q = madd(q, r, kExpF64[1]);
    q = madd(q, r, kExpF64[0]);
  }
  return madd(q, r * r, r);
}

#ifdef STITCH_AVX512
#define STITCH_SCALE(T, L, builtin, ...) \
  STITCH_INLINE Vec<T, L> times_power(Vec<T, L> x, Vec<T, L> n) { return __builtin_ia32_scalef##builtin##_mask(x, n, x, -1 __VA_ARGS__); }
STITCH_SCALE(f32, 16, ps512, , 4)
STITCH_SCALE(f32, 8, ps256)
STITCH_SCALE(f32, 4, ps128)
STITCH_SCALE(f64, 8, pd512, , 4)
STITCH_SCALE(f64, 4, pd256)
STITCH_SCALE(f64, 2, pd128)
#undef STITCH_SCALE
#endif

// NaN gives NaN. Where the result is subnormal it may be 0, as in threads that flush subnormals.
template <class V>
STITCH_INLINE V exp(V x) {
  typedef FloatOf<V> F;
#ifdef STITCH_AVX512
  V c = min2(fill<V>(F::exp_high + 1), max2(fill<V>(F::exp_zero), x));
  V n = madd(c, F::log2_e, F::round) - F::round;
  V r = madd(n, -F::ln2_lower, madd(n, -F::ln2_upper, c));
  return times_power(1 + expm1_near_zero(r), n);
#else
  V shifted = madd(x, F::log2_e, F::round);
  V n = shifted - F::round;
  V r = madd(n, -F::ln2_lower, madd(n, -F::ln2_upper, x));
  // n is added to the exponent: no overflow up to exp_high, where n = bias + 1 only if r < 0
  V y = (V)((Bits<V>)(1 + expm1_near_zero(r)) + ((Bits<V>)shifted << F::mantissa));
  y = x <= F::exp_high ? y : x * F::exp_high * (1 / F::smallest);  // infinity or NaN
  return x < F::exp_low ? V{} : y;
#endif
}

template <class V>
STITCH_INLINE V expm1(V x) {
  typedef FloatOf<V> F;
  V c = min2(fill<V>(F::exp_high + 1), max2(fill<V>(-F::mantissa - 3), x));
  V shifted = madd(c, F::log2_e, F::round);
  V n = shifted - F::round;
  V r = madd(n, -F::ln2_lower, madd(n, -F::ln2_upper, c));
  // 2^n itself is out of range for the largest x
  V half = (V)(((Bits<V>)shifted << F::mantissa) + (Bits<V>)fill<V>(0.5));
  V y = madd(half, expm1_near_zero(r), half - Element<V>(0.5));
  return copysign(y + y, x);
}

// log(1 + f) - f for |f| <= 1/3
template <class V>
STITCH_INLINE V log1p_beyond(V f) {
  V square = f * f;
  if constexpr (is_f32<V>) {
    V p = madd(f, kLogF32[7], kLogF32[6]);
    p = madd(p, f, kLogF32[5]);
    p = madd(p, f, kLogF32[4]);
    p = madd(p, f, kLogF32[3]);
    p = madd(p, f, kLogF32[2]);
    p = madd(p, f, kLogF32[1]);
    p = madd(p, f, kLogF32[0]);
    return square * madd(p, f, -0.5f);
  } else {
    V s = f / (2 + f), z = s * s;
    V p = madd(z, kLogF64[7], kLogF64[6]);
    p = madd(p, z, kLogF64[5]);
    p = madd(p, z, kLogF64[4]);
    p = madd(p, z, kLogF64[3]);
    p = madd(p, z, kLogF64[2]);
    p = madd(p, z, kLogF64[1]);
    p = madd(p, z, kLogF64[0]);
    V half = square * 0.5;
    return madd(s, madd(p, z, half), -half);
  }
}

// log of 2^e (1 + f)
template <class V>
STITCH_INLINE V log_of(V e, V f) {
  typedef FloatOf<V> F;
  return madd(e, F::ln2_upper, f + madd(e, F::ln2_lower, log1p_beyond(f)));
}

// x (positive, normal) as 2^e m with 2/3 <= m < 4/3; `power` is 2^-e.
template <class V>
struct Split {
  V e, m, power;
};
template <class V>
STITCH_INLINE Split<V> split(V x) {
  typedef FloatOf<V> F;
  typedef Unsigned<V> U;
  U biased = ((U)x + ((U)fill<V>(1) - (U)fill<V>(Element<V>(2) / 3))) >> F::mantissa;
  U shifted = (biased << F::mantissa) - (U)fill<V>(1);
  V e = (V)(biased + (U)fill<V>(F::round)) - (F::round + F::bias);
  return {e, (V)((U)x - shifted), (V)((U)fill<V>(1) - shifted)};
}

// Of 0 and what a thread that flushes subnormals takes for 0: -infinity. Of less, and of NaN: NaN.
template <class V>
STITCH_INLINE V log_outside(V x, V y) {
  typedef FloatOf<V> F;
  y = x < F::infinity ? y : x;
  return x >= F::smallest ? y : x > -F::smallest ? fill<V>(-F::infinity) : fill<V>(-__builtin_nan(""));
}

template <class V>
STITCH_INLINE V log(V x) {
  Split<V> s = split(x);
  return log_outside(x, log_of(s.e, s.m - 1));
}

template <class V>
STITCH_INLINE V log1p(V x) {
  V u = 1 + x;
  V back = u - 1;
  V lost = (1 - (u - back)) + (x - back);  // 1 + x = u + lost, exactly
  Split<V> s = split(u);
  V y = log_of(s.e, madd(lost, s.power, s.m - 1));
  y = log_outside(u, y);
  return abs(x) < FloatOf<V>::smallest ? x : y;  // -0 too
}

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_EXP_LOG_H_
