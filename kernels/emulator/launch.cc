#include "launch.h"

#include <cstring>
#include <vector>

#include "counters.h"
#include "failure.h"
#include "launch_state.h"
#include "memory.h"
#include "shared.h"

#define TF_STITCH_PUBLIC __attribute__((visibility("default")))

namespace stitch_emulator {

namespace {

std::vector<KernelEntry>& Kernels() {
  static auto* kernels = new std::vector<KernelEntry>;
  return *kernels;
}

}  // namespace

extern "C" {

// ---- For device code ---------------------------------------------------------------------------------------

Index stitch_emulator_thread() { return Now().running->index; }
Index stitch_emulator_block() { return Now().running->block->index; }
Index stitch_emulator_block_size() { return Now().launch->block; }
Index stitch_emulator_grid_size() { return Now().launch->grid; }
unsigned stitch_emulator_lane() { return Now().running->lane; }

unsigned long stitch_emulator_reserve(const char* name, unsigned long bytes, unsigned long alignment) {
  return ReserveShared(name, bytes, alignment);
}
void* stitch_emulator_shared(unsigned long offset) { return Now().running->block->shared + offset; }
void* stitch_emulator_dynamic_shared() { return Now().running->block->shared + DynamicOffset(); }

// Every block passes a grid barrier once.
void stitch_emulator_grid_barrier() {
  State& now = Now();
  if (++now.blocks_at_grid_barrier < now.order.size()) return;
  now.blocks_at_grid_barrier = 0;
  ++Counted().grid_barriers;
}

long long stitch_emulator_clock() { return ++Now().clock; }

void stitch_emulator_register(const char* kernel, void (*run)(void**), const Parameter* parameters, unsigned count) {
  Kernels().push_back({kernel, run, parameters, count});
}

// ---- For programs ------------------------------------------------------------------------------------------

TF_STITCH_PUBLIC const KernelEntry* stitch_emulator_kernel(const char* name) {
  for (const KernelEntry& entry : Kernels()) {
    if (std::strcmp(entry.name, name) == 0) return &entry;
  }
  return nullptr;
}

TF_STITCH_PUBLIC const char* stitch_emulator_kernels() {
  static std::string text;
  text = "{";
  for (const KernelEntry& entry : Kernels()) {
    text += (text.size() == 1 ? "" : ",") + Quoted(entry.name) + ":\"";
    for (unsigned n = 0; n < entry.count; ++n) {
      const Parameter& parameter = entry.parameters[n];
      text += parameter.kind == 'f' && parameter.bytes == 8 ? 'd' : parameter.kind;
    }
    text += "\"";
  }
  text += "}";
  return text.c_str();
}

TF_STITCH_PUBLIC const char* stitch_emulator_launch(const char* kernel, const unsigned* sizes,
                                                    unsigned long shared_bytes, void** parameters, long long seed,
                                                    unsigned resident) {
  static std::string text;
  const KernelEntry* entry = stitch_emulator_kernel(kernel);
  if (entry == nullptr) {
    text = "{\"failure\":{\"kind\":\"trap\",\"message\":\"no such kernel\",\"kernel\":" + Quoted(kernel) + "}}";
    return text.c_str();
  }
  const Index grid = {sizes[0], sizes[1], sizes[2]}, block = {sizes[3], sizes[4], sizes[5]};
  const Launch launch = {entry->name, entry->run, parameters, grid, block, shared_bytes, seed, resident};
  const std::string failure = Run(launch);
  text = "{\"counters\":" + CountersAsJson() + ",\"failure\":" + (failure.empty() ? "null" : failure) + "}";
  return text.c_str();
}

TF_STITCH_PUBLIC unsigned long stitch_emulator_static_shared() { return StaticSharedBytes(); }

TF_STITCH_PUBLIC void* stitch_emulator_allocate(unsigned long bytes, unsigned long alignment) {
  return Allocate(bytes, alignment);
}
TF_STITCH_PUBLIC int stitch_emulator_free(void* data) { return Free(static_cast<char*>(data)) ? 1 : 0; }

TF_STITCH_PUBLIC const char* stitch_emulator_describe(const void* address) {
  static std::string text;
  if (Now().running == nullptr) return nullptr;
  text = DescribeAccess(*Now().running, address);
  return text.c_str();
}
}

}  // namespace stitch_emulator
