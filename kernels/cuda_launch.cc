#include "cuda_launch.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tf_stitch {
namespace {

constexpr int kManySharedBytes = 48 << 10;  // a block gets more than this only where the function was told so
constexpr size_t kJitLogBytes = 4096;

GpuResult Refuse(std::string detail) { return GpuResult{false, true, std::move(detail)}; }

GpuResult Fail(const CudaDriver& driver, const char* call, CuResult result) {
  const bool harmless = result == kCuLaunchOutOfResources || result == kCuCooperativeLaunchTooLarge;
  return GpuResult{false, harmless, std::string(call) + ": " + driver.Name(result)};
}

#define TF_STITCH_CALL(driver, name, ...)                                      \
  if (const CuResult called = (driver).name(__VA_ARGS__); called != 0) {       \
    return Fail(driver, "cu" #name, called);                                   \
  }

// ---- What is kept of a context ----------------------------------------------------------------------------

struct LoadedFunction {
  CuFunction function = nullptr;
  long long shared_bytes = 0;  // dynamic ones that it was told to allow
};

// A module in a context. Never unloaded: a kernel of it may be running.
struct LoadedModule {
  std::mutex mutex;
  CuModule module = nullptr;
  std::map<std::string, LoadedFunction> functions;
};

struct Context {
  CuDevice device = 0;
  int capability = 0;  // 80 for 8.0
  int multiprocessors = 0;
  bool cooperative = false;

  std::mutex mutex;
  std::map<const StitchModule*, std::unique_ptr<LoadedModule>> modules;
  std::map<CuStream, CuAddress> barriers;
};

// The contexts of this process. By their ids, where the driver gives them, for an address may come again.
struct Contexts {
  std::mutex mutex;
  std::map<unsigned long long, std::unique_ptr<Context>> by_id;
};

Contexts& GetContexts() {
  static Contexts* contexts = new Contexts;  // never destroyed: ops may run while the process exits
  return *contexts;
}

GpuResult Describe(const CudaDriver& driver, Context* context) {
  int major = 0, minor = 0, cooperative = 0;
  TF_STITCH_CALL(driver, CtxGetDevice, &context->device);
  TF_STITCH_CALL(driver, DeviceGetAttribute, &major, kCuCapabilityMajor, context->device);
  TF_STITCH_CALL(driver, DeviceGetAttribute, &minor, kCuCapabilityMinor, context->device);
  TF_STITCH_CALL(driver, DeviceGetAttribute, &context->multiprocessors, kCuMultiprocessors, context->device);
  TF_STITCH_CALL(driver, DeviceGetAttribute, &cooperative, kCuCooperativeLaunch, context->device);
  context->capability = 10 * major + minor;
  context->cooperative = cooperative != 0;
  return {};
}

// The context that is current on this thread.
GpuResult CurrentContext(const CudaDriver& driver, Context** context) {
  CuContext handle = nullptr;
  TF_STITCH_CALL(driver, CtxGetCurrent, &handle);
  if (handle == nullptr) return Refuse("no CUDA context is current on the calling thread");
  unsigned long long id = reinterpret_cast<uintptr_t>(handle);
  if (driver.CtxGetId != nullptr) TF_STITCH_CALL(driver, CtxGetId, handle, &id);

  Contexts& contexts = GetContexts();
  std::lock_guard<std::mutex> lock(contexts.mutex);
  std::unique_ptr<Context>& kept = contexts.by_id[id];
  if (kept == nullptr) {
    auto fresh = std::make_unique<Context>();
    if (GpuResult described = Describe(driver, fresh.get()); !described.ok) return described;
    kept = std::move(fresh);
  }
  *context = kept.get();
  return {};
}

// ---- Modules ----------------------------------------------------------------------------------------------

// A cubin runs on GPUs of its own generation that are no older; PTX is compiled by the driver for any that is no older.
bool Fits(const StitchModule& module, int capability) {
  if (module.arch > capability) return false;
  return module.is_ptx != 0 || module.arch / 10 == capability / 10;
}

// The one that was made for the most similar GPU, cubins before PTX; null where none fits.
const StitchModule* BestModule(const StitchGpuKernel& kernel, int capability) {
  const StitchModule* best = nullptr;
  for (int i = 0; i < kernel.modules; ++i) {
    const StitchModule& module = kernel.module[i];
    if (!Fits(module, capability)) continue;
    const auto rank = [](const StitchModule& m) { return std::pair(m.is_ptx == 0, m.arch); };
    if (best == nullptr || rank(module) > rank(*best)) best = &module;
  }
  return best;
}

GpuResult LoadModule(const CudaDriver& driver, const StitchModule& module, CuModule* loaded) {
  std::array<char, kJitLogBytes> log{};
  std::array<int, 2> options = {kCuJitErrorLog, kCuJitErrorLogBytes};
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
  // A cubin needs no compiler, and so has no log; and PTX ends with the zero byte behind each image.
  const unsigned count = module.is_ptx ? options.size() : 0;
  CuModule fresh = nullptr;
  const CuResult result = driver.ModuleLoadDataEx(&fresh, module.image, count, options.data(), values.data());
  if (result == 0) {
    *loaded = fresh;
    return {};
  }
  GpuResult failure = Fail(driver, "cuModuleLoadDataEx", result);
  failure.harmless = true;  // whatever was wrong with it, nothing has run
  if (log[0] != '\0') failure.detail += std::string(": ") + log.data();
  return failure;
}

// The entry of a module, in a context, allowed to have so much dynamic shared memory.
GpuResult FindFunction(const CudaDriver& driver, Context* context, const StitchModule& module,
                       const StitchLaunch& launch, CuFunction* function) {
  LoadedModule* loaded;
  {
    std::lock_guard<std::mutex> lock(context->mutex);
    std::unique_ptr<LoadedModule>& kept = context->modules[&module];
    if (kept == nullptr) kept = std::make_unique<LoadedModule>();
    loaded = kept.get();
  }
  std::lock_guard<std::mutex> lock(loaded->mutex);  // so that each is loaded once
  if (loaded->module == nullptr) {
    if (GpuResult result = LoadModule(driver, module, &loaded->module); !result.ok) return result;
  }
  LoadedFunction& kept = loaded->functions[launch.entry];
  if (kept.function == nullptr) {
    CuFunction found = nullptr;
    if (CuResult result = driver.ModuleGetFunction(&found, loaded->module, launch.entry); result != 0) {
      return Refuse(std::string("the module has no entry ") + launch.entry + ": " + driver.Name(result));
    }
    kept.function = found;
  }
  if (launch.shared_bytes > std::max<long long>(kManySharedBytes, kept.shared_bytes)) {
    const int bytes = static_cast<int>(launch.shared_bytes);
    if (CuResult result = driver.FuncSetAttribute(kept.function, kCuDynamicSharedBytes, bytes); result != 0) {
      return Refuse("a block needs " + std::to_string(bytes) + " bytes of shared memory: " + driver.Name(result));
    }
    kept.shared_bytes = bytes;
  }
  *function = kept.function;
  return {};
}

// Blocks that wait for each other must all be on the GPU; those that find no place would never be waited out.
GpuResult LimitToResident(const CudaDriver& driver, const Context& context, CuFunction function,
                          StitchLaunch* launch) {
  if (!context.cooperative) return Refuse("the GPU has no cooperative launch");
  int blocks = 0;
  TF_STITCH_CALL(driver, OccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function,
                 static_cast<int>(launch->threads), static_cast<size_t>(launch->shared_bytes));
  const long long resident = static_cast<long long>(blocks) * context.multiprocessors;
  if (resident == 0) {
    return Refuse("a block of " + std::to_string(launch->threads) + " threads with " +
                  std::to_string(launch->shared_bytes) + " bytes of shared memory does not fit on a multiprocessor");
  }
  launch->blocks = std::min(launch->blocks, resident);
  return {};
}

// Zeroed memory for the grid barrier of whatever runs in the stream, one after the other.
GpuResult BarrierOf(const CudaDriver& driver, Context* context, CuStream stream, CuAddress* barrier) {
  std::lock_guard<std::mutex> lock(context->mutex);
  auto found = context->barriers.find(stream);
  if (found == context->barriers.end()) {
    CuAddress fresh = 0;
    TF_STITCH_CALL(driver, MemAlloc, &fresh, TF_STITCH_BARRIER_BYTES);
    TF_STITCH_CALL(driver, MemsetD8Async, fresh, 0, TF_STITCH_BARRIER_BYTES, stream);
    found = context->barriers.emplace(stream, fresh).first;
  }
  *barrier = found->second;
  return {};
}

}  // namespace

// ---- The two steps ----------------------------------------------------------------------------------------

GpuResult PlanLaunch(const StitchGpuKernel& kernel, const long long* symbols, GpuPlan* plan) {
  std::string problem;
  const CudaDriver* driver = CudaDriver::Get(&problem);
  if (driver == nullptr) return Refuse(problem);
  Context* context = nullptr;
  if (GpuResult result = CurrentContext(*driver, &context); !result.ok) return result;

  plan->module = BestModule(kernel, context->capability);
  if (plan->module == nullptr) {
    return Refuse("the kernel was compiled for " + ListModules(kernel) + ", and this GPU is an sm_" +
                  std::to_string(context->capability));
  }
  plan->module->launch(symbols, context->multiprocessors, &plan->launch);
  if (plan->launch.blocks <= 0) return {};
  GpuResult found = FindFunction(*driver, context, *plan->module, plan->launch, &plan->function);
  if (!found.ok) return found;
  for (int i = 0; i < plan->module->parameters; ++i) {
    if (plan->module->parameter[i].kind == STITCH_BARRIER) plan->has_barrier = true;
  }
  if (plan->launch.resident == 0) return {};
  return LimitToResident(*driver, *context, plan->function, &plan->launch);
}

GpuResult Launch(const GpuPlan& plan, const GpuOperands& operands, CuStream stream) {
  const StitchLaunch& launch = plan.launch;
  if (launch.blocks <= 0) return {};
  std::string problem;
  const CudaDriver& driver = *CudaDriver::Get(&problem);  // the plan was made with it
  CuAddress barrier = 0;
  if (plan.has_barrier) {
    Context* context = nullptr;
    if (GpuResult result = CurrentContext(driver, &context); !result.ok) return result;
    if (GpuResult result = BarrierOf(driver, context, stream, &barrier); !result.ok) return result;
  }

  std::vector<unsigned long long> values;
  values.reserve(plan.module->parameters);
  for (int i = 0; i < plan.module->parameters; ++i) {
    const StitchParameter& parameter = plan.module->parameter[i];
    switch (parameter.kind) {
      case STITCH_INPUT:
        values.push_back(reinterpret_cast<uintptr_t>(operands.inputs[parameter.number]));
        break;
      case STITCH_OUTPUT:
        values.push_back(reinterpret_cast<uintptr_t>(operands.outputs[parameter.number]));
        break;
      case STITCH_SCRATCH:
        values.push_back(reinterpret_cast<uintptr_t>(operands.scratch));
        break;
      case STITCH_BARRIER:
        values.push_back(barrier);
        break;
      case STITCH_SYMBOL:
        values.push_back(static_cast<unsigned long long>(operands.symbols[parameter.number]));
        break;
      default:
        return Refuse("the kernel has a parameter of an unknown kind");
    }
  }
  std::vector<void*> addresses;
  addresses.reserve(values.size());
  for (unsigned long long& value : values) addresses.push_back(&value);

  const auto blocks = static_cast<unsigned>(launch.blocks), threads = static_cast<unsigned>(launch.threads);
  const auto shared = static_cast<unsigned>(launch.shared_bytes);
  if (launch.resident != 0) {
    TF_STITCH_CALL(driver, LaunchCooperativeKernel, plan.function, blocks, 1, 1, threads, 1, 1, shared, stream,
                   addresses.data());
  } else {
    TF_STITCH_CALL(driver, LaunchKernel, plan.function, blocks, 1, 1, threads, 1, 1, shared, stream, addresses.data(),
                   nullptr);
  }
  return {};
}

GpuResult CopyOnDevice(void* to, const void* from, size_t bytes, CuStream stream) {
  std::string problem;
  const CudaDriver* driver = CudaDriver::Get(&problem);
  if (driver == nullptr) return Refuse(problem);
  TF_STITCH_CALL(*driver, MemcpyDtoDAsync, reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes,
                 stream);
  return {};
}

std::string ListModules(const StitchGpuKernel& kernel) {
  std::string list;
  for (int i = 0; i < kernel.modules; ++i) {
    const StitchModule& module = kernel.module[i];
    list += (i > 0 ? ", " : "") + std::string(module.is_ptx ? "compute_" : "sm_") + std::to_string(module.arch);
  }
  return list;
}

}  // namespace tf_stitch

// ---- In C -------------------------------------------------------------------------------------------------

namespace {

int Told(const tf_stitch::GpuResult& result, char* error, int size) {
  if (error != nullptr && size > 0) snprintf(error, size, "%s", result.detail.c_str());
  return result.ok ? 0 : 1;
}

}  // namespace

extern "C" {

int tf_stitch_gpu_plan(const StitchGpuKernel* kernel, const long long* symbols, StitchLaunch* launch, char* error,
                       int error_size) {
  tf_stitch::GpuPlan plan;
  const tf_stitch::GpuResult result = tf_stitch::PlanLaunch(*kernel, symbols, &plan);
  *launch = plan.launch;
  return Told(result, error, error_size);
}

int tf_stitch_gpu_launch(const StitchGpuKernel* kernel, const void* const* inputs, void* const* outputs,
                         const long long* symbols, void* scratch, void* stream, char* error, int error_size) {
  tf_stitch::GpuPlan plan;
  tf_stitch::GpuResult result = tf_stitch::PlanLaunch(*kernel, symbols, &plan);
  if (result.ok) {
    const tf_stitch::GpuOperands operands = {inputs, outputs, symbols, scratch};
    result = tf_stitch::Launch(plan, operands, static_cast<tf_stitch::CuStream>(stream));
  }
  return Told(result, error, error_size);
}

}  // extern "C"
