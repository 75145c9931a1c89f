// Types of the prelude: elements, native vectors, Pack and Mask, and how a Pack is taken apart.
//
//   Pack<f32, 64>, native vector of 16 lanes        Pack<f64, 2>      Pack<f32, 2>
//        { lo: { lo: [16]  hi: [16] }                   [2]           { lo: scalar  hi: scalar }
//          hi: { lo: [16]  hi: [16] } }
//
// A Pack is a tree of halves down to a native vector (16 to kNative bytes); below 16 bytes it goes on down to
// scalars. There is no loop and no array, so the compiler keeps every leaf in a register of its own.
#ifndef TF_STITCH_CPU_TYPES_H_
#define TF_STITCH_CPU_TYPES_H_

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define STITCH_INLINE static inline __attribute__((always_inline))
#define STITCH_MEMBER inline __attribute__((always_inline))

#ifdef __has_builtin
#define STITCH_HAS(builtin) __has_builtin(builtin)
#else
#define STITCH_HAS(builtin) 0
#endif

namespace stitch {

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

// What lies in memory and is never computed on.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct boolean {
  u8 bits;
};

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
#define STITCH_AVX512 1
constexpr int kNative = 64;
#elif defined(__AVX2__)
constexpr int kNative = 32;
#else
constexpr int kNative = 16;
#endif

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

template <class T, int L>
struct VecOf {
  typedef T type __attribute__((vector_size(L * sizeof(T))));
};
template <class T, int L>
using Vec = typename VecOf<T, L>::type;

enum Shape { kScalar, kLeaf, kNode };
template <class T, int L>
constexpr Shape shape_of = L == 1                                                      ? kScalar
                           : L * sizeof(T) >= 16 && L * int(sizeof(T)) <= kNative ? kLeaf
                                                                                       : kNode;
template <class T, int L>
constexpr bool is_node = shape_of<T, L> == kNode;

template <class T, int L, Shape shape = shape_of<T, L>>
struct Pack {
  Vec<T, L> v;
};
template <class T, int L>
struct Pack<T, L, kScalar> {
  T v;
};
template <class T, int L>
struct Pack<T, L, kNode> {
  Pack<T, L / 2> lo, hi;
};

// A boolean per lane: 0 or -1, as wide as an i32.
template <int L, Shape shape = shape_of<i32, L>>
struct Mask {
  Vec<i32, L> v;
};
template <int L>
struct Mask<L, kScalar> {
  i32 v;
};
template <int L>
struct Mask<L, kNode> {
  Mask<L / 2> lo, hi;
};

// ---- native vectors in halves

#if STITCH_HAS(__builtin_shufflevector)
template <class T, int L>
STITCH_INLINE Vec<T, L / 2> low_half(Vec<T, L> v) {
  static_assert(L == 4 || L == 8 || L == 16, "lanes");
  if constexpr (L == 4) return __builtin_shufflevector(v, v, 0, 1);
  if constexpr (L == 8) return __builtin_shufflevector(v, v, 0, 1, 2, 3);
  if constexpr (L == 16) return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
}

template <class T, int L>
STITCH_INLINE Vec<T, L / 2> high_half(Vec<T, L> v) {
  static_assert(L == 4 || L == 8 || L == 16, "lanes");
  if constexpr (L == 4) return __builtin_shufflevector(v, v, 2, 3);
  if constexpr (L == 8) return __builtin_shufflevector(v, v, 4, 5, 6, 7);
  if constexpr (L == 16) return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
}

template <class T, int L>
STITCH_INLINE Vec<T, L> from_halves(Vec<T, L / 2> a, Vec<T, L / 2> b) {
  static_assert(L == 4 || L == 8 || L == 16, "lanes");
  if constexpr (L == 4) return __builtin_shufflevector(a, b, 0, 1, 2, 3);
  if constexpr (L == 8) return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
  if constexpr (L == 16) return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#else  // g++ before 12
template <class T, int L>
STITCH_INLINE Vec<T, L / 2> low_half(Vec<T, L> v) {
  Vec<T, L / 2> r;
  __builtin_memcpy(&r, &v, sizeof(r));
  return r;
}

template <class T, int L>
STITCH_INLINE Vec<T, L / 2> high_half(Vec<T, L> v) {
  Vec<T, L / 2> r;
  __builtin_memcpy(&r, reinterpret_cast<const char*>(&v) + sizeof(r), sizeof(r));
  return r;
}

template <class T, int L>
STITCH_INLINE Vec<T, L> from_halves(Vec<T, L / 2> a, Vec<T, L / 2> b) {
  Vec<T, L> r;
  __builtin_memcpy(&r, &a, sizeof(a));
  __builtin_memcpy(reinterpret_cast<char*>(&r) + sizeof(a), &b, sizeof(b));
  return r;
}
#endif

// ---- Packs and Masks in halves

template <class T, int L>
STITCH_INLINE Pack<T, L / 2> lo(Pack<T, L> a) {
  if constexpr (is_node<T, L>) return a.lo;
  else if constexpr (shape_of<T, L / 2> == kLeaf) return {low_half<T, L>(a.v)};
  else if constexpr (L == 2) return {a.v[0]};
  else return {{a.v[0]}, {a.v[1]}};
}

template <class T, int L>
STITCH_INLINE Pack<T, L / 2> hi(Pack<T, L> a) {
  if constexpr (is_node<T, L>) return a.hi;
  else if constexpr (shape_of<T, L / 2> == kLeaf) return {high_half<T, L>(a.v)};
  else if constexpr (L == 2) return {a.v[1]};
  else return {{a.v[2]}, {a.v[3]}};
}

template <class T, int H>
STITCH_INLINE Pack<T, H * 2> join(Pack<T, H> a, Pack<T, H> b) {
  if constexpr (is_node<T, H * 2>) return {a, b};
  else if constexpr (shape_of<T, H> == kLeaf) return {from_halves<T, H * 2>(a.v, b.v)};
  else if constexpr (H == 1) return {Vec<T, 2>{a.v, b.v}};
  else return {Vec<T, 4>{a.lo.v, a.hi.v, b.lo.v, b.hi.v}};
}

// A Mask and a Pack<i32> have one layout.
template <int L>
STITCH_INLINE Pack<i32, L> as_pack(Mask<L> a) {
  if constexpr (is_node<i32, L>) return {as_pack(a.lo), as_pack(a.hi)};
  else return {a.v};
}

template <int L>
STITCH_INLINE Mask<L> as_mask(Pack<i32, L> a) {
  if constexpr (is_node<i32, L>) return {as_mask(a.lo), as_mask(a.hi)};
  else return {a.v};
}

template <int L>
STITCH_INLINE Mask<L / 2> lo(Mask<L> a) {
  return as_mask(lo(as_pack(a)));
}
template <int L>
STITCH_INLINE Mask<L / 2> hi(Mask<L> a) {
  return as_mask(hi(as_pack(a)));
}
template <int H>
STITCH_INLINE Mask<H * 2> join(Mask<H> a, Mask<H> b) {
  return as_mask(join(as_pack(a), as_pack(b)));
}

}  // namespace stitch
#endif  // TF_STITCH_CPU_TYPES_H_
