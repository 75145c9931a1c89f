// exp, expm1, log, log1p of f32 and f64: one algorithm, two sets of constants.
//
//   exp:  n = nearest integer to x / ln 2,  r = x - n ln 2,  |r| <= ln 2 / 2,  e^x = 2^n (1 + r + r^2 q(r))
//   log:  x = 2^e m,  3/4 <= m < 3/2,  f = m - 1,  log x = e ln 2 + f + (what log(1 + f) has beyond f)
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

// e^r for |r| <= ln 2 / 2
template <class V>
STITCH_INLINE V exp_near_zero(V r) {
  V q;
  if constexpr (is_f32<V>) {
    q = madd(r, kExpF32[4], kExpF32[3]);
  } else {
    q = madd(r, kExpF64[9], kExpF64[8]);
    q = madd(q, r, kExpF64[7]);
    q = madd(q, r, kExpF64[6]);
    q = madd(q, r, kExpF64[5]);
    q = madd(q, r, kExpF64[4]);
    q = madd(q, r, kExpF64[3]);
  }
  q = madd(q, r, is_f32<V> ? kExpF32[2] : kExpF64[2]);
  q = madd(q, r, is_f32<V> ? kExpF32[1] : kExpF64[1]);
  q = madd(q, r, is_f32<V> ? kExpF32[0] : kExpF64[0]);
#ifdef STITCH_FUSED
  return madd(madd(q, r, 1), r, 1);
#else
  return 1 + madd(q, r * r, r);  // one rounding less
#endif
}

// e^r - 1 for |r| <= ln 2 / 2
template <class V>
STITCH_INLINE V expm1_near_zero(V r) {
  V q;
  if constexpr (is_f32<V>) {
    q = madd(r, kExpm1F32[4], kExpm1F32[3]);
    q = madd(q, r, kExpm1F32[2]);
    q = madd(q, r, kExpm1F32[1]);
    q = madd(q, r, kExpm1F32[0]);
  } else {
    q = madd(r, kExpm1F64[10], kExpm1F64[9]);
    q = madd(q, r, kExpm1F64[8]);
    q = madd(q, r, kExpm1F64[7]);
    q = madd(q, r, kExpm1F64[6]);
    q = madd(q, r, kExpm1F64[5]);
    q = madd(q, r, kExpm1F64[4]);
    q = madd(q, r, kExpm1F64[3]);
    q = madd(q, r, kExpm1F64[2]);
    q = madd(q, r, kExpm1F64[1]);
    q = madd(q, r, kExpm1F64[0]);
  }
  return madd(q, r * r, r);
}

#ifdef STITCH_AVX512
// x = 2^exponent_of(x) mantissa_of(x), 3/4 <= mantissa_of(x) < 3/2
#define STITCH_POWERS(T, I, L, suffix, ...)                                                          \
  STITCH_INLINE Vec<T, L> times_power(Vec<T, L> x, Vec<T, L> n) {                                    \
    return __builtin_ia32_scalef##suffix##_mask(x, n, x, -1 __VA_ARGS__);                            \
  }                                                                                                  \
  STITCH_INLINE Vec<T, L> floor_log2(Vec<T, L> x) {                                                  \
    return __builtin_ia32_getexp##suffix##_mask(x, x, -1 __VA_ARGS__);                               \
  }                                                                                                  \
  STITCH_INLINE Vec<T, L> mantissa_of(Vec<T, L> x) {                                                 \
    return __builtin_ia32_getmant##suffix##_mask(x, 3, x, -1 __VA_ARGS__);                           \
  }                                                                                                  \
  STITCH_INLINE Vec<T, L> outside(Vec<T, L> x, Vec<T, L> y, i32 table) {                               \
    return __builtin_ia32_fixupimm##suffix##_mask(y, x, fill<Vec<I, L>>(I(table)), 0, -1 __VA_ARGS__);  \
  }
STITCH_POWERS(f32, i32, 16, ps512, , 4)
STITCH_POWERS(f32, i32, 8, ps256)
STITCH_POWERS(f32, i32, 4, ps128)
STITCH_POWERS(f64, i64, 8, pd512, , 4)
STITCH_POWERS(f64, i64, 4, pd256)
STITCH_POWERS(f64, i64, 2, pd128)
#undef STITCH_POWERS
#endif

// NaN gives NaN. Where the result is subnormal it may be 0, as in threads that flush subnormals.
template <class V>
STITCH_INLINE V exp(V x) {
  typedef FloatOf<V> F;
#ifdef STITCH_AVX512
  V c = min2(fill<V>(F::exp_high + Element<V>(0.25)), max2(fill<V>(F::exp_zero), x));
  V n = madd(c, F::log2_e, F::round) - F::round;
  V r = madd(n, -F::ln2_lower, madd(n, -F::ln2_upper, c));
  return times_power(exp_near_zero(r), n);
#else
  V shifted = madd(x, F::log2_e, F::round);
  V n = shifted - F::round;
  V r = madd(n, -F::ln2_lower, madd(n, -F::ln2_upper, x));
  // n is added to the exponent: no overflow up to exp_high, where n = bias + 1 only if r < 0
  V y = (V)((Bits<V>)exp_near_zero(r) + ((Bits<V>)shifted << F::mantissa));
  y = x <= F::exp_high ? y : x * F::infinity;  // infinity or NaN
  return x < F::exp_low ? V{} : y;
#endif
}

template <class V>
STITCH_INLINE V expm1(V x) {
  typedef FloatOf<V> F;
  V c = min2(fill<V>(F::exp_high + Element<V>(0.25)), max2(fill<V>(-F::mantissa - 3), x));
  V shifted = madd(c, F::log2_e, F::round);
  V n = shifted - F::round;
  V r = madd(n, -F::ln2_lower, madd(n, -F::ln2_upper, c));
  // 2^n itself is out of range for the largest x
  V half = (V)(((Bits<V>)shifted << F::mantissa) + (Bits<V>)fill<V>(0.5));
  V y = madd(half, expm1_near_zero(r), half - Element<V>(0.5));
  return copysign(y + y, x);
}

// log(1 + f) - f for -1/4 <= f < 1/2
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

// x as 2^e m with 3/4 <= m < 3/2
template <class V>
struct Split {
  V e, m;
  V down;  // what `scaled` takes to multiply by 2^-e
};

#ifdef STITCH_AVX512
template <class V>
STITCH_INLINE Split<V> split(V x) {
  V m = mantissa_of(x), e = floor_log2(x) - floor_log2(m);
  return {e, m, -e};
}
template <class V>
STITCH_INLINE V scaled(V x, V down) {
  return times_power(x, down);
}
#else
// x is positive and normal
template <class V>
STITCH_INLINE Split<V> split(V x) {
  typedef FloatOf<V> F;
  typedef Unsigned<V> U;
  U one = (U)fill<V>(1);
  U biased = ((U)x + (one - (U)fill<V>(0.75))) >> F::mantissa;
  U shifted = (biased << F::mantissa) - one;
  Bits<V> power = (Bits<V>)(one - shifted);
  power = power > 0 ? power : Bits<V>{};  // 0 for the largest x, where it would overflow
  return {(V)(biased + (U)fill<V>(F::round)) - (F::round + F::bias), (V)((U)x - shifted), (V)power};
}
template <class V>
STITCH_INLINE V scaled(V x, V down) {
  return x * down;
}
#endif

// log of u + lost, where lost is less than a digit of u
template <class V>
STITCH_INLINE V log_of_sum(V u, V lost) {
  Split<V> s = split(u);
  return log_of(s.e, (s.m - 1) + scaled(lost, s.down));
}

// The log of 0 (and of what a thread that flushes subnormals takes for 0) is -infinity; of less, and of NaN, NaN.
template <class V>
STITCH_INLINE V log_outside(V x, V y) {
#ifdef STITCH_AVX512
  // per class of x, from the right: QNaN 2 (itself), SNaN 2, 0 -infinity, 1 y, -infinity NaN, +infinity itself,
  // negative NaN, positive y
  return outside(x, y, 0x03530422);
#else
  typedef FloatOf<V> F;
  y = x < F::infinity ? y : x;
  return x >= F::smallest ? y : x > -F::smallest ? fill<V>(-F::infinity) : fill<V>(-__builtin_nan(""));
#endif
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
  V y = log_outside(u, log_of_sum(u, lost));
  return abs(x) < FloatOf<V>::smallest ? x : y;  // -0 too
}

// log(1 + e^x), without overflow
template <class V>
STITCH_INLINE V softplus(V x) {
  V e = exp(-abs(x));
  V u = 1 + e;
  V y = log_of_sum(u, e - (u - 1));
  return max2(V{}, x) + y;
}

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_EXP_LOG_H_
