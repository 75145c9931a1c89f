// The contract between StitchOp (the host) and a generated kernel. Plain C, no system header, so that a
// kernel compiles in a tenth of a second and runs in any process that can fill in these structs.
//
// A kernel library exports one symbol, `tf_stitch_kernel`, a `const StitchKernel`. That of a GPU's kernel exports another
// beside it, `tf_stitch_gpu_kernel`, a `const StitchGpuKernel`.
// A call is two steps: `shape` computes the symbols and the output dims from the inputs' dims and checks the
// guards; the host allocates the outputs; `run` computes. Both may be called from any thread, many at a time.
#ifndef TF_STITCH_ABI_H_
#define TF_STITCH_ABI_H_

#define TF_STITCH_ABI_VERSION 2

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StitchTensor {
  const void* data;
  const long long* dims;  // `rank` of them
  long long rank;
} StitchTensor;

typedef void (*StitchTask)(void* argument, long long begin, long long end);

// Services of the host.
typedef struct StitchHost {
  void* context;
  long long threads;  // how many may run at a time; 1: everything runs on the calling thread
  // Calls `task` over disjoint ranges that cover [0, total), in any order, on any thread, and returns when all
  // are done. `cost` is nanoseconds for one unit.
  void (*parallel_for)(void* context, long long total, long long cost, StitchTask task, void* argument);
  // At least `bytes` of memory, 64-byte aligned, of this thread. Valid until the same thread asks for the same
  // slot again. Slot 0 belongs to the call (buffers shared by its tasks), slot 1 to the running task.
  void* (*scratch)(int slot, long long bytes);
  long long cache_bytes;  // of the last level of caches; a call that moves more does not find in it what it wrote
} StitchHost;

typedef struct StitchKernel {
  int abi;             // TF_STITCH_ABI_VERSION
  int inputs;
  int outputs;
  int symbols;
  int guards;
  const int* output_ranks;    // `outputs` of them
  const int* forwards;        // pairs (input, output), ended by -1: output may be computed into input's buffer
  const char* name;
  const char* const* guard_texts;  // `guards` of them: what was assumed, in words
  // Fills `symbols` (`symbols` of them) and `output_dims` (all outputs' dims, one after another). Reads dims, and the
  // elements of inputs that hold indices.
  // Returns 0, or 1 + the index of the guard that does not hold: then the host runs the fallback.
  int (*shape)(const StitchTensor* inputs, long long* symbols, long long* output_dims);
  // Null for a GPU's kernel.
  void (*run)(const StitchTensor* inputs, void* const* outputs, const long long* symbols, const StitchHost* host);
} StitchKernel;

// ---- Kernels for GPUs -------------------------------------------------------------------------------------
//
// After `shape`, the host takes the module that fits the GPU at hand, asks its `launch` how to start it, and starts one
// entry with the parameters that the module lists.

#define TF_STITCH_GPU_ABI_VERSION 1

// What a grid barrier needs, at most. All zero before a launch, and left so by it.
#define TF_STITCH_BARRIER_BYTES 256

// What a parameter of an entry is. Each takes 8 bytes.
enum StitchParameterKind {
  STITCH_INPUT,    // the address of input `number`
  STITCH_OUTPUT,   // the address of output `number`
  STITCH_SCRATCH,  // the address of `scratch_bytes` of memory, whatever is in it
  STITCH_BARRIER,  // the address of TF_STITCH_BARRIER_BYTES
  STITCH_SYMBOL    // symbol `number`
};

typedef struct StitchParameter {
  int kind;
  int number;
} StitchParameter;

typedef struct StitchLaunch {
  const char* entry;  // the name of the function
  int resident;       // whether its blocks wait for each other: all of them must be on the GPU at a time
  long long blocks;   // 0: nothing to do. Where resident, fewer will do, too
  long long threads;  // of a block
  long long shared_bytes;  // dynamic, of a block
  long long scratch_bytes;
} StitchLaunch;

// The kernel, compiled for one architecture.
typedef struct StitchModule {
  int arch;        // 80 for sm_80
  int is_ptx;      // 1: text, for this architecture and all later ones. 0: a cubin, for GPUs of the same generation (8)
                   // that are no older
  const char* image;
  long long bytes;
  int parameters;
  const StitchParameter* parameter;  // `parameters` of them, in the order of the entries
  void (*launch)(const long long* symbols, long long multiprocessors, StitchLaunch* launch);
} StitchModule;

typedef struct StitchGpuKernel {
  int abi;        // TF_STITCH_GPU_ABI_VERSION
  int alignment;  // of every address in bytes
  int modules;
  const StitchModule* module;  // `modules` of them
} StitchGpuKernel;

#ifdef __cplusplus
}
#endif
#endif  // TF_STITCH_ABI_H_
