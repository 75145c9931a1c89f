// What a program that runs kernels calls: Python by ctypes, the runner of the sanitizers, the driver double.
#ifndef TF_STITCH_EMULATOR_LAUNCH_H_
#define TF_STITCH_EMULATOR_LAUNCH_H_

#include "runtime.h"

namespace stitch_emulator {

struct KernelEntry {
  const char* name;
  void (*run)(void** parameters);
  const Parameter* parameters;
  unsigned count;
};

extern "C" {

// `sizes`: grid x, y, z, block x, y, z. `parameters`: the addresses of the values. `seed`: negative for the order of
// the threads. `resident`: blocks that may live at once; 0: as many as fit. Returns JSON: {"counters": ..., "failure":
// ...}. The text lives until the next call.
const char* stitch_emulator_launch(const char* kernel, const unsigned* sizes, unsigned long shared_bytes,
                                   void** parameters, long long seed, unsigned resident);

const KernelEntry* stitch_emulator_kernel(const char* name);  // null: there is none
const char* stitch_emulator_kernels();                        // JSON: {name: "ppi"}, a letter a parameter; d: double
unsigned long stitch_emulator_static_shared();                // bytes of all `__shared__` variables of the module

void* stitch_emulator_allocate(unsigned long bytes, unsigned long alignment);
int stitch_emulator_free(void* data);  // 0: it was no buffer

// In words: which thread runs, and where `address` lies; for a sanitizer's report. Null: none runs.
const char* stitch_emulator_describe(const void* address);
}

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_LAUNCH_H_
