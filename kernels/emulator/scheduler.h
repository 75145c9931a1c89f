// One launch of a kernel: every CUDA thread a fiber, all of them on one thread of the machine.
//
//     grid ── blocks, at most `resident` of them at once ── warps of 32 lanes ── threads
//
// A thread runs until it meets others (a barrier, a shuffle), sleeps, or does an atomic operation. Then another one
// that is ready goes on: the one that has waited longest, or with a seed any. Lanes of a warp do not run in step, which
// CUDA does not promise either.
//
// Invariants
//   - A thread stands in one place: it runs, it is in the ready queue, it waits where it meets others, or is gone.
//   - Only the program's own context starts blocks and frees them; a thread that returns goes there.
//   - A failure is told once. From then on only the program's context runs.
#ifndef TF_STITCH_EMULATOR_SCHEDULER_H_
#define TF_STITCH_EMULATOR_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "context.h"
#include "counters.h"
#include "runtime.h"

namespace stitch_emulator {

struct Block;

// The fences of one thread. They outlive it: others may read later what it published.
struct Fences {
  Index block;
  bool passed[2] = {false, false};  // by scope
  char tags[2] = {0, 0};            // released at each fence
};

struct Thread {
  Context context;
  Index index;
  Block* block = nullptr;
  unsigned warp = 0, lane = 0;
  const char* waits_in = nullptr;  // while it waits or sleeps
  Site site = {"", 0};
  unsigned long long value = 0;  // what it brings to a meeting, then what it takes away
  unsigned source = 0;
  bool gone = false;
  char woken = 0;              // a tag: released by the lane that completes a meeting
  Fences* fences = nullptr;    // where a race detector looks on
  std::vector<Fences*> seen;   // those that came before what atomic loads have read since this thread's last fence
};

// Lanes that meet. All that may meet at once have disjoint masks, so the lowest lane of its mask names one.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  Vote vote = Vote::kSync;
  Site site = {"", 0};
  char tag = 0;
};

struct Warp {
  unsigned alive = 0;
  unsigned expected = 0;  // lanes of the masks of meetings that some have come to
  Meeting meetings[32];
};

struct Accesses;

struct Block {
  Block();
  ~Block();
  Index index;
  std::unique_ptr<Thread[]> threads;
  std::vector<Warp> warps;
  char* shared = nullptr;  // the variables of `SharedLayout`, then the dynamic part, with red zones
  char* stacks = nullptr;  // of all its threads
  unsigned alive = 0, size = 0;
  // The barrier of the block. Two tags by turns: a thread may arrive at the next barrier before another has left this
  // one.
  unsigned arrived = 0, passed = 0;
  Thread* first = nullptr;  // of those that have arrived
  int count = 0;            // of predicates that hold
  int result = 0;
  char tags[2] = {0, 0};
  std::unique_ptr<Accesses> accesses;  // where they are counted
};

struct Launch {
  const char* kernel;
  void (*run)(void** parameters);
  void** parameters;
  Index grid, block;
  std::size_t dynamic_shared;
  std::int64_t seed;  // negative: in order
  unsigned resident;  // blocks at once; 0: as many as fit
};

// Runs it. Returns the report of a failure as JSON, or nothing; the counters are in `Counted()`.
std::string Run(const Launch& launch);

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_SCHEDULER_H_
