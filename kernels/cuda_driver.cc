#include "cuda_driver.h"

#include <dlfcn.h>

// Tests put a driver of their own here.
#ifndef TF_STITCH_LIBCUDA
#define TF_STITCH_LIBCUDA "libcuda.so.1"
#endif

namespace tf_stitch {
namespace {

constexpr char kLibrary[] = TF_STITCH_LIBCUDA;

struct Found {
  CudaDriver driver{};
  std::string problem;
};

template <class Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

Found Load() {
  Found found;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    found.problem = std::string(kLibrary) + ", NVIDIA's driver, does not load: " + dlerror();
    return found;
  }
  CudaDriver& driver = found.driver;
  // The names are those that cuda.h of CUDA 12 gives them, whose versions every later driver keeps.
#define TF_STITCH_FIND(name, symbol) \
  if (!Find(library, symbol, &driver.name)) found.problem = std::string(kLibrary) + " has no " + symbol
  TF_STITCH_FIND(GetErrorName, "cuGetErrorName");
  TF_STITCH_FIND(CtxGetCurrent, "cuCtxGetCurrent");
  TF_STITCH_FIND(CtxGetDevice, "cuCtxGetDevice");
  TF_STITCH_FIND(DeviceGetAttribute, "cuDeviceGetAttribute");
  TF_STITCH_FIND(ModuleLoadDataEx, "cuModuleLoadDataEx");
  TF_STITCH_FIND(ModuleGetFunction, "cuModuleGetFunction");
  TF_STITCH_FIND(FuncSetAttribute, "cuFuncSetAttribute");
  TF_STITCH_FIND(OccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  TF_STITCH_FIND(LaunchKernel, "cuLaunchKernel");
  TF_STITCH_FIND(LaunchCooperativeKernel, "cuLaunchCooperativeKernel");
  TF_STITCH_FIND(MemAlloc, "cuMemAlloc_v2");
  TF_STITCH_FIND(MemsetD8Async, "cuMemsetD8Async");
  TF_STITCH_FIND(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
#undef TF_STITCH_FIND
  (void)Find(library, "cuCtxGetId", &driver.CtxGetId);
  return found;
}

}  // namespace

const CudaDriver* CudaDriver::Get(std::string* problem) {
  static const Found* found = new Found(Load());  // never destroyed: ops may run while the process exits
  *problem = found->problem;
  return found->problem.empty() ? &found->driver : nullptr;
}

std::string CudaDriver::Name(CuResult result) const {
  const char* name = nullptr;
  if (GetErrorName(result, &name) != 0 || name == nullptr) return "CUDA error " + std::to_string(result);
  return name;
}

}  // namespace tf_stitch
