// Circular and hyperbolic functions, pow: what few kernels need.
#ifndef TF_STITCH_CPU_MATH_RARE_H_
#define TF_STITCH_CPU_MATH_RARE_H_

#include "math_exp.h"
#include "math_tanh.h"
#include "trigonometry.h"
#include "wide.h"

namespace stitch {

STITCH_LIFT_UNARY(sin)
STITCH_LIFT_UNARY(cos)
STITCH_LIFT_UNARY(tan)
STITCH_LIFT_UNARY(asin)
STITCH_LIFT_UNARY(acos)
STITCH_LIFT_UNARY(atan)
STITCH_LIFT_UNARY(sinh)
STITCH_LIFT_UNARY(cosh)
STITCH_LIFT_UNARY(asinh)
STITCH_LIFT_UNARY(acosh)
STITCH_LIFT_UNARY(atanh)
STITCH_LIFT_BINARY(atan2)
STITCH_LIFT_BINARY(pow)

}  // namespace stitch
#endif  // TF_STITCH_CPU_MATH_RARE_H_
