// erfc, and so the GELU.
#ifndef TF_STITCH_CPU_MATH_ERFC_H_
#define TF_STITCH_CPU_MATH_ERFC_H_

#include "basic.h"
#include "erfc.h"

namespace stitch {

STITCH_LIFT_UNARY(erfc)

}  // namespace stitch
#endif  // TF_STITCH_CPU_MATH_ERFC_H_
