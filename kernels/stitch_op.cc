// StitchOp: one op in place of a cluster of memory-intensive ops. It runs the kernel that its key names, or,
// where there is none for this call, the cluster itself, which it keeps as its `fallback` function. Here are the op
// and its kernel for the CPU.

#include <algorithm>
#include <vector>

#include "cpu_host.h"
#include "stitch_op_base.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_stitch {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status StitchShape(InferenceContext* context) {
  std::vector<PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(context->GetAttr("output_shapes", &shapes));
  for (int i = 0; i < context->num_outputs(); ++i) {
    ShapeHandle shape = context->UnknownShape();
    if (i < static_cast<int>(shapes.size())) {
      TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    }
    context->set_output(i, shape);
  }
  return absl::OkStatus();
}

REGISTER_OP("StitchOp")
    .Input("inputs: Tin")
    .Output("outputs: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 1")
    .Attr("key: string")
    .Attr("artefact: string = ''")
    .Attr("requires: string = ''")
    .Attr("output_shapes: list(shape) = []")
    .Attr("fallback: func = { name: '' }")
    .SetShapeFn(StitchShape)
    .Doc(R"doc(
A cluster of ops, stitched into one generated kernel.

key: Content hash that names the kernel.
artefact: The kernel's shared library behind a checksum, for a graph that leaves the process that compiled it.
requires: CPU features that the artefact needs, as in "x86_64,avx2,fma".
output_shapes: What is known of the outputs' shapes.
fallback: The cluster as a function. Runs where the kernel cannot, and is what gradients are taken of.
)doc");

class StitchOpCpu : public StitchOpBase {
 public:
  using StitchOpBase::StitchOpBase;

 protected:
  void Run(OpKernelContext* context, const LoadedKernel& kernel, Call* call) override {
    if (kernel.gpu != nullptr) return FallBack(context, Reason::kDevice, "the kernel is one for GPUs");
    OP_REQUIRES_OK(context, call->AllocateOutputs(context, kernel));
    if (call->all_empty) return;
    for (const Tensor* output : call->outputs) {
      const bool is_fresh = std::none_of(call->inputs.begin(), call->inputs.end(), [output](const StitchTensor& input) {
        return input.data == output->data();
      });
      if (is_fresh) WriteInHugePages(output->data(), output->TotalBytes());
    }
    const auto* workers = context->device()->tensorflow_cpu_worker_threads();
    CpuHost host(workers->workers, std::min(workers->num_threads, tensorflow::GetPerThreadMaxParallelism()));
    kernel.abi->run(call->inputs.data(), call->OutputAddresses().data(), call->symbols.data(), host.host());
  }
};

REGISTER_KERNEL_BUILDER(Name("StitchOp").Device(tensorflow::DEVICE_CPU), StitchOpCpu);

}  // namespace
}  // namespace tf_stitch
