// exp, log and what is made of them: CUDA's own, by its documentation within an ulp of f32, as the CPU prelude's are.
// exp needs fewer instructions than a polynomial, for it ends in the hardware's 2^x. No subnormal result is flushed.
#ifndef TF_STITCH_CUDA_MATH_EXP_H_
#define TF_STITCH_CUDA_MATH_EXP_H_

#include "prelude/cuda/basic.h"

namespace stitch {

STITCH_FROM_LIBM(exp)
STITCH_FROM_LIBM(expm1)
STITCH_FROM_LIBM(log)
STITCH_FROM_LIBM(log1p)

// log(1 + e^x), without overflow
template <class T>
STITCH_DEVICE T softplus(T x) {
  return (x > 0 ? x : T(0)) + log1p(exp(-abs(x)));
}

template <class T>
STITCH_DEVICE T elu(T x) {
  return x < 0 ? expm1(x) : x;
}

template <class T>
STITCH_DEVICE T selu(T x) {
  const T scale = T(1.0507009873554804934193349852946);
  const T scale_alpha = T(1.7580993408473768599402175208123);
  return x < 0 ? scale_alpha * expm1(x) : scale * x;
}

template <class T>
STITCH_DEVICE T xlogy(T x, T y) {
  return x == 0 ? T(0) : x * log(y);
}

template <class T>
STITCH_DEVICE T xlog1py(T x, T y) {
  return x == 0 ? T(0) : x * log1p(y);
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_MATH_EXP_H_
