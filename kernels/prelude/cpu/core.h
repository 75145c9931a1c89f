// What every generated kernel needs. Functions beyond it are in headers of their own (math_exp.h, math_tanh.h, math_rare.h,
// divide.h), which a kernel includes if it calls them: parsing what is not called takes a tenth of a small kernel's compile
// time.
#ifndef TF_STITCH_CPU_CORE_H_
#define TF_STITCH_CPU_CORE_H_

#include "basic.h"
#include "convert.h"
#include "memory.h"
#include "pack.h"
#include "reduce.h"

#endif  // TF_STITCH_CPU_CORE_H_
