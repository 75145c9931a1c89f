// Circular and hyperbolic functions, pow: what few kernels need.
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
