// Every header that a kernel may include, for compilers that read them precompiled.
#ifndef TF_STITCH_CPU_WHOLE_H_
#define TF_STITCH_CPU_WHOLE_H_

#include "stitch.h"

#include "bundles.h"
#include "down.h"
#include "launch.h"
#include "loop.h"

#endif  // TF_STITCH_CPU_WHOLE_H_
