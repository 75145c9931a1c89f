// tanh, sigmoid and erf.
#ifndef TF_STITCH_CPU_MATH_TANH_H_
#define TF_STITCH_CPU_MATH_TANH_H_

#include "basic.h"
#include "tanh_erf.h"

namespace stitch {

STITCH_LIFT_UNARY(tanh)
STITCH_LIFT_UNARY(sigmoid)
STITCH_LIFT_UNARY(erf)

}  // namespace stitch
#endif  // TF_STITCH_CPU_MATH_TANH_H_
