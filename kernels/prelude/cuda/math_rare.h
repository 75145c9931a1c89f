// Circular and hyperbolic functions, pow: what few kernels need. They are CUDA's, as in TensorFlow's own GPU kernels.
// By its documentation they are further from the exact value than the CPU prelude's: tan, acosh and pow up to 4 ulps of
// f32 (there 1.2, 0.5, 0.5), sinh, asinh, atanh and atan2 3, cosh 2; sin, cos, asin, acos and atan 2. Doubles, by which
// the CPU's are so near, are 32 times as slow as floats on most GPUs.
#ifndef TF_STITCH_CUDA_MATH_RARE_H_
#define TF_STITCH_CUDA_MATH_RARE_H_

#include "prelude/cuda/math_exp.h"
#include "prelude/cuda/math_tanh.h"

namespace stitch {

STITCH_FROM_LIBM(sin)
STITCH_FROM_LIBM(cos)
STITCH_FROM_LIBM(tan)
STITCH_FROM_LIBM(asin)
STITCH_FROM_LIBM(acos)
STITCH_FROM_LIBM(atan)
STITCH_FROM_LIBM(sinh)
STITCH_FROM_LIBM(cosh)
STITCH_FROM_LIBM(asinh)
STITCH_FROM_LIBM(acosh)
STITCH_FROM_LIBM(atanh)
STITCH_FROM_LIBM_BINARY(atan2)
STITCH_FROM_LIBM_BINARY(pow)

}  // namespace stitch
#endif  // TF_STITCH_CUDA_MATH_RARE_H_
