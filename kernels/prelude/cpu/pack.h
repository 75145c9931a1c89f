// Arithmetic on Packs: what the hardware does in a few instructions, lane by lane.
#ifndef TF_STITCH_CPU_PACK_H_
#define TF_STITCH_CPU_PACK_H_

#include "cast.h"

namespace stitch {

// ---- constants

template <class T, int L>
STITCH_INLINE Pack<T, L> splat(T s) {
  if constexpr (is_node<T, L>) return {splat<T, L / 2>(s), splat<T, L / 2>(s)};
  else if constexpr (L == 1) return {s};
  else return {vec::fill<Vec<T, L>>(s)};
}

template <int L, class T>
STITCH_INLINE Pack<T, L> splat(Pack<T, 1> s) {
  return splat<T, L>(s.v);
}

template <int L>
STITCH_INLINE Mask<L> splat(Mask<1> s) {
  return as_mask(splat<i32, L>(s.v));
}

template <int L>
STITCH_INLINE Mask<L> splat(bool s) {
  return as_mask(splat<i32, L>(-i32(s)));
}

// start, start + step, start + 2 step, ...
template <class T, int L>
STITCH_INLINE Pack<T, L> iota(T start = 0, T step = 1) {
  if constexpr (L == 1) return {start};
  else return join(iota<T, L / 2>(start, step), iota<T, L / 2>(start + T(L / 2) * step, step));
}

// ---- masks of leaves

// The lanes of a leaf's Mask, as wide as T.
template <class T, int L>
STITCH_INLINE auto wide(Mask<L> a) {
  if constexpr (L == 1) return a.v;
  else if constexpr (sizeof(T) == 4) return a.v;
  else if constexpr (L == 2) return Vec<i64, 2>{a.lo.v, a.hi.v};
  else return vec::cast<i64>(a.v);
}

// The Mask of a leaf's comparison.
template <int L, class V>
STITCH_INLINE Mask<L> narrow(V m) {
  if constexpr (L == 1) return {-i32(m)};
  else if constexpr (sizeof(m) == 4 * L) return {(Vec<i32, L>)m};
  else if constexpr (L == 2) return {{i32(m[0])}, {i32(m[1])}};
  else return {vec::cast<i32>((Vec<i64, L>)m)};
}

// ---- operators

#define STITCH_UNARY(name, expression)          \
  template <class T, int L>                     \
  STITCH_INLINE Pack<T, L> name(Pack<T, L> a) { \
    if constexpr (is_node<T, L>)                \
      return {name(a.lo), name(a.hi)};          \
    else                                        \
      return {expression};                      \
  }

#define STITCH_BINARY(name, expression)                       \
  template <class T, int L>                                   \
  STITCH_INLINE Pack<T, L> name(Pack<T, L> a, Pack<T, L> b) { \
    if constexpr (is_node<T, L>)                              \
      return {name(a.lo, b.lo), name(a.hi, b.hi)};            \
    else                                                      \
      return {expression};                                    \
  }

#define STITCH_COMPARE(op)                                        \
  template <class T, int L>                                       \
  STITCH_INLINE Mask<L> operator op(Pack<T, L> a, Pack<T, L> b) { \
    if constexpr (is_node<T, L>)                                  \
      return join(a.lo op b.lo, a.hi op b.hi);                    \
    else                                                          \
      return narrow<L>(a.v op b.v);                               \
  }

#define STITCH_LOGICAL(op)                                  \
  template <int L>                                          \
  STITCH_INLINE Mask<L> operator op(Mask<L> a, Mask<L> b) { \
    if constexpr (is_node<i32, L>)                          \
      return {a.lo op b.lo, a.hi op b.hi};                  \
    else                                                    \
      return {a.v op b.v};                                  \
  }

STITCH_BINARY(operator+, a.v + b.v)
STITCH_BINARY(operator-, a.v - b.v)
STITCH_BINARY(operator*, a.v* b.v)
STITCH_UNARY(operator-, -a.v)
STITCH_COMPARE(==)
STITCH_COMPARE(!=)
STITCH_COMPARE(<)
STITCH_COMPARE(<=)
STITCH_COMPARE(>)
STITCH_COMPARE(>=)
STITCH_LOGICAL(&)
STITCH_LOGICAL(|)
STITCH_LOGICAL(^)

template <int L>
STITCH_INLINE Mask<L> operator~(Mask<L> a) {
  if constexpr (is_node<i32, L>) return {~a.lo, ~a.hi};
  else return {~a.v};
}

// Division of floats. Integers: truncate_div, floor_div.
template <class T, int L>
STITCH_INLINE Pack<T, L> operator/(Pack<T, L> a, Pack<T, L> b) {
  static_assert(T(0.5) != 0, "integers are divided by truncate_div or floor_div");
  if constexpr (is_node<T, L>) return {a.lo / b.lo, a.hi / b.hi};
  else return {a.v / b.v};
}

// ---- select

template <class T, int L>
STITCH_INLINE Pack<T, L> select(Mask<L> m, Pack<T, L> a, Pack<T, L> b) {
  if constexpr (is_node<T, L>) return {select(lo(m), a.lo, b.lo), select(hi(m), a.hi, b.hi)};
  else return {wide<T>(m) ? a.v : b.v};
}

template <int L>
STITCH_INLINE Mask<L> select(Mask<L> m, Mask<L> a, Mask<L> b) {
  return (m & a) | (~m & b);
}

// ---- functions of one native vector, lifted. `vec::name` never sees a scalar: one lane is computed in a vector,
// so that it has the bits that every other lane would have.

template <class T>
STITCH_INLINE Vec<T, 16 / sizeof(T)> in_vector(T s) {
  return Vec<T, 16 / sizeof(T)>{s};
}

#define STITCH_LIFT_UNARY(name)                                        \
  template <class T, int L>                                            \
  STITCH_INLINE Pack<T, L> name(Pack<T, L> a) {                        \
    if constexpr (is_node<T, L>)                                       \
      return {name(a.lo), name(a.hi)};                                 \
    else if constexpr (L == 1)                                         \
      return {vec::name(in_vector(a.v))[0]};                           \
    else                                                               \
      return {vec::name(a.v)};                                         \
  }

#define STITCH_LIFT_BINARY(name)                                       \
  template <class T, int L>                                            \
  STITCH_INLINE Pack<T, L> name(Pack<T, L> a, Pack<T, L> b) {          \
    if constexpr (is_node<T, L>)                                       \
      return {name(a.lo, b.lo), name(a.hi, b.hi)};                     \
    else if constexpr (L == 1)                                         \
      return {vec::name(in_vector(a.v), in_vector(b.v))[0]};           \
    else                                                               \
      return {vec::name(a.v, b.v)};                                    \
  }

#define STITCH_LIFT_PREDICATE(name)                                    \
  template <class T, int L>                                            \
  STITCH_INLINE Mask<L> name(Pack<T, L> a) {                           \
    if constexpr (is_node<T, L>)                                       \
      return join(name(a.lo), name(a.hi));                             \
    else if constexpr (L == 1)                                         \
      return {i32(vec::name(in_vector(a.v))[0])};                      \
    else                                                               \
      return narrow<L>(vec::name(a.v));                                \
  }

namespace vec {

// NaN from either side; equal operands (so -0 and +0): the one TF gives.
template <class V>
STITCH_INLINE V max(V a, V b) {
  if constexpr (is_integer<V>) return a > b ? a : b;
  else return a != a ? a : max2(a, b);
}
template <class V>
STITCH_INLINE V min(V a, V b) {
  if constexpr (is_integer<V>) return a < b ? a : b;
  else return a != a ? a : min2(a, b);
}

template <class V>
STITCH_INLINE auto is_nan(V x) {
  return x != x;
}
template <class V>
STITCH_INLINE auto is_inf(V x) {
  return abs(x) == Element<V>(__builtin_inf());
}
template <class V>
STITCH_INLINE auto is_finite(V x) {
  return abs(x) < Element<V>(__builtin_inf());
}

// 0 for both zeros
template <class V>
STITCH_INLINE V sign(V x) {
  if constexpr (is_integer<V>) return (V)((x < 0) - (x > 0));
  else return x != x ? x : (V)((Bits<V>)copysign(fill<V>(1), x) & (x != 0));
}

}  // namespace vec

STITCH_LIFT_BINARY(max)
STITCH_LIFT_BINARY(min)
STITCH_LIFT_UNARY(floor)
STITCH_LIFT_UNARY(ceil)
STITCH_LIFT_UNARY(rint)
STITCH_LIFT_UNARY(trunc)
STITCH_LIFT_UNARY(sqrt)
STITCH_LIFT_UNARY(sign)
STITCH_LIFT_PREDICATE(is_nan)
STITCH_LIFT_PREDICATE(is_inf)
STITCH_LIFT_PREDICATE(is_finite)

template <class T, int L>
STITCH_INLINE Pack<T, L> abs(Pack<T, L> a) {
  if constexpr (is_node<T, L>) return {abs(a.lo), abs(a.hi)};
  else if constexpr (T(0.5) == 0) return select(a < splat<T, L>(0), -a, a);
  else if constexpr (L == 1) return {vec::abs(in_vector(a.v))[0]};
  else return {vec::abs(a.v)};
}


}  // namespace stitch
#endif  // TF_STITCH_CPU_PACK_H_
