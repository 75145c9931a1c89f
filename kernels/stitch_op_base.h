// What StitchOp is on every device: where its kernel comes from, what a call hands to it, and the fallback. A device adds
// how the kernel is run.
#ifndef TF_STITCH_KERNELS_STITCH_OP_BASE_H_
#define TF_STITCH_KERNELS_STITCH_OP_BASE_H_

#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "kernel_cache.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_stitch {

// Everything that a kernel is given, on the stack for up to eight inputs of up to five dims.
struct Call {
  absl::InlinedVector<StitchTensor, 8> inputs;
  absl::InlinedVector<long long, 40> input_dims;
  absl::InlinedVector<long long, 16> symbols;
  absl::InlinedVector<long long, 16> output_dims;
  absl::InlinedVector<tensorflow::Tensor*, 8> outputs;
  bool all_empty = true;  // of the outputs

  Call(tensorflow::OpKernelContext* context, const LoadedKernel& kernel);

  // Makes the output tensors, in an input's buffer where the kernel allows it, nobody else holds it, and its address is
  // a multiple of `alignment`.
  absl::Status AllocateOutputs(tensorflow::OpKernelContext* context, const LoadedKernel& kernel, int alignment = 1);

  // Where the outputs are.
  absl::InlinedVector<void*, 8> OutputAddresses() const;
};

class FallbackFunction;

// IsExpensive stays as TensorFlow has it: the executor starts by sending the op to a pool thread, measures it,
// and runs it inline once it proves short. Never sent to another thread, a loop of short kernels takes a tenth less time;
// but a training step, whose long kernels then keep others waiting, takes up to a tenth more.
class StitchOpBase : public tensorflow::OpKernel {
 public:
  explicit StitchOpBase(tensorflow::OpKernelConstruction* context);
  ~StitchOpBase() override;

  void Compute(tensorflow::OpKernelContext* context) override;

 protected:
  // Makes the outputs and runs the kernel, whose shapes have been checked.
  virtual void Run(tensorflow::OpKernelContext* context, const LoadedKernel& kernel, Call* call) = 0;

  // Runs the fallback function instead; an error under TF_STITCH_STRICT=1.
  void FallBack(tensorflow::OpKernelContext* context, Reason reason, const std::string& detail);

 private:
  KernelEntry* entry_ = nullptr;
  LoadResult no_kernel_;  // why there is no kernel, while there is none
  std::unique_ptr<FallbackFunction> fallback_;
};

}  // namespace tf_stitch

#endif  // TF_STITCH_KERNELS_STITCH_OP_BASE_H_
