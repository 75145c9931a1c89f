// exp, log and what is made of them.
#ifndef TF_STITCH_CPU_MATH_EXP_H_
#define TF_STITCH_CPU_MATH_EXP_H_

#include "basic.h"
#include "exp_log.h"

namespace stitch {
namespace vec {

template <class V>
STITCH_INLINE V elu(V x) {
  return x < 0 ? expm1(x) : x;
}

template <class V>
STITCH_INLINE V selu(V x) {
  const Element<V> scale = Element<V>(1.0507009873554804934193349852946);
  const Element<V> scale_alpha = Element<V>(1.7580993408473768599402175208123);
  return x < 0 ? scale_alpha * expm1(x) : scale * x;
}

template <class V>
STITCH_INLINE V xlogy(V x, V y) {
  return x == 0 ? V{} : x * log(y);
}

template <class V>
STITCH_INLINE V xlog1py(V x, V y) {
  return x == 0 ? V{} : x * log1p(y);
}

}  // namespace vec

STITCH_LIFT_UNARY(exp)
STITCH_LIFT_UNARY(expm1)
STITCH_LIFT_UNARY(log)
STITCH_LIFT_UNARY(log1p)
STITCH_LIFT_UNARY(softplus)
STITCH_LIFT_UNARY(elu)
STITCH_LIFT_UNARY(selu)
STITCH_LIFT_BINARY(xlogy)
STITCH_LIFT_BINARY(xlog1py)

}  // namespace stitch
#endif  // TF_STITCH_CPU_MATH_EXP_H_
