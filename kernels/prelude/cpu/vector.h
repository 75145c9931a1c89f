// Primitives on one native vector V of f32 or f64, which C++ has no operator for. Everything else in the prelude
// is written with these, the operators of the vector extension, and `condition ? a : b`.
#ifndef TF_STITCH_CPU_VECTOR_H_
#define TF_STITCH_CPU_VECTOR_H_

#include "types.h"

#if defined(__FMA__) || defined(__aarch64__)
#define STITCH_FUSED 1
#endif

namespace stitch {
namespace vec {

template <class V>
V& any_of_type();
template <class T>
struct Bare;
template <class T>
struct Bare<T&> {
  typedef T type;
};
template <class V>
using Element = typename Bare<decltype(any_of_type<V>()[0])>::type;
template <class V>
constexpr int lanes = sizeof(V) / sizeof(Element<V>);
template <class V>
constexpr bool is_integer = Element<V>(0.5) == 0;
template <class V>
constexpr bool is_f32 = same<Element<V>, f32>;

template <class T>
struct IntOf {
  typedef i32 type;
};
template <>
struct IntOf<f64> {
  typedef i64 type;
};
template <>
struct IntOf<i64> {
  typedef i64 type;
};
// The integers as wide as V's elements: what a comparison of two V gives, and V's bits.
template <class V>
using Bits = Vec<typename IntOf<Element<V>>::type, lanes<V>>;

template <class V>
constexpr typename IntOf<Element<V>>::type sign_bit = typename IntOf<Element<V>>::type(1ull << (8 * sizeof(Element<V>) - 1));

template <class V>
STITCH_INLINE V fill(Element<V> s) {
  return s - V{};  // not s + V{}: -0 stays -0
}

// Is any lane of a comparison true?
template <class I>
STITCH_INLINE bool any(I m) {
  if constexpr (sizeof(m) > 16) {
    return any(low_half<Element<I>, lanes<I>>(m) | high_half<Element<I>, lanes<I>>(m));
  } else {
    Vec<i64, 2> words = (Vec<i64, 2>)m;
    return (words[0] | words[1]) != 0;
  }
}

template <class V>
STITCH_INLINE V abs(V x) {
  return (V)((Bits<V>)x & ~sign_bit<V>);
}

// |x| with the sign of s
template <class V>
STITCH_INLINE V copysign(V x, V s) {
  return (V)(((Bits<V>)x & ~sign_bit<V>) | ((Bits<V>)s & sign_bit<V>));
}

// A comparison is not enough for the compilers to see them: g++ misses them where an operand is a constant, clang where
// the result goes into another select.
#if defined(STITCH_AVX512) && defined(__clang__)
#define STITCH_EXTREME(name)                                                                   \
  if constexpr (same<V, Vec<f32, 16>>) return __builtin_ia32_##name##ps512(a, b, 4);           \
  else if constexpr (same<V, Vec<f64, 8>>) return __builtin_ia32_##name##pd512(a, b, 4);       \
  else
#elif defined(STITCH_AVX512)
#define STITCH_EXTREME(name)                                                                   \
  if constexpr (same<V, Vec<f32, 16>>) return __builtin_ia32_##name##ps512_mask(a, b, a, -1, 4); \
  else if constexpr (same<V, Vec<f64, 8>>) return __builtin_ia32_##name##pd512_mask(a, b, a, -1, 4); \
  else
#elif defined(__AVX__) && defined(__clang__)
#define STITCH_EXTREME(name)                                                                   \
  if constexpr (same<V, Vec<f32, 8>>) return __builtin_ia32_##name##ps256(a, b);               \
  else if constexpr (same<V, Vec<f64, 4>>) return __builtin_ia32_##name##pd256(a, b);          \
  else
#else
#define STITCH_EXTREME(name)
#endif
// The hardware's max and min: the second operand where either is NaN or both are zero.
template <class V>
STITCH_INLINE V max2(V a, V b) {
  STITCH_EXTREME(max)
  return a > b ? a : b;
}
template <class V>
STITCH_INLINE V min2(V a, V b) {
  STITCH_EXTREME(min)
  return a < b ? a : b;
}
#undef STITCH_EXTREME

#if STITCH_HAS(__builtin_elementwise_fma)
#define STITCH_FOR_ALL_VECTORS(name, builtin) \
  template <class V>                          \
  STITCH_INLINE V name(V x) {                 \
    return builtin(x);                        \
  }
STITCH_FOR_ALL_VECTORS(floor, __builtin_elementwise_floor)
STITCH_FOR_ALL_VECTORS(ceil, __builtin_elementwise_ceil)
STITCH_FOR_ALL_VECTORS(trunc, __builtin_elementwise_trunc)
STITCH_FOR_ALL_VECTORS(rint, __builtin_elementwise_roundeven)
STITCH_FOR_ALL_VECTORS(sqrt, __builtin_elementwise_sqrt)
#undef STITCH_FOR_ALL_VECTORS

// a * b + c, fused where the machine can: for polynomials and products of matrices, never for other arithmetic of the user.
template <class V>
STITCH_INLINE V madd(V a, V b, V c) {
#ifdef STITCH_FUSED
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}
#elif defined(__SSE4_1__)
// 8: no exception for an inexact result
#define STITCH_ROUND(name, mode)                                                                           \
  STITCH_INLINE Vec<f32, 4> name(Vec<f32, 4> x) { return __builtin_ia32_roundps(x, mode | 8); }            \
  STITCH_INLINE Vec<f64, 2> name(Vec<f64, 2> x) { return __builtin_ia32_roundpd(x, mode | 8); }            \
  STITCH_IF_AVX(STITCH_INLINE Vec<f32, 8> name(Vec<f32, 8> x) { return __builtin_ia32_roundps256(x, mode | 8); })  \
  STITCH_IF_AVX(STITCH_INLINE Vec<f64, 4> name(Vec<f64, 4> x) { return __builtin_ia32_roundpd256(x, mode | 8); })  \
  STITCH_IF_AVX512(STITCH_INLINE Vec<f32, 16> name(Vec<f32, 16> x) {                                       \
    return __builtin_ia32_rndscaleps_mask(x, mode | 8, x, -1, 4);                                          \
  })                                                                                                       \
  STITCH_IF_AVX512(STITCH_INLINE Vec<f64, 8> name(Vec<f64, 8> x) {                                         \
    return __builtin_ia32_rndscalepd_mask(x, mode | 8, x, -1, 4);                                          \
  })
#ifdef __AVX2__
#define STITCH_IF_AVX(...) __VA_ARGS__
#else
#define STITCH_IF_AVX(...)
#endif
#ifdef STITCH_AVX512
#define STITCH_IF_AVX512(...) __VA_ARGS__
#else
#define STITCH_IF_AVX512(...)
#endif
STITCH_ROUND(rint, 0)
STITCH_ROUND(floor, 1)
STITCH_ROUND(ceil, 2)
STITCH_ROUND(trunc, 3)
#undef STITCH_ROUND

STITCH_INLINE Vec<f32, 4> sqrt(Vec<f32, 4> x) { return __builtin_ia32_sqrtps(x); }
STITCH_INLINE Vec<f64, 2> sqrt(Vec<f64, 2> x) { return __builtin_ia32_sqrtpd(x); }
STITCH_IF_AVX(STITCH_INLINE Vec<f32, 8> sqrt(Vec<f32, 8> x) { return __builtin_ia32_sqrtps256(x); })
STITCH_IF_AVX(STITCH_INLINE Vec<f64, 4> sqrt(Vec<f64, 4> x) { return __builtin_ia32_sqrtpd256(x); })
STITCH_IF_AVX512(STITCH_INLINE Vec<f32, 16> sqrt(Vec<f32, 16> x) { return __builtin_ia32_sqrtps512_mask(x, x, -1, 4); })
STITCH_IF_AVX512(STITCH_INLINE Vec<f64, 8> sqrt(Vec<f64, 8> x) { return __builtin_ia32_sqrtpd512_mask(x, x, -1, 4); })

// a * b + c, fused where the machine can: for polynomials and products of matrices, never for other arithmetic of the user.
#ifdef STITCH_FUSED
STITCH_INLINE Vec<f32, 4> madd(Vec<f32, 4> a, Vec<f32, 4> b, Vec<f32, 4> c) { return __builtin_ia32_vfmaddps(a, b, c); }
STITCH_INLINE Vec<f64, 2> madd(Vec<f64, 2> a, Vec<f64, 2> b, Vec<f64, 2> c) { return __builtin_ia32_vfmaddpd(a, b, c); }
STITCH_INLINE Vec<f32, 8> madd(Vec<f32, 8> a, Vec<f32, 8> b, Vec<f32, 8> c) { return __builtin_ia32_vfmaddps256(a, b, c); }
STITCH_INLINE Vec<f64, 4> madd(Vec<f64, 4> a, Vec<f64, 4> b, Vec<f64, 4> c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
STITCH_IF_AVX512(STITCH_INLINE Vec<f32, 16> madd(Vec<f32, 16> a, Vec<f32, 16> b, Vec<f32, 16> c) {
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
})
STITCH_IF_AVX512(STITCH_INLINE Vec<f64, 8> madd(Vec<f64, 8> a, Vec<f64, 8> b, Vec<f64, 8> c) {
  return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
})
#else
template <class V>
STITCH_INLINE V madd(V a, V b, V c) {
  return a * b + c;
}
#endif
#else  // g++ for another machine
#define STITCH_LANES(name, builtin)                                                    \
  template <class V>                                                                   \
  STITCH_INLINE V name(V x) {                                                          \
    for (int i = 0; i < lanes<V>; ++i) {                                               \
      if constexpr (is_f32<V>) x[i] = __builtin_##builtin##f(x[i]);                    \
      else x[i] = __builtin_##builtin(x[i]);                                           \
    }                                                                                  \
    return x;                                                                          \
  }
STITCH_LANES(floor, floor)
STITCH_LANES(ceil, ceil)
STITCH_LANES(trunc, trunc)
STITCH_LANES(rint, rint)
STITCH_LANES(sqrt, sqrt)
#undef STITCH_LANES

template <class V>
STITCH_INLINE V madd(V a, V b, V c) {
#ifdef __aarch64__
  if constexpr (is_f32<V>) return __builtin_aarch64_fmav4sf(a, b, c);
  else return __builtin_aarch64_fmav2df(a, b, c);
#else
  return a * b + c;
#endif
}
#endif

// With a constant for c, or for b and c: a step of Horner's rule.
template <class V>
STITCH_INLINE V madd(V a, V b, Element<V> c) {
  return madd(a, b, fill<V>(c));
}
template <class V>
STITCH_INLINE V madd(V a, Element<V> b, Element<V> c) {
  return madd(a, fill<V>(b), fill<V>(c));
}
template <class V>
STITCH_INLINE V madd(V a, Element<V> b, V c) {
  return madd(a, fill<V>(b), c);
}

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_VECTOR_H_
