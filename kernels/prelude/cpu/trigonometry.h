// sin, cos, tan, asin, acos, atan, atan2 of f32; of f64 they go through libm.
//
//   sin, cos:  n = nearest integer to x / (pi/2),  r = x - n pi/2 in f64,  |r| <= pi/4,  then by n modulo 4
//              r, 1, -r, -1 ...: a polynomial of r^2 for sin(r) and one for cos(r)
#ifndef TF_STITCH_CPU_TRIGONOMETRY_H_
#define TF_STITCH_CPU_TRIGONOMETRY_H_

#include "wide.h"

namespace stitch {
namespace vec {

constexpr f64 kHalfPiUpper = 0x1.921fb5p+0, kHalfPiLower = 0x1.110b4611a6263p-26;  // the upper part has 25 bits
constexpr f32 kPi = 0x1.921fb6p+1f, kHalfPi = 0x1.921fb6p+0f, kHalfPiRest = -0x1.777a5cp-25f;
constexpr f32 kReducible = 0x1p24f;  // |x| beyond it goes through libm: n would not be exact in an f32

struct Quadrant {
  template <class V>
  static STITCH_MEMBER V of(V x) {
    return madd(x, 0x1.45f306dc9c883p-1, FloatOf<V>::round) - FloatOf<V>::round;
  }
};
struct Reduced {
  template <class V>
  static STITCH_MEMBER V of(V x) {
    V n = Quadrant::of(x);
    return madd(n, -kHalfPiLower, madd(n, -kHalfPiUpper, x));
  }
};

struct Tan {
  template <class V>
  static STITCH_MEMBER V of(V x) {
    V n = Quadrant::of(x), r = Reduced::of(x), z = r * r, half = n * 0.5;
    V s = madd(z, f64(kSinF32[2]), f64(kSinF32[1]));
    s = madd(madd(s, z, f64(kSinF32[0])), z * r, r);
    V c = madd(z, f64(kCosF32[2]), f64(kCosF32[1]));
    c = madd(madd(c, z, f64(kCosF32[0])), z * z, madd(z, -0.5, 1.0));
    Bits<V> even = (Bits<V>)(rint(half) == half);
    return (even ? s : -c) / (even ? c : s);
  }
};

template <class V>
STITCH_INLINE V sin_near_zero(V r) {
  V z = r * r;
  V p = madd(z, kSinF32[2], kSinF32[1]);
  p = madd(p, z, kSinF32[0]);
  return madd(p, z * r, r);
}
template <class V>
STITCH_INLINE V cos_near_zero(V r) {
  V z = r * r;
  V p = madd(z, kCosF32[2], kCosF32[1]);
  p = madd(p, z, kCosF32[0]);
  return madd(p, z * z, madd(z, -0.5f, 1.0f));
}

// sin(r + n pi/2)
template <class V>
STITCH_INLINE V sin_of(V r, Bits<V> n) {
  V y = (n & 1) != 0 ? cos_near_zero(r) : sin_near_zero(r);
  return (V)((Bits<V>)y ^ ((n & 2) << 30));
}

// y, or libm's value in the lanes where x is too large to be reduced
template <class V, class Libm>
STITCH_INLINE V unless_large(V x, V y, Libm libm) {
  Bits<V> large = (Bits<V>)(abs(x) > kReducible);
  if (__builtin_expect(any(large), 0)) y = large ? libm(x) : y;
  return y;
}

template <class V>
STITCH_INLINE V sin(V x) {
  if constexpr (is_f32<V>) {
    V y = sin_of(in_f64<Reduced>(x), cast<i32>(in_f64<Quadrant>(x)));
    return unless_large(x, x == 0 ? x : y, [](V v) { return libm::sin(v); });
  } else {
    return libm::sin(x);
  }
}
template <class V>
STITCH_INLINE V cos(V x) {
  if constexpr (is_f32<V>) {
    V y = sin_of(in_f64<Reduced>(x), cast<i32>(in_f64<Quadrant>(x)) + 1);
    return unless_large(x, y, [](V v) { return libm::cos(v); });
  } else {
    return libm::cos(x);
  }
}
template <class V>
STITCH_INLINE V tan(V x) {
  if constexpr (is_f32<V>) {
    V y = in_f64<Tan>(x);
    return unless_large(x, x == 0 ? x : y, [](V v) { return libm::tan(v); });
  } else {
    return libm::tan(x);
  }
}

// asin(s), |s| <= 1/2
template <class V>
STITCH_INLINE V asin_near_zero(V s) {
  V z = s * s;
  V p = madd(z, kAsinF32[4], kAsinF32[3]);
  p = madd(p, z, kAsinF32[2]);
  p = madd(p, z, kAsinF32[1]);
  p = madd(p, z, kAsinF32[0]);
  return madd(p, z * s, s);
}

// asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)) for x > 1/2
template <class V>
STITCH_INLINE V asin(V x) {
  if constexpr (is_f32<V>) {
    V a = abs(x);
    Bits<V> large = (Bits<V>)(a > 0.5f);
    V s = asin_near_zero(large ? sqrt((1 - a) * 0.5f) : a);
    return copysign(large ? kHalfPi - ((s + s) - kHalfPiRest) : s, x);
  } else {
    return libm::asin(x);
  }
}
template <class V>
STITCH_INLINE V acos(V x) {
  if constexpr (is_f32<V>) {
    V a = abs(x);
    Bits<V> large = (Bits<V>)(a > 0.5f);
    V s = asin_near_zero(large ? sqrt((1 - a) * 0.5f) : x);
    V twice = s + s;
    V far = x < 0 ? kPi - (twice - 2 * kHalfPiRest) : twice;
    return large ? far : kHalfPi - (s - kHalfPiRest);
  } else {
    return libm::acos(x);
  }
}

// atan(s), 0 <= s <= 1
template <class V>
STITCH_INLINE V atan_to_one(V s) {
  V z = s * s;
  V above = madd(z, kAtanF32[3], kAtanF32[2]);
  above = madd(above, z, kAtanF32[1]);
  above = madd(above, z, kAtanF32[0]);
  V below = madd(z, kAtanBelowF32[3], kAtanBelowF32[2]);
  below = madd(below, z, kAtanBelowF32[1]);
  below = madd(below, z, kAtanBelowF32[0]);
  return s * above / below;
}

template <class V>
STITCH_INLINE V atan(V x) {
  if constexpr (is_f32<V>) {
    V a = abs(x);
    Bits<V> large = (Bits<V>)(a > 1);
    V t = atan_to_one(large ? 1 / a : a);
    return copysign(large ? kHalfPi - (t - kHalfPiRest) : t, x);
  } else {
    return libm::atan(x);
  }
}
template <class V>
STITCH_INLINE V atan2(V y, V x) {
  if constexpr (is_f32<V>) {
    V a = abs(y), b = abs(x), top = min2(a, b), bottom = max2(a, b);
    V s = top / bottom;
    s = bottom == 0 ? V{} : s;
    s = top == __builtin_inff() ? fill<V>(1) : s;
    V t = atan_to_one(s);
    t = a > b ? kHalfPi - (t - kHalfPiRest) : t;
    t = (Bits<V>)x < 0 ? kPi - (t - 2 * kHalfPiRest) : t;
    t = copysign(t, y);
    return ((x != x) | (y != y)) ? x + y : t;
  } else {
    return libm::atan2(y, x);
  }
}

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_TRIGONOMETRY_H_
