// NVIDIA's driver, found when the first kernel for a GPU is launched. The library neither links to it nor needs CUDA's
// headers: it builds, and loads, where there is no GPU. What is declared here is what cuda.h says of the same names.
#ifndef TF_STITCH_KERNELS_CUDA_DRIVER_H_
#define TF_STITCH_KERNELS_CUDA_DRIVER_H_

#include <cstddef>
#include <string>

namespace tf_stitch {

using CuResult = int;   // 0: all went well
using CuDevice = int;
using CuContext = struct CUctx_st*;
using CuModule = struct CUmod_st*;
using CuFunction = struct CUfunc_st*;
using CuStream = struct CUstream_st*;
using CuAddress = unsigned long long;  // of memory on the device

// Results that say that this launch is not to be had, while the GPU is fine.
enum : CuResult { kCuLaunchOutOfResources = 701, kCuCooperativeLaunchTooLarge = 720 };
enum CuDeviceAttribute {
  kCuMultiprocessors = 16,
  kCuCapabilityMajor = 75,
  kCuCapabilityMinor = 76,
  kCuCooperativeLaunch = 95
};
enum CuFunctionAttribute { kCuDynamicSharedBytes = 8 };
enum CuJitOption { kCuJitErrorLog = 5, kCuJitErrorLogBytes = 6 };

struct CudaDriver {
  CuResult (*GetErrorName)(CuResult, const char**);
  CuResult (*CtxGetCurrent)(CuContext*);
  CuResult (*CtxGetDevice)(CuDevice*);
  CuResult (*CtxGetId)(CuContext, unsigned long long*);  // null before CUDA 12
  CuResult (*DeviceGetAttribute)(int*, int, CuDevice);
  CuResult (*ModuleLoadDataEx)(CuModule*, const void*, unsigned, int*, void**);
  CuResult (*ModuleGetFunction)(CuFunction*, CuModule, const char*);
  CuResult (*FuncSetAttribute)(CuFunction, int, int);
  CuResult (*OccupancyMaxActiveBlocksPerMultiprocessor)(int*, CuFunction, int, size_t);
  CuResult (*LaunchKernel)(CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream,
                           void**, void**);
  CuResult (*LaunchCooperativeKernel)(CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, CuStream, void**);
  CuResult (*MemAlloc)(CuAddress*, size_t);
  CuResult (*MemsetD8Async)(CuAddress, unsigned char, size_t, CuStream);
  CuResult (*MemcpyDtoDAsync)(CuAddress, CuAddress, size_t, CuStream);

  // The driver of this process; null where there is none, and then `problem` says why.
  static const CudaDriver* Get(std::string* problem);

  // "CUDA_ERROR_INVALID_VALUE".
  std::string Name(CuResult result) const;
};

}  // namespace tf_stitch

#endif  // TF_STITCH_KERNELS_CUDA_DRIVER_H_
