// f16 and bf16: widening to f32 and rounding back, to nearest even. NaN stays NaN. With the hardware's conversions
// where it has them; else with integers, which give the same bits (but for a NaN's).
#ifndef TF_STITCH_CUDA_HALF_H_
#define TF_STITCH_CUDA_HALF_H_

#include "prelude/cuda/types.h"

// f16: all devices. bf16, and two at a time: from sm_80 on.
#if STITCH_ON_DEVICE && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define STITCH_CVT_PAIRS 1
#else
#define STITCH_CVT_PAIRS 0
#endif

namespace stitch {

// ---- bf16: the upper half of an f32

STITCH_DEVICE f32 widen(bf16 h) { return from_bits<f32>(u32(h.bits) << 16); }

STITCH_DEVICE bf16 to_bf16(f32 x) {
#if STITCH_CVT_PAIRS
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return {bits};
#else
  const u32 u = bits_of(x);
  const u32 rounded = u + (((u >> 16) & 1) + 0x7fff);
  return {u16((x != x ? u | 0x400000 : rounded) >> 16)};
#endif
}

// ---- f16

#if STITCH_ON_DEVICE
STITCH_DEVICE f32 widen(f16 h) {
  f32 x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits));
  return x;
}
STITCH_DEVICE f16 to_f16(f32 x) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return {bits};
}
#else
STITCH_DEVICE f32 widen(f16 h) {
  const u32 sign = u32(h.bits & 0x8000) << 16, magnitude = h.bits & 0x7fff;
  if (magnitude >= 0x7c00) return from_bits<f32>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  const f32 units = f32(magnitude & 0x3ff) * 0x1p-24f;  // of a subnormal
  if (magnitude < 0x400) return from_bits<f32>(sign | bits_of(units));
  return from_bits<f32>(sign | ((magnitude << 13) + ((127 - 15) << 23)));
}
STITCH_DEVICE f16 to_f16(f32 x) {
  const u32 u = bits_of(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return {u16(sign | 0x7e00)};
  if (magnitude >= 0x47800000) return {u16(sign | 0x7c00)};  // 2^16 and above; from 65520 on the carry makes infinity
  if (magnitude < 0x38800000) {                              // below 2^-14 the unit is 2^-24, that of 0.5f
    return {u16(sign | (bits_of(from_bits<f32>(magnitude) + 0.5f) - bits_of(0.5f)))};
  }
  const u32 rebiased = magnitude - ((127 - 15) << 23);
  return {u16(sign | ((rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13))};
}
#endif

// ---- two neighbours in memory, the first in the lower half

STITCH_DEVICE u32 pair_of_f16(f32 first, f32 second) {
#if STITCH_CVT_PAIRS
  u32 bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
#else
  return to_f16(first).bits | u32(to_f16(second).bits) << 16;
#endif
}
STITCH_DEVICE u32 pair_of_bf16(f32 first, f32 second) {
#if STITCH_CVT_PAIRS
  u32 bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
#else
  return to_bf16(first).bits | u32(to_bf16(second).bits) << 16;
#endif
}

// An f32 as TF would leave it in an f16 or bf16 after one op.
STITCH_DEVICE f32 round_to_f16(f32 x) { return widen(to_f16(x)); }
STITCH_DEVICE f32 round_to_bf16(f32 x) { return widen(to_bf16(x)); }

}  // namespace stitch
#endif  // TF_STITCH_CUDA_HALF_H_
