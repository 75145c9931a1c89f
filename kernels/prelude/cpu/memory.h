// Loads and stores of a Pack: whole, its first `count` lanes, or strided. Any alignment; memory outside the lanes
// asked for is not touched, and lanes that were not loaded are zero.
//
//   load<L>(p)  load<L>(p, count)  load_strided<L>(p, stride)  load_strided<L>(p, stride, count)
//   store(p, x) store(p, x, count) store_strided(p, stride, x) store_strided(p, stride, x, count)
//   load_at<L>(p, places, count)   store_at(p, places, x, count)
//   stream(p, x, past)          a streaming store where `past`; settle() before another thread may read it
//
// f16 and bf16 are computed on as f32, boolean as Mask, everything else as itself.
#ifndef TF_STITCH_CPU_MEMORY_H_
#define TF_STITCH_CPU_MEMORY_H_

#include "half.h"

namespace stitch {

template <class S>
struct ElementOf {
  typedef S Compute, Raw;  // what it is computed as (boolean: the lane of a Mask), what it is moved as
};
template <>
struct ElementOf<f16> {
  typedef f32 Compute;
  typedef u16 Raw;
};
template <>
struct ElementOf<bf16> {
  typedef f32 Compute;
  typedef u16 Raw;
};
template <>
struct ElementOf<boolean> {
  typedef i32 Compute;
  typedef u8 Raw;
};
template <class S>
using Compute = typename ElementOf<S>::Compute;
template <class S>
using Raw = typename ElementOf<S>::Raw;

// ---- one leaf between memory's form and the computed form

template <class S, int L>
STITCH_INLINE Vec<Compute<S>, L> decode(Vec<Raw<S>, L> raw) {
  if constexpr (same<S, f16>) return vec::from_f16<L>(raw);
  else if constexpr (same<S, bf16>) return vec::from_bf16<L>(raw);
  else if constexpr (same<S, boolean>) return (Vec<i32, L>)(vec::cast<i32>(raw) != 0);
  else return raw;
}

template <class S, int L>
STITCH_INLINE Vec<Raw<S>, L> encode(Vec<Compute<S>, L> x) {
  if constexpr (same<S, f16>) return vec::to_f16<L>(x);
  else if constexpr (same<S, bf16>) return vec::to_bf16<L>(x);
  else if constexpr (same<S, boolean>) return vec::cast<u8>(x & 1);
  else return x;
}

template <class S>
STITCH_INLINE Compute<S> decode_one(S s) {
  if constexpr (same<S, boolean>) return -i32(s.bits != 0);
  else if constexpr (same<S, f16> || same<S, bf16>) return decode<S, 4>(Vec<u16, 4>{s.bits})[0];
  else return s;
}

template <class S>
STITCH_INLINE S encode_one(Compute<S> x) {
  if constexpr (same<S, boolean>) return {u8(x & 1)};
  else if constexpr (same<S, f16> || same<S, bf16>) return {encode<S, 4>(Vec<f32, 4>{x})[0]};
  else return x;
}

// ---- the first lanes of a Pack

// Which lanes: the first `count`, in the form that masked instructions take.
#ifdef STITCH_AVX512
typedef u64 First;  // a bit per lane
template <int L>
STITCH_INLINE First first(i64 count) {
  static_assert(L <= 64, "a partial Pack has 64 lanes at most");
  return count <= 0 ? 0 : count >= L ? ~0ull >> (64 - L) : ~(~0ull << count);
}
STITCH_INLINE bool any(First f) { return f & 1; }
template <int L>
STITCH_INLINE First after(First f) {
  return f >> L;
}
template <int L>
STITCH_INLINE i64 how_many(First f) {
  return __builtin_popcountll(f << (64 - L));
}
#else
typedef i64 First;  // how many, below 0 too
template <int L>
STITCH_INLINE First first(i64 count) {
  return count < 0 ? 0 : count > L ? L : count;
}
STITCH_INLINE bool any(First f) { return f > 0; }
template <int L>
STITCH_INLINE First after(First f) {
  return f - L;
}
template <int L>
STITCH_INLINE i64 how_many(First f) {
  return f < 0 ? 0 : f > L ? L : f;
}
#endif

// Where there is no masked instruction. Not inlined: it keeps the tails of kernels small.
[[maybe_unused]] static __attribute__((noinline)) void copy_bytes(void* to, const void* from, i64 bytes) {
  char* t = static_cast<char*>(to);
  const char* f = static_cast<const char*>(from);
  for (i64 i = 0; i < bytes; ++i) t[i] = f[i];
}

// Converts to whichever pointer a builtin wants: g++ and clang differ.
struct AnyPointer {
  const void* address;
  template <class T>
  STITCH_MEMBER operator T*() const {
    return static_cast<T*>(const_cast<void*>(address));
  }
};

#if defined(STITCH_AVX512)
#define STITCH_MASKED_FORMS                                                             \
  STITCH_MASKED(4, 16, f32, ups512)                                                     \
  STITCH_MASKED(4, 8, f32, ups256)                                                      \
  STITCH_MASKED(4, 4, f32, ups128)                                                      \
  STITCH_MASKED(8, 8, f64, upd512)                                                      \
  STITCH_MASKED(8, 4, f64, upd256)                                                      \
  STITCH_MASKED(8, 2, f64, upd128)                                                      \
  STITCH_MASKED(2, 16, i16, dquhi256)                                                   \
  STITCH_MASKED(2, 8, i16, dquhi128)                                                    \
  STITCH_MASKED(1, 16, char, dquqi128)
#elif defined(__AVX2__)
#define STITCH_MASKED_FORMS      \
  STITCH_MASKED(4, 8, f32, ps256) \
  STITCH_MASKED(4, 4, f32, ps)    \
  STITCH_MASKED(8, 4, f64, pd256) \
  STITCH_MASKED(8, 2, f64, pd)

template <class V>
STITCH_INLINE vec::Bits<V> lanes_of(First f) {
  typedef vec::Element<vec::Bits<V>> I;
  if constexpr (vec::lanes<V> == 2) return (vec::Bits<V>)(vec::Bits<V>{0, 1} < I(f));
  else if constexpr (vec::lanes<V> == 4) return (vec::Bits<V>)(vec::Bits<V>{0, 1, 2, 3} < I(f));
  else return (vec::Bits<V>)(vec::Bits<V>{0, 1, 2, 3, 4, 5, 6, 7} < I(f));
}
#else
#define STITCH_MASKED_FORMS
#endif

template <class R, int L>
STITCH_INLINE Vec<R, L> load_first(const R* p, First f) {
  [[maybe_unused]] AnyPointer q{p};
#ifdef STITCH_AVX512
#define STITCH_MASKED(size, width, T, suffix)    \
  if constexpr (sizeof(R) == size && L == width) \
    return (Vec<R, L>)__builtin_ia32_load##suffix##_mask(q, Vec<T, width>{}, f);  \
  else
#else
#define STITCH_MASKED(size, width, T, suffix)    \
  if constexpr (sizeof(R) == size && L == width) \
    return (Vec<R, L>)__builtin_ia32_maskload##suffix(q, lanes_of<Vec<T, width>>(f)); \
  else
#endif
  STITCH_MASKED_FORMS {
    Vec<R, L> raw = {};
    copy_bytes(&raw, p, how_many<L>(f) * i64(sizeof(R)));
    return raw;
  }
#undef STITCH_MASKED
}

// clang 22 makes of a masked store of one lane, known when it compiles, a store of the i32 that an element of 1 or 2
// bytes was cut from: bytes behind it are written. So it does not get to know.
template <class R>
STITCH_INLINE First unknown_to_clang(First f) {
#if defined(STITCH_AVX512) && defined(__clang__)
  if constexpr (sizeof(R) < 4) asm("" : "+r"(f));
#endif
  return f;
}

template <class R, int L>
STITCH_INLINE void store_first(R* p, Vec<R, L> raw, First f) {
  [[maybe_unused]] AnyPointer q{p};
  f = unknown_to_clang<R>(f);
#ifdef STITCH_AVX512
#define STITCH_MASKED(size, width, T, suffix)    \
  if constexpr (sizeof(R) == size && L == width) \
    __builtin_ia32_store##suffix##_mask(q, (Vec<T, width>)raw, f);  \
  else
#else
#define STITCH_MASKED(size, width, T, suffix)    \
  if constexpr (sizeof(R) == size && L == width) \
    __builtin_ia32_maskstore##suffix(q, lanes_of<Vec<T, width>>(f), (Vec<T, width>)raw); \
  else
#endif
  STITCH_MASKED_FORMS copy_bytes(p, &raw, how_many<L>(f) * i64(sizeof(R)));
#undef STITCH_MASKED
}

// ---- strided

template <class R, int L>
STITCH_INLINE Vec<R, L> gather(const R* p, i64 stride) {
  Vec<R, L> raw = {};
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) raw[i] = p[i * stride];
  return raw;
}

// Not inlined, as copy_bytes.
template <class R>
static __attribute__((noinline)) void copy_strided(R* to, i64 to_stride, const R* from, i64 from_stride, i64 count) {
  for (i64 i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

template <class R, int L>
STITCH_INLINE Vec<R, L> gather_first(const R* p, i64 stride, First f) {
  Vec<R, L> raw = {};
  copy_strided(reinterpret_cast<R*>(&raw), 1, p, stride, how_many<L>(f));
  return raw;
}

template <class R, int L>
STITCH_INLINE void scatter(R* p, i64 stride, Vec<R, L> raw) {
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) p[i * stride] = raw[i];
}

template <class R, int L>
STITCH_INLINE void scatter_first(R* p, i64 stride, Vec<R, L> raw, First f) {
  copy_strided(p, stride, reinterpret_cast<const R*>(&raw), 1, how_many<L>(f));
}

// ---- the whole Pack

template <class S>
STITCH_INLINE auto raw_pointer(S* p) {
  return reinterpret_cast<Raw<S>*>(p);
}
template <class S>
STITCH_INLINE auto raw_pointer(const S* p) {
  return reinterpret_cast<const Raw<S>*>(p);
}

template <int L, class S>
STITCH_INLINE Pack<Compute<S>, L> load_pack(const S* p) {
  if constexpr (is_node<Compute<S>, L>) {
    return {load_pack<L / 2>(p), load_pack<L / 2>(p + L / 2)};
  } else if constexpr (L == 1) {
    return {decode_one(*p)};
  } else {
    Vec<Raw<S>, L> raw;
    __builtin_memcpy(&raw, p, sizeof(raw));
    return {decode<S, L>(raw)};
  }
}

template <int L, class S>
STITCH_INLINE Pack<Compute<S>, L> load_pack(const S* p, First f) {
  if constexpr (is_node<Compute<S>, L>) return {load_pack<L / 2>(p, f), load_pack<L / 2>(p + L / 2, after<L / 2>(f))};
  else if constexpr (L == 1) return {any(f) ? decode_one(*p) : 0};
  else return {decode<S, L>(load_first<Raw<S>, L>(raw_pointer(p), f))};
}

template <int L, class S>
STITCH_INLINE Pack<Compute<S>, L> load_strided_pack(const S* p, i64 stride) {
  if constexpr (is_node<Compute<S>, L>)
    return {load_strided_pack<L / 2>(p, stride), load_strided_pack<L / 2>(p + L / 2 * stride, stride)};
  else if constexpr (L == 1) return {decode_one(*p)};
  else return {decode<S, L>(gather<Raw<S>, L>(raw_pointer(p), stride))};
}

template <int L, class S>
STITCH_INLINE Pack<Compute<S>, L> load_strided_pack(const S* p, i64 stride, First f) {
  if constexpr (is_node<Compute<S>, L>)
    return {load_strided_pack<L / 2>(p, stride, f),
            load_strided_pack<L / 2>(p + L / 2 * stride, stride, after<L / 2>(f))};
  else if constexpr (L == 1) return {any(f) ? decode_one(*p) : 0};
  else return {decode<S, L>(gather_first<Raw<S>, L>(raw_pointer(p), stride, f))};
}

template <class S, int L>
STITCH_INLINE void store_pack(S* p, Pack<Compute<S>, L> x) {
  if constexpr (is_node<Compute<S>, L>) {
    store_pack<S, L / 2>(p, x.lo);
    store_pack<S, L / 2>(p + L / 2, x.hi);
  } else if constexpr (L == 1) {
    *p = encode_one<S>(x.v);
  } else {
    Vec<Raw<S>, L> raw = encode<S, L>(x.v);
    __builtin_memcpy(p, &raw, sizeof(raw));
  }
}

template <class S, int L>
STITCH_INLINE void store_pack(S* p, Pack<Compute<S>, L> x, First f) {
  if constexpr (is_node<Compute<S>, L>) {
    store_pack<S, L / 2>(p, x.lo, f);
    store_pack<S, L / 2>(p + L / 2, x.hi, after<L / 2>(f));
  } else if constexpr (L == 1) {
    if (any(f)) *p = encode_one<S>(x.v);
  } else {
    store_first<Raw<S>, L>(raw_pointer(p), encode<S, L>(x.v), f);
  }
}

template <class S, int L>
STITCH_INLINE void store_strided_pack(S* p, i64 stride, Pack<Compute<S>, L> x) {
  if constexpr (is_node<Compute<S>, L>) {
    store_strided_pack<S, L / 2>(p, stride, x.lo);
    store_strided_pack<S, L / 2>(p + L / 2 * stride, stride, x.hi);
  } else if constexpr (L == 1) {
    *p = encode_one<S>(x.v);
  } else {
    scatter<Raw<S>, L>(raw_pointer(p), stride, encode<S, L>(x.v));
  }
}

template <class S, int L>
STITCH_INLINE void store_strided_pack(S* p, i64 stride, Pack<Compute<S>, L> x, First f) {
  if constexpr (is_node<Compute<S>, L>) {
    store_strided_pack<S, L / 2>(p, stride, x.lo, f);
    store_strided_pack<S, L / 2>(p + L / 2 * stride, stride, x.hi, after<L / 2>(f));
  } else if constexpr (L == 1) {
    if (any(f)) *p = encode_one<S>(x.v);
  } else {
    scatter_first<Raw<S>, L>(raw_pointer(p), stride, encode<S, L>(x.v), f);
  }
}

// ---- what kernels call: a Mask in memory is a boolean

template <class S, int L>
STITCH_INLINE auto loaded(Pack<Compute<S>, L> x) {
  if constexpr (same<S, boolean>) return as_mask(x);
  else return x;
}

template <int L, class S, class... Count>
STITCH_INLINE auto load(const S* p, Count... count) {
  return loaded<S, L>(load_pack<L>(p, first<L>(count)...));
}
template <int L, class S, class... Count>
STITCH_INLINE auto load_strided(const S* p, i64 stride, Count... count) {
  return loaded<S, L>(load_strided_pack<L>(p, stride, first<L>(count)...));
}
template <class S, class T, int L, class... Count>
STITCH_INLINE void store(S* p, Pack<T, L> x, Count... count) {
  static_assert(same<T, Compute<S>>, "a Pack is stored as what it is loaded from");
  store_pack<S, L>(p, x, first<L>(count)...);
}
template <int L, class... Count>
STITCH_INLINE void store(boolean* p, Mask<L> x, Count... count) {
  store_pack<boolean, L>(p, as_pack(x), first<L>(count)...);
}
template <class S, class T, int L, class... Count>
STITCH_INLINE void store_strided(S* p, i64 stride, Pack<T, L> x, Count... count) {
  static_assert(same<T, Compute<S>>, "a Pack is stored as what it is loaded from");
  store_strided_pack<S, L>(p, stride, x, first<L>(count)...);
}
template <int L, class... Count>
STITCH_INLINE void store_strided(boolean* p, i64 stride, Mask<L> x, Count... count) {
  store_strided_pack<boolean, L>(p, stride, as_pack(x), first<L>(count)...);
}

// ---- streaming stores
//
// What a kernel writes through the caches is first read into them, and pushes out what is still to be read. Where it
// would not stay in them anyway, that is a third of the traffic for nothing. Only whole vectors can go past them, to
// addresses that are multiples of their size.

#if defined(__x86_64__)
template <class V>
constexpr bool can_stream = sizeof(V) >= 16 && sizeof(V) <= kNative;

template <class V>
STITCH_INLINE void stream_vector(void* p, V x) {
#if defined(__clang__)
  __builtin_nontemporal_store(x, static_cast<V*>(p));
#else
  if constexpr (sizeof(V) == 16) __builtin_ia32_movntps(static_cast<f32*>(p), (Vec<f32, 4>)x);
#ifdef __AVX__
  if constexpr (sizeof(V) == 32) __builtin_ia32_movntps256(static_cast<f32*>(p), (Vec<f32, 8>)x);
#endif
#ifdef __AVX512F__
  if constexpr (sizeof(V) == 64) __builtin_ia32_movntps512(static_cast<f32*>(p), (Vec<f32, 16>)x);
#endif
#endif
}
STITCH_INLINE void settle() { __builtin_ia32_sfence(); }
#else
template <class V>
constexpr bool can_stream = false;
template <class V>
STITCH_INLINE void stream_vector(void*, V) {}
STITCH_INLINE void settle() {}
#endif

template <class S, int L>
STITCH_INLINE void stream_pack(S* p, Pack<Compute<S>, L> x) {
  if constexpr (is_node<Compute<S>, L>) {
    stream_pack<S, L / 2>(p, x.lo);
    stream_pack<S, L / 2>(p + L / 2, x.hi);
  } else if constexpr (L > 1 && can_stream<Vec<Raw<S>, L>>) {
    if (reinterpret_cast<u64>(p) % sizeof(Vec<Raw<S>, L>) == 0) stream_vector(p, encode<S, L>(x.v));
    else store_pack<S, L>(p, x);
  } else {
    store_pack<S, L>(p, x);
  }
}

template <class S, class T, int L>
STITCH_INLINE void stream(S* p, Pack<T, L> x, bool past) {
  if (past) stream_pack<S, L>(p, x);
  else store(p, x);
}
template <int L>
STITCH_INLINE void stream(boolean* p, Mask<L> x, bool past) {
  if (past) stream_pack<boolean, L>(p, as_pack(x));
  else store(p, x);
}

// Lane i of the first `count` is p[at[i]]; p is not read at the others' places.
template <int L, class S>
STITCH_INLINE auto load_at(const S* p, Pack<i64, L> at, i64 count) {
  i64 places[L];
  S elements[L] = {};
  store_pack<i64, L>(places, at);
  for (i64 i = 0; i < (count < L ? count : L); ++i) elements[i] = p[places[i]];
  return load<L>(static_cast<const S*>(elements));
}
// The reverse. Of lanes with one place the last is stored.
template <int L, class S, class X>
STITCH_INLINE void store_at(S* p, Pack<i64, L> at, X value, i64 count) {
  i64 places[L];
  S elements[L];
  store_pack<i64, L>(places, at);
  store(elements, value);
  for (i64 i = 0; i < (count < L ? count : L); ++i) p[places[i]] = elements[i];
}

// Whether elements first, first + step, ... of the `count` at p are in [0, below).
template <class T>
STITCH_INLINE bool indices_within(const T* p, i64 count, i64 first, i64 step, i64 below) {
  bool within = true;
  for (i64 i = first; i < count; i += step) within &= u64(i64(p[i])) < u64(below);
  return within;
}

// The Mask of the first `count` lanes.
template <int L>
STITCH_INLINE Mask<L> lanes_below(i64 count) {
  return iota<i32, L>() < splat<i32, L>(i32(count < 0 ? 0 : count > L ? L : count));
}

}  // namespace stitch
#endif  // TF_STITCH_CPU_MEMORY_H_
