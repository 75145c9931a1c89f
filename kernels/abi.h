// The contract between StitchOp (the host) and a generated kernel. Plain C, no system header, so that a
// kernel compiles in a tenth of a second and runs in any process that can fill in these structs.
//
// A kernel library exports one symbol, `tf_stitch_kernel`, a `const StitchKernel`.
// A call is two steps: `shape` computes the symbols and the output dims from the inputs' dims and checks the
// guards; the host allocates the outputs; `run` computes. Both may be called from any thread, many at a time.
#ifndef TF_STITCH_ABI_H_
#define TF_STITCH_ABI_H_

#define TF_STITCH_ABI_VERSION 1

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
  // Fills `symbols` (`symbols` of them) and `output_dims` (all outputs' dims, one after another).
  // Returns 0, or 1 + the index of the guard that does not hold: then the host runs the fallback.
  int (*shape)(const StitchTensor* inputs, long long* symbols, long long* output_dims);
  void (*run)(const StitchTensor* inputs, void* const* outputs, const long long* symbols, const StitchHost* host);
} StitchKernel;

#ifdef __cplusplus
}
#endif
#endif  // TF_STITCH_ABI_H_
