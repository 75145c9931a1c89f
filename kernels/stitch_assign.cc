// StitchAssign: assigns what a kernel has computed from a variable, in place of AssignAdd and AssignSub. Those add to
// what the variable holds when they run. So does this: where another step has assigned since the variable was read, it
// adds what the kernel has added. Mostly nobody has, and the variable takes the kernel's result over as it is.

#include <cstdint>
#include <cstring>

#include "tensorflow/core/framework/bfloat16.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_stitch {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;

REGISTER_OP("StitchAssign")
    .Input("resource: resource")
    .Input("read: dtype")
    .Input("value: dtype")
    .Attr("dtype: {half, bfloat16, float, double, int32, int64}")
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Assigns a sum to a variable, as an addition: none that others make at the same time is lost.

resource: Handle of the variable.
read: What the variable held when the sum was computed.
value: The sum: `read`, and what was added.
)doc");

// An element that nobody has assigned since gets its value to the last bit.
template <class T>
void AddSince(const Tensor& read, const Tensor& value, const Tensor& held, Tensor* to) {
  const T* before = read.flat<T>().data();
  const T* after = value.flat<T>().data();
  const T* now = held.flat<T>().data();
  T* sum = to->flat<T>().data();
  for (int64_t i = 0; i < held.NumElements(); ++i) {
    const bool is_same = std::memcmp(&now[i], &before[i], sizeof(T)) == 0;
    sum[i] = is_same ? after[i] : static_cast<T>(now[i] + static_cast<T>(after[i] - before[i]));
  }
}

absl::Status AddSince(DataType dtype, const Tensor& read, const Tensor& value, const Tensor& held, Tensor* to) {
  switch (dtype) {
    case tensorflow::DT_HALF: AddSince<Eigen::half>(read, value, held, to); break;
    case tensorflow::DT_BFLOAT16: AddSince<tensorflow::bfloat16>(read, value, held, to); break;
    case tensorflow::DT_FLOAT: AddSince<float>(read, value, held, to); break;
    case tensorflow::DT_DOUBLE: AddSince<double>(read, value, held, to); break;
    case tensorflow::DT_INT32: AddSince<int32_t>(read, value, held, to); break;
    case tensorflow::DT_INT64: AddSince<int64_t>(read, value, held, to); break;
    default: return absl::UnimplementedError("StitchAssign adds numbers of this type nowhere");
  }
  return absl::OkStatus();
}

class StitchAssign : public OpKernel {
 public:
  explicit StitchAssign(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("dtype", &dtype_));
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::core::RefCountPtr<Var> variable;
    OP_REQUIRES_OK(context, LookupResource(context, tensorflow::HandleFromInput(context, 0), &variable));
    const Tensor& read = context->input(1);
    const Tensor& value = context->input(2);
    tensorflow::mutex_lock lock(*variable->mu());
    Tensor* held = variable->tensor();
    OP_REQUIRES(context, variable->is_initialized && held->dtype() == dtype_,
                absl::FailedPreconditionError("what is added to is no initialized variable of the type of `value`"));
    OP_REQUIRES(context, held->shape() == value.shape() && read.shape() == value.shape(),
                absl::InvalidArgumentError(absl::StrCat("a sum of shape ", value.shape().DebugString(),
                                                        " is assigned to a variable of shape ",
                                                        held->shape().DebugString())));
    if (value.NumElements() == 0) return;
    if (!variable->copy_on_read_mode.load() && held->SharesBufferWith(read)) {
      *held = value;
      return;
    }
    // Where others still read what is held, the sum gets memory of its own.
    Tensor copy;
    Tensor* sum = held;
    if (!variable->copy_on_read_mode.load() && !held->RefCountIsOne()) {
      OP_REQUIRES_OK(context, context->allocate_temp(dtype_, held->shape(), &copy));
      sum = &copy;
    }
    OP_REQUIRES_OK(context, AddSince(dtype_, read, value, *held, sum));
    if (sum == &copy) *held = copy;
  }

 private:
  DataType dtype_;
};

REGISTER_KERNEL_BUILDER(Name("StitchAssign").Device(tensorflow::DEVICE_CPU), StitchAssign);

}  // namespace
}  // namespace tf_stitch
