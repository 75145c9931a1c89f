#include "stitch_op_base.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/types.h"

namespace tf_stitch {

using tensorflow::FunctionLibraryRuntime;
using tensorflow::NameAttrList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// ---- Fallback ---------------------------------------------------------------------------------------------

namespace {

// Whether a fallback is an error. Read each time, so that a running process can be switched.
bool IsStrict() {
  const char* value = getenv("TF_STITCH_STRICT");
  return value != nullptr && value[0] != '\0' && strcmp(value, "0") != 0;
}

const char* Remedy(Reason reason) {
  switch (reason) {
    case Reason::kNoKernel:
      return "Stitch the model again, or register the kernel before this call.";
    case Reason::kGuard:
      return "Stitch the model again with input shapes that allow this call.";
    case Reason::kCpu:
      return "Convert the model again for this CPU.";
    case Reason::kAbi:
      return "Convert the model again with the tf_stitch that is installed here.";
    case Reason::kDevice:
      return "Convert the model for this device, or stitch it in the process that runs it.";
  }
  return "";
}

}  // namespace

// The fallback function, instantiated once for each function library that the op runs under.
class FallbackFunction {
 public:
  // on_host: whether the op's tensors are there.
  FallbackFunction(NameAttrList function, bool on_host) : function_(std::move(function)), on_host_(on_host) {}

  // Runs on the calling thread, as a kernel would.
  absl::Status Run(OpKernelContext* context) {
    FunctionLibraryRuntime* library = context->function_library();
    if (function_.name().empty() || library == nullptr) {
      return absl::NotFoundError(absl::StrCat("StitchOp '", context->op_kernel().name(),
                                              "' has neither a kernel nor a fallback function that can run here"));
    }
    FunctionLibraryRuntime::Handle handle;
    TF_RETURN_IF_ERROR(Instantiate(library, &handle));

    std::vector<Tensor> arguments, results;
    arguments.reserve(context->num_inputs());
    for (int i = 0; i < context->num_inputs(); ++i) arguments.push_back(context->input(i));
    std::function<void(std::function<void()>)> run_here = [](std::function<void()> closure) { closure(); };
    TF_RETURN_IF_ERROR(library->RunSync(Options(context, &run_here), handle, arguments, &results));

    if (static_cast<int>(results.size()) != context->num_outputs()) {
      return absl::InternalError(absl::StrCat("fallback '", function_.name(), "' of StitchOp '",
                                              context->op_kernel().name(), "' returned ", results.size(),
                                              " tensors instead of ", context->num_outputs()));
    }
    for (int i = 0; i < context->num_outputs(); ++i) context->set_output(i, results[i]);
    return absl::OkStatus();
  }

 private:
  absl::Status Instantiate(FunctionLibraryRuntime* library, FunctionLibraryRuntime::Handle* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = handles_.find(library);
    if (found == handles_.end()) {
      FunctionLibraryRuntime::InstantiateOptions options;
      // On a GPU the op has its int32 tensors there, as it has all others; functions have them on the host.
      options.int_args_and_retvals_on_device = !on_host_;
      TF_RETURN_IF_ERROR(
          library->Instantiate(function_.name(), tensorflow::AttrSlice(&function_.attr()), options, handle));
      found = handles_.emplace(library, *handle).first;
    }
    *handle = found->second;
    return absl::OkStatus();
  }

  static FunctionLibraryRuntime::Options Options(OpKernelContext* context,
                                                 std::function<void(std::function<void()>)>* runner) {
    FunctionLibraryRuntime::Options options(context->step_id());
    options.rendezvous = context->rendezvous();
    options.cancellation_manager = context->cancellation_manager();
    options.collective_executor = context->collective_executor();
    options.step_container = context->step_container();
    options.stats_collector = context->stats_collector();
    options.runner = runner;
    options.run_all_kernels_inline = true;
    return options;
  }

  const NameAttrList function_;
  const bool on_host_;
  std::mutex mutex_;
  std::unordered_map<FunctionLibraryRuntime*, FunctionLibraryRuntime::Handle> handles_;
};

// ---- One call ---------------------------------------------------------------------------------------------

Call::Call(OpKernelContext* context, const LoadedKernel& kernel)
    : inputs(context->num_inputs()), symbols(kernel.abi->symbols), output_dims(kernel.output_dims) {
  int total_rank = 0;
  for (int i = 0; i < context->num_inputs(); ++i) total_rank += context->input(i).dims();
  input_dims.resize(total_rank);
  long long* dims = input_dims.data();
  for (int i = 0; i < context->num_inputs(); ++i) {
    const Tensor& tensor = context->input(i);
    const int rank = tensor.dims();
    inputs[i] = {tensor.data(), dims, rank};
    for (int d = 0; d < rank; ++d) *dims++ = tensor.dim_size(d);
  }
}

absl::Status Call::AllocateOutputs(OpKernelContext* context, const LoadedKernel& kernel, int alignment) {
  const long long* dims = output_dims.data();
  for (int i = 0; i < kernel.abi->outputs; ++i) {
    const int rank = kernel.abi->output_ranks[i];
    const absl::InlinedVector<int64_t, 8> sizes(dims, dims + rank);
    dims += rank;
    TensorShape shape;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(sizes, &shape));
    absl::InlinedVector<int, 4> candidates;
    for (int input : kernel.forward_candidates[i]) {
      if (reinterpret_cast<uintptr_t>(context->input(input).data()) % alignment == 0) candidates.push_back(input);
    }
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(candidates, i, shape, &output));
    outputs.push_back(output);
    if (output->NumElements() > 0) all_empty = false;
  }
  return absl::OkStatus();
}

absl::InlinedVector<void*, 8> Call::OutputAddresses() const {
  absl::InlinedVector<void*, 8> addresses;
  for (Tensor* output : outputs) addresses.push_back(output->data());
  return addresses;
}

// ---- The op -----------------------------------------------------------------------------------------------

namespace {

std::string GuardText(const StitchKernel& kernel, int guard) {
  if (kernel.guard_texts == nullptr || guard < 0 || guard >= kernel.guards) return "an unnamed guard";
  return absl::StrCat("the kernel assumes that ", kernel.guard_texts[guard]);
}

}  // namespace

StitchOpBase::StitchOpBase(OpKernelConstruction* context) : OpKernel(context) {
  std::string key, artefact, requirements;
  NameAttrList fallback;
  OP_REQUIRES_OK(context, context->GetAttr("key", &key));
  OP_REQUIRES_OK(context, context->GetAttr("artefact", &artefact));
  OP_REQUIRES_OK(context, context->GetAttr("requires", &requirements));
  OP_REQUIRES_OK(context, context->GetAttr("fallback", &fallback));
  fallback_ = std::make_unique<FallbackFunction>(std::move(fallback), context->device_type() == tensorflow::DEVICE_CPU);
  entry_ = FindOrCreateEntry(key);
  if (artefact.empty()) {
    no_kernel_ = {false, Reason::kNoKernel, "no kernel is registered under its key, and it carries none"};
  } else {
    no_kernel_ = LoadFromArtefact(entry_, artefact, requirements);
  }
}

StitchOpBase::~StitchOpBase() = default;

void StitchOpBase::Compute(OpKernelContext* context) {
  entry_->counters().calls.fetch_add(1, std::memory_order_relaxed);
  const LoadedKernel* kernel = entry_->kernel();
  if (kernel == nullptr) return FallBack(context, no_kernel_.reason, no_kernel_.detail);
  if (kernel->abi->inputs != context->num_inputs() || kernel->abi->outputs != context->num_outputs()) {
    return FallBack(context, Reason::kAbi, "the kernel has another number of inputs or outputs than the op");
  }

  Call call(context, *kernel);
  int guard = kernel->abi->shape(call.inputs.data(), call.symbols.data(), call.output_dims.data());
  if (guard != 0) return FallBack(context, Reason::kGuard, GuardText(*kernel->abi, guard - 1));
  Run(context, *kernel, &call);
}

void StitchOpBase::FallBack(OpKernelContext* context, Reason reason, const std::string& detail) {
  const int index = static_cast<int>(reason);
  Counters& counters = entry_->counters();
  counters.fallbacks[index].fetch_add(1, std::memory_order_relaxed);
  const std::string text = absl::StrCat("StitchOp '", name(), "' (key ", entry_->key(), ") cannot run its kernel: ",
                                        kReasonNames[index], ": ", detail, ".");
  OP_REQUIRES(context, !IsStrict(),
              absl::FailedPreconditionError(
                  absl::StrCat(text, " ", Remedy(reason), " Or unset TF_STITCH_STRICT to allow fallbacks.")));
  if (!counters.logged[index].exchange(true)) {
    LOG(WARNING) << text << " It runs the original ops instead. " << Remedy(reason)
                 << " (Logged once for this key and reason.)";
  }
  OP_REQUIRES_OK(context, fallback_->Run(context));
}

}  // namespace tf_stitch
