// What device code calls of the emulator's runtime. It includes nothing, because device code may include nothing.
//
// `file` and `line` are the place in the kernel's source that a report shall name.
#ifndef TF_STITCH_EMULATOR_RUNTIME_H_
#define TF_STITCH_EMULATOR_RUNTIME_H_

namespace stitch_emulator {

struct Index {  // of a thread or block, or how many there are
  unsigned x, y, z;
};

struct Site {
  const char* file;
  int line;
};

enum class Vote { kSync, kShuffle, kBallot, kAny, kAll, kBlockCount, kBlockAnd, kBlockOr, kBlockSync };

enum class Atomic { kAdd, kMin, kMax, kAnd, kOr, kXor, kExchange, kCompareExchange };

enum class Scope { kBlock, kDevice };

extern "C" {

// The running thread's. They never change for a thread, so the compiler may keep what they return.
Index stitch_emulator_thread() __attribute__((const));
Index stitch_emulator_block() __attribute__((const));
Index stitch_emulator_block_size() __attribute__((const));
Index stitch_emulator_grid_size() __attribute__((const));
unsigned stitch_emulator_lane() __attribute__((const));

// A place for a `__shared__` variable, reserved when the module is loaded: its offset in every block's shared memory.
unsigned long stitch_emulator_reserve(const char* name, unsigned long bytes, unsigned long alignment);
void* stitch_emulator_shared(unsigned long offset) __attribute__((const));
void* stitch_emulator_dynamic_shared() __attribute__((const));

// All threads of the block meet; the result is the count, conjunction or disjunction of their `predicate`s.
int stitch_emulator_meet_block(Vote vote, int predicate, Site site);

// The lanes of `mask` meet. kShuffle: returns the `value` of lane `source`. kBallot, kAny, kAll: of `value != 0`.
unsigned long long stitch_emulator_meet_warp(Vote vote, unsigned mask, unsigned long long value, unsigned source,
                                             Site site);
unsigned stitch_emulator_active_mask();

// Integers of 4 or 8 bytes; returns what was there before. `width` is negative for signed ones.
unsigned long long stitch_emulator_atomic(Atomic operation, void* address, int width, unsigned long long operand,
                                          unsigned long long expected, Site site);
void stitch_emulator_fence(Scope scope);

// An acquiring load and a releasing store, of 4 or 8 bytes. The load lets other threads run: spin loops call it.
unsigned long long stitch_emulator_load_acquire(const void* address, int bytes, Site site);
void stitch_emulator_store_release(void* address, int bytes, unsigned long long value, Site site);

void stitch_emulator_sleep(Site site);
void stitch_emulator_trap(Site site);
void stitch_emulator_grid_barrier();  // one block has passed a grid barrier: for the counters
long long stitch_emulator_clock();

struct Parameter {
  char kind;  // 'p' pointer, 'i' integer, 'f' floating point
  unsigned bytes, offset;
};
void stitch_emulator_register(const char* kernel, void (*run)(void** parameters), const Parameter* parameters,
                              unsigned count);
}

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_RUNTIME_H_
