// Starts a generated kernel on the GPU whose context is current: takes the module that fits it, loads it once for each
// context, and launches an entry with its parameters in order. No TensorFlow header, so that it can be tested alone.
#ifndef TF_STITCH_KERNELS_CUDA_LAUNCH_H_
#define TF_STITCH_KERNELS_CUDA_LAUNCH_H_

#include <string>

#include "abi.h"
#include "cuda_driver.h"

namespace tf_stitch {

// What became of a step. Where it is not ok but `harmless`, nothing was started and the GPU is fine: something else can
// compute the same.
struct GpuResult {
  bool ok = true;
  bool harmless = true;
  std::string detail;  // empty when ok
};

// A launch that is decided on. Valid in the context that it was made in.
struct GpuPlan {
  const StitchModule* module = nullptr;
  StitchLaunch launch{};
  CuFunction function = nullptr;
  bool has_barrier = false;
};

// Where the operands are, all on the device; `inputs` and `outputs` by their numbers in the kernel.
struct GpuOperands {
  const void* const* inputs;
  void* const* outputs;
  const long long* symbols;
  void* scratch;  // at least `scratch_bytes` of the plan
};

// Decides how to launch the kernel for these symbols. Loads its module into the context, if that has not happened.
GpuResult PlanLaunch(const StitchGpuKernel& kernel, const long long* symbols, GpuPlan* plan);

// Starts what was planned, and does not wait for its end.
GpuResult Launch(const GpuPlan& plan, const GpuOperands& operands, CuStream stream);

// Copies on the device, in the stream's order.
GpuResult CopyOnDevice(void* to, const void* from, size_t bytes, CuStream stream);

// What the kernel was compiled for: "sm_80, sm_90, compute_90".
std::string ListModules(const StitchGpuKernel& kernel);

}  // namespace tf_stitch

// The same in C, for programs without TensorFlow. 0, or 1 with the reason in `error`.
extern "C" {
int tf_stitch_gpu_plan(const StitchGpuKernel* kernel, const long long* symbols, StitchLaunch* launch, char* error,
                       int error_size);
int tf_stitch_gpu_launch(const StitchGpuKernel* kernel, const void* const* inputs, void* const* outputs,
                         const long long* symbols, void* scratch, void* stream, char* error, int error_size);
}

#endif  // TF_STITCH_KERNELS_CUDA_LAUNCH_H_
