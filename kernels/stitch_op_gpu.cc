// StitchOp on NVIDIA's GPUs: the same op, its kernel launched in the stream that TensorFlow computes in. Built without
// CUDA's headers, and registered also where TensorFlow knows no GPU: there nothing is ever placed on one.

#include <cstdint>
#include <vector>

#include "cuda_launch.h"
#include "stitch_op_base.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace tf_stitch {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

CuStream StreamOf(OpKernelContext* context) {
  const auto* device = context->op_device_context();
  auto* stream = device == nullptr ? nullptr : device->stream();
  return stream == nullptr ? nullptr : static_cast<CuStream>(stream->platform_specific_handle().stream);
}

class StitchOpGpu : public StitchOpBase {
 public:
  using StitchOpBase::StitchOpBase;

 protected:
  void Run(OpKernelContext* context, const LoadedKernel& kernel, Call* call) override {
    if (kernel.gpu == nullptr) return FallBack(context, Reason::kDevice, "the kernel is one for CPUs");
    const CuStream stream = StreamOf(context);
    if (stream == nullptr) return FallBack(context, Reason::kDevice, "TensorFlow gives no CUDA stream");
    GpuPlan plan;
    if (GpuResult result = PlanLaunch(*kernel.gpu, call->symbols.data(), &plan); !result.ok) {
      return FallBack(context, Reason::kDevice, result.detail);
    }

    std::vector<Tensor> copies;  // live until the launch is in the stream; their memory is the stream's own
    OP_REQUIRES_OK(context, AlignInputs(context, *kernel.gpu, *plan.module, stream, call, &copies));
    Tensor scratch;
    if (plan.launch.scratch_bytes > 0) {
      OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_INT8, {plan.launch.scratch_bytes}, &scratch));
    }
    OP_REQUIRES_OK(context, call->AllocateOutputs(context, kernel, kernel.gpu->alignment));
    if (call->all_empty) return;

    absl::InlinedVector<const void*, 8> inputs;
    for (const StitchTensor& input : call->inputs) inputs.push_back(input.data);
    const auto outputs = call->OutputAddresses();
    void* memory = plan.launch.scratch_bytes > 0 ? scratch.data() : nullptr;
    const GpuOperands operands = {inputs.data(), outputs.data(), call->symbols.data(), memory};
    const GpuResult result = Launch(plan, operands, stream);
    if (result.ok) return;
    OP_REQUIRES(context, result.harmless,
                absl::InternalError(absl::StrCat("StitchOp '", name(), "': ", result.detail)));
    FallBack(context, Reason::kDevice, result.detail);
  }

 private:
  // A tensor that is a slice of another may begin anywhere: such an input is copied to where the kernel can read it.
  static absl::Status AlignInputs(OpKernelContext* context, const StitchGpuKernel& kernel, const StitchModule& module,
                                  CuStream stream, Call* call, std::vector<Tensor>* copies) {
    for (int i = 0; i < module.parameters; ++i) {
      const StitchParameter& parameter = module.parameter[i];
      if (parameter.kind != STITCH_INPUT) continue;
      StitchTensor& input = call->inputs[parameter.number];
      if (reinterpret_cast<uintptr_t>(input.data) % kernel.alignment == 0) continue;
      const Tensor& tensor = context->input(parameter.number);
      TF_RETURN_IF_ERROR(context->allocate_temp(tensor.dtype(), tensor.shape(), &copies->emplace_back()));
      input.data = copies->back().data();
      const GpuResult copied = CopyOnDevice(copies->back().data(), tensor.data(), tensor.TotalBytes(), stream);
      if (!copied.ok) return absl::InternalError(copied.detail);
    }
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("StitchOp").Device(tensorflow::DEVICE_GPU), StitchOpGpu);

}  // namespace
}  // namespace tf_stitch
