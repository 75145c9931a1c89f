// f16 and bf16: widening to f32 and rounding back, to nearest even. NaN stays NaN.
// Right with and without FTZ/DAZ: no arithmetic on a subnormal f32.
#ifndef TF_STITCH_CPU_HALF_H_
#define TF_STITCH_CPU_HALF_H_

#include "pack.h"

namespace stitch {
namespace vec {

// ---- bf16: the upper half of an f32

// The nearest bf16 of x, in the upper half of each i32; the lower half is junk where `clear` is false.
template <class V>
STITCH_INLINE Bits<V> bf16_in_upper_half(V x) {
  typedef Vec<u32, lanes<V>> U;
  U u = (U)x;
  U rounded = u + (((u >> 16) & 1) + 0x7fff);
  return (Bits<V>)(x != x ? (Bits<V>)((u & 0x80000000u) | 0x7fc00000u) : (Bits<V>)rounded);
}

template <class V>
STITCH_INLINE V round_to_bf16(V x) {
  return (V)(bf16_in_upper_half(x) & i32(0xffff0000));
}

template <int L>
STITCH_INLINE Vec<f32, L> from_bf16(Vec<u16, L> h) {
  return (Vec<f32, L>)(cast<u32>(h) << 16);
}

template <int L>
STITCH_INLINE Vec<u16, L> to_bf16(Vec<f32, L> x) {
  return cast<u16>((Vec<u32, L>)bf16_in_upper_half(x) >> 16);
}

// ---- f16

#if defined(__clang__) && (defined(__F16C__) || defined(__aarch64__))
template <int L>
STITCH_INLINE Vec<f32, L> from_f16(Vec<u16, L> h) {
  return __builtin_convertvector((Vec<_Float16, L>)h, Vec<f32, L>);
}
template <int L>
STITCH_INLINE Vec<u16, L> to_f16(Vec<f32, L> x) {
  return (Vec<u16, L>)__builtin_convertvector(x, Vec<_Float16, L>);
}
#elif defined(__F16C__) && STITCH_HAS(__builtin_shufflevector)
template <int L>
STITCH_INLINE Vec<f32, L> from_f16(Vec<u16, L> h) {
  if constexpr (L == 4) return __builtin_ia32_vcvtph2ps((Vec<i16, 8>)__builtin_shufflevector(h, h, 0, 1, 2, 3, -1, -1, -1, -1));
  if constexpr (L == 8) return __builtin_ia32_vcvtph2ps256((Vec<i16, 8>)h);
#ifdef STITCH_AVX512
  if constexpr (L == 16) return __builtin_ia32_vcvtph2ps512_mask((Vec<i16, 16>)h, Vec<f32, 16>{}, -1, 4);
#endif
}
template <int L>
STITCH_INLINE Vec<u16, L> to_f16(Vec<f32, L> x) {
  if constexpr (L == 4) {
    Vec<i16, 8> h = __builtin_ia32_vcvtps2ph(x, 0);
    return (Vec<u16, 4>)__builtin_shufflevector(h, h, 0, 1, 2, 3);
  }
  if constexpr (L == 8) return (Vec<u16, 8>)__builtin_ia32_vcvtps2ph256(x, 0);
#ifdef STITCH_AVX512
  if constexpr (L == 16) return (Vec<u16, 16>)__builtin_ia32_vcvtps2ph512_mask(x, 0, Vec<i16, 16>{}, -1);
#endif
}
#else
template <int L>
STITCH_INLINE Vec<f32, L> from_f16(Vec<u16, L> h) {
  typedef Vec<u32, L> U;
  U u = cast<u32>(h);
  U shifted = (u & 0x7fff) << 13;  // exponent and mantissa where an f32 has them
  U exponent = shifted & (0x1fu << 23);
  U normal = shifted + ((127 - 15) << 23);
  U infinite = shifted + ((255 - 31) << 23);
  U small = (U)((Vec<f32, L>)(shifted + (113u << 23)) - 0x1p-14f);
  U magnitude = exponent == (0x1fu << 23) ? infinite : exponent == 0 ? small : normal;
  return (Vec<f32, L>)(magnitude | ((u & 0x8000) << 16));
}
template <int L>
STITCH_INLINE Vec<u16, L> to_f16(Vec<f32, L> x) {
  typedef Vec<u32, L> U;
  U sign = (U)x & 0x80000000u;
  U u = (U)x ^ sign;
  U overflow = u > (255u << 23) ? fill<U>(0x7e00) : fill<U>(0x7c00);
  U small = (U)((Vec<f32, L>)u + 0.5f) - (126u << 23);  // 2^-24 is the last bit of 0.5f: the addition rounds
  U normal = (u + (((u >> 13) & 1) + (u32(15 - 127) << 23) + 0xfff)) >> 13;
  U magnitude = u >= ((127u + 16) << 23) ? overflow : u < (113u << 23) ? small : normal;
  return cast<u16>(magnitude | (sign >> 16));
}
#endif

template <class V>
STITCH_INLINE V round_to_f16(V x) {
  return from_f16<lanes<V>>(to_f16<lanes<V>>(x));
}

}  // namespace vec

// An f32 as TF would leave it in an f16 or bf16 after one op.
STITCH_LIFT_UNARY(round_to_f16)
STITCH_LIFT_UNARY(round_to_bf16)

}  // namespace stitch
#endif  // TF_STITCH_CPU_HALF_H_
