// STITCH_LIBM(expf)(x): a function of the CUDA math library, which nvcc and NVRTC bring; the host's in the emulator.
#ifndef TF_STITCH_CUDA_LIBM_H_
#define TF_STITCH_CUDA_LIBM_H_

#include "prelude/cuda/types.h"

#if STITCH_ON_DEVICE
#define STITCH_LIBM(name) ::name
#else
#define STITCH_LIBM(name) __builtin_##name
#endif

// `name` of f32 and of f64 as the library computes it.
#define STITCH_FROM_LIBM(name)                                             \
  STITCH_DEVICE f32 name(f32 x) { return STITCH_LIBM(name##f)(x); }        \
  STITCH_DEVICE f64 name(f64 x) { return STITCH_LIBM(name)(x); }
#define STITCH_FROM_LIBM_BINARY(name)                                      \
  STITCH_DEVICE f32 name(f32 x, f32 y) { return STITCH_LIBM(name##f)(x, y); } \
  STITCH_DEVICE f64 name(f64 x, f64 y) { return STITCH_LIBM(name)(x, y); }

namespace stitch {

// a * b + c with one rounding: for polynomials and remainders, never for what the user wrote.
STITCH_DEVICE f32 fused(f32 a, f32 b, f32 c) { return STITCH_LIBM(fmaf)(a, b, c); }
STITCH_DEVICE f64 fused(f64 a, f64 b, f64 c) { return STITCH_LIBM(fma)(a, b, c); }

}  // namespace stitch
#endif  // TF_STITCH_CUDA_LIBM_H_
