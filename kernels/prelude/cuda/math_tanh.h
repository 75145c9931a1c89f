// tanh, sigmoid and erf. CUDA's tanhf (2 ulps) and erff (2) are nearer than the CPU prelude's quotients of polynomials
// (3.4, 3.6), which would need a division each, too.
#ifndef TF_STITCH_CUDA_MATH_TANH_H_
#define TF_STITCH_CUDA_MATH_TANH_H_

#include "prelude/cuda/math_exp.h"

namespace stitch {

STITCH_FROM_LIBM(tanh)
STITCH_FROM_LIBM(erf)

template <class T>
STITCH_DEVICE T sigmoid(T x) {
  return 1 / (1 + exp(-x));
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_MATH_TANH_H_
