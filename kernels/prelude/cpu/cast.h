// cast<T>(v): the lanes of a native vector as another type. g++ takes some of these apart into scalars or halves,
// so they are named here; clang needs no help.
#ifndef TF_STITCH_CPU_CAST_H_
#define TF_STITCH_CPU_CAST_H_

#include "vector.h"

namespace stitch {
namespace vec {

// The bytes of a vector of less than 16, with junk above.
template <class T, class V>
STITCH_INLINE Vec<T, 16 / sizeof(T)> in_16_bytes(V x) {
  if constexpr (sizeof(V) == 16) {
    return (Vec<T, 16 / sizeof(T)>)x;
  } else if constexpr (sizeof(V) == 8) {
    i64 bits;
    __builtin_memcpy(&bits, &x, 8);
    return (Vec<T, 16 / sizeof(T)>)Vec<i64, 2>{bits, 0};
  } else {
    i32 bits;
    __builtin_memcpy(&bits, &x, 4);
    return (Vec<T, 16 / sizeof(T)>)Vec<i32, 4>{bits, 0, 0, 0};
  }
}

// The first bytes of a vector of 16.
template <class To, class V>
STITCH_INLINE To first_bytes(V x) {
  To r;
  __builtin_memcpy(&r, &x, sizeof(To));
  return r;
}

template <class T, class V>
STITCH_INLINE Vec<T, lanes<V>> cast(V x) {
  typedef Vec<T, lanes<V>> To;
#if defined(__SSE4_1__) && !defined(__clang__)
#define STITCH_CAST(S, D, L, ...) \
  if constexpr (same<Element<V>, S> && same<T, D> && lanes<V> == L) return (To)(__VA_ARGS__);
#ifdef STITCH_AVX512
  STITCH_CAST(u8, i32, 16, __builtin_ia32_pmovzxbd512_mask((Vec<char, 16>)x, Vec<i32, 16>{}, -1))
  STITCH_CAST(i32, u8, 16, __builtin_ia32_pmovdb512_mask(x, Vec<char, 16>{}, -1))
  STITCH_CAST(u16, u32, 16, __builtin_ia32_pmovzxwd512_mask((Vec<i16, 16>)x, Vec<i32, 16>{}, -1))
  STITCH_CAST(u32, u16, 16, __builtin_ia32_pmovdw512_mask((Vec<i32, 16>)x, Vec<i16, 16>{}, -1))
  STITCH_CAST(u32, u16, 8, __builtin_ia32_pmovdw256_mask((Vec<i32, 8>)x, Vec<i16, 8>{}, -1))
  STITCH_CAST(f32, f64, 8, __builtin_ia32_cvtps2pd512_mask(x, Vec<f64, 8>{}, -1, 4))
  STITCH_CAST(i32, f64, 8, __builtin_ia32_cvtdq2pd512_mask(x, Vec<f64, 8>{}, -1))
  STITCH_CAST(i32, i64, 8, __builtin_ia32_pmovsxdq512_mask(x, Vec<i64, 8>{}, -1))
  STITCH_CAST(i64, i32, 8, __builtin_ia32_pmovqd512_mask(x, Vec<i32, 8>{}, -1))
  STITCH_CAST(i64, i32, 4, __builtin_ia32_pmovqd256_mask(x, Vec<i32, 4>{}, -1))
  STITCH_CAST(f32, i64, 8, __builtin_ia32_cvttps2qq512_mask(x, Vec<i64, 8>{}, -1, 4))
#endif
#ifdef __AVX2__
  STITCH_CAST(u8, i32, 8, __builtin_ia32_pmovzxbd256(in_16_bytes<char>(x)))
  STITCH_CAST(u16, u32, 8, __builtin_ia32_pmovzxwd256((Vec<i16, 8>)x))
  STITCH_CAST(f32, f64, 4, __builtin_ia32_cvtps2pd256(x))
  STITCH_CAST(i32, f64, 4, __builtin_ia32_cvtdq2pd256(x))
  STITCH_CAST(i32, i64, 4, __builtin_ia32_pmovsxdq256(x))
  if constexpr (same<Element<V>, i32> && same<T, u8> && lanes<V> == 8) {  // saturates: lanes are 0 to 255 here
    auto words = __builtin_ia32_packssdw128(low_half<i32, 8>(x), high_half<i32, 8>(x));
    return first_bytes<To>(__builtin_ia32_packuswb128(words, words));
  }
  if constexpr (same<Element<V>, u32> && same<T, u16> && lanes<V> == 8) {  // lanes are 0 to 65535
    return (To)__builtin_ia32_packusdw128((Vec<i32, 4>)low_half<u32, 8>(x), (Vec<i32, 4>)high_half<u32, 8>(x));
  }
#endif
  STITCH_CAST(u8, i32, 4, __builtin_ia32_pmovzxbd128(in_16_bytes<char>(x)))
  STITCH_CAST(u16, u32, 4, __builtin_ia32_pmovzxwd128(in_16_bytes<i16>(x)))
  if constexpr (same<Element<V>, i32> && same<T, u8> && lanes<V> == 4) {
    auto words = __builtin_ia32_packssdw128(x, x);
    return first_bytes<To>(__builtin_ia32_packuswb128(words, words));
  }
  if constexpr (same<Element<V>, u32> && same<T, u16> && lanes<V> == 4) {
    return first_bytes<To>(__builtin_ia32_packusdw128((Vec<i32, 4>)x, (Vec<i32, 4>)x));
  }
#undef STITCH_CAST
#endif
  return __builtin_convertvector(x, To);
}

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_CAST_H_
