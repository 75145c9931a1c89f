#include "scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "failure.h"
#include "launch_state.h"
#include "memory.h"
#include "sanitizer.h"
#include "shared.h"

namespace stitch_emulator {

namespace {

constexpr std::size_t kStackBytes = kSanitized ? 256 << 10 : 64 << 10;
constexpr std::uint64_t kStackMark = 0x5354495443484544;  // at the lowest end: gone if a stack overflowed
// ThreadSanitizer knows about 8000 fibers at once.
constexpr unsigned kThreadsAtOnce = kSanitized ? 4096 : 1 << 16;

State state;

// ---- Who is next -------------------------------------------------------------------------------------------

std::uint64_t Random() {  // xorshift64
  state.random ^= state.random << 13;
  state.random ^= state.random >> 7;
  state.random ^= state.random << 17;
  return state.random;
}

void MakeReady(Thread* thread) { state.ready.Push(thread); }

Thread* TakeReady() {
  if (state.launch->seed >= 0) state.ready.Swap(Random() % state.ready.size());
  return state.ready.Pop();
}

// The running thread stops; whoever is next goes on, or the program's context if nobody is or a block should begin.
void GiveWay() {
  Thread* me = state.running;
  ++Counted().switches;
  if (state.ready.empty() || state.stalled) {
    state.running = nullptr;
    Switch(me->context, state.main);
  } else {
    Thread* next = TakeReady();
    if (next != me) {
      state.running = next;
      Switch(me->context, next->context);
    }
  }
  state.running = me;
}

// ---- Blocks ------------------------------------------------------------------------------------------------

// The stacks of a block are one mapping. Blocks of one launch are of one size, so that the next block takes them over.
// Not so where a sanitizer looks on: it would remember what the threads before have done.
std::size_t StacksBytes() {
  const Index& block = state.launch->block;
  return std::size_t{block.x} * block.y * block.z * kStackBytes;
}

char* TakeStacks() {
  if (!state.stacks.empty()) {
    char* stacks = state.stacks.back();
    state.stacks.pop_back();
    return stacks;
  }
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* map = mmap(nullptr, StacksBytes(), PROT_READ | PROT_WRITE, flags, -1, 0);
  return map == MAP_FAILED ? nullptr : static_cast<char*>(map);
}

void ReturnStacks(char* stacks) {
  if (kSanitized) {
    munmap(stacks, StacksBytes());
  } else {
    state.stacks.push_back(stacks);
  }
}

void DropStacks() {
  for (char* stacks : state.stacks) munmap(stacks, StacksBytes());
  state.stacks.clear();
}

void ThreadMain() {
  Entered();
  state.launch->run(state.launch->parameters);
  Thread* me = state.running;
  Block& block = *me->block;
  Release(&state.end);
  me->gone = true;
  block.warps[me->warp].alive &= ~(1u << me->lane);
  --block.alive;
  --state.alive;
  state.Progress();
  if (block.first != nullptr) {
    Fail("divergence",
         Name(*me) + " returned while " + Name(*block.first) + " waits in " + block.first->waits_in + " at " +
             Name(block.first->site) + ": every thread of a block must meet every barrier",
         block.first);
  }
  std::uint64_t mark;
  std::memcpy(&mark, me->context.stack, sizeof mark);
  if (mark != kStackMark) Fail("access", "the stack of " + Name(*me) + " overflowed", me);
  if (block.alive == 0) state.ended = &block;
  state.running = nullptr;
  Switch(me->context, state.main, true);
  __builtin_unreachable();
}

void StartThread(Block& block, unsigned number) {
  const Index& size = state.launch->block;
  Thread& thread = block.threads[number];
  thread.index = {number % size.x, number / size.x % size.y, number / size.x / size.y};
  thread.block = &block;
  thread.warp = number / 32;
  thread.lane = number % 32;
  block.warps[thread.warp].alive |= 1u << thread.lane;
  thread.context.stack = block.stacks + number * kStackBytes;
  thread.context.stack_bytes = kStackBytes;
  std::memcpy(thread.context.stack, &kStackMark, sizeof kStackMark);
  if (kDetectsRaces) thread.fences = &state.fences.emplace_back(Fences{block.index});
  Prepare(thread.context, ThreadMain, kSanitized ? Name(thread).c_str() : "");
  MakeReady(&thread);
}

void StartBlock(std::uint64_t number) {
  const Launch& launch = *state.launch;
  auto block = std::make_unique<Block>();
  block->index = {static_cast<unsigned>(number % launch.grid.x),
                  static_cast<unsigned>(number / launch.grid.x % launch.grid.y),
                  static_cast<unsigned>(number / launch.grid.x / launch.grid.y)};
  block->size = block->alive = launch.block.x * launch.block.y * launch.block.z;
  block->threads = std::make_unique<Thread[]>(block->size);
  block->warps.resize((block->size + 31) / 32);
  block->shared = AllocateShared(launch.dynamic_shared);
  block->stacks = TakeStacks();
  if (block->shared == nullptr || block->stacks == nullptr) {
    Fail("trap", "no memory left for the emulated threads: launch fewer blocks at once");
  } else {
    for (unsigned n = 0; n < block->size; ++n) StartThread(*block, n);
  }
  state.alive += block->size;
  state.Progress();
  state.blocks.push_back(std::move(block));
}

void EndBlock(Block* block) {
  CountedBlockEnds(*block);
  if (block->shared != nullptr) {
    const std::string damage = SharedDamage(block->shared, state.launch->dynamic_shared);
    if (!damage.empty() && state.failure.empty()) {
      Fail("access", "a thread of block (" + std::to_string(block->index.x) + "," + std::to_string(block->index.y) +
                         "," + std::to_string(block->index.z) + ") wrote " + damage);
    }
    FreeShared(block->shared, state.launch->dynamic_shared);
  }
  for (unsigned n = 0; n < block->size; ++n) {
    if (block->threads[n].context.stack != nullptr) Forget(block->threads[n].context);
  }
  if (block->stacks != nullptr) ReturnStacks(block->stacks);
  std::erase_if(state.blocks, [&](const auto& other) { return other.get() == block; });
}

// ---- The launch --------------------------------------------------------------------------------------------

std::string Waiting() {
  struct Group {
    const Thread* example;
    std::uint64_t count;
  };
  std::vector<Group> groups;
  for (const auto& block : state.blocks) {
    for (unsigned n = 0; n < block->size; ++n) {
      const Thread& thread = block->threads[n];
      if (thread.gone) continue;
      const char* where = thread.waits_in == nullptr ? "" : thread.waits_in;
      auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
        return std::strcmp(group.example->waits_in, where) == 0 && group.example->site.line == thread.site.line &&
               std::strcmp(group.example->site.file, thread.site.file) == 0;
      });
      if (same == groups.end()) {
        if (*where != 0) groups.push_back({&thread, 1});
      } else {
        ++same->count;
      }
    }
  }
  std::string text;
  for (const Group& group : groups) {
    text += (text.empty() ? "" : "; ") + std::to_string(group.count) + " threads in " + group.example->waits_in +
            " at " + Name(group.example->site) + " (" + Name(*group.example) + ")";
  }
  const std::uint64_t unstarted = state.order.size() - state.next;
  if (unstarted != 0) {
    text += "; " + std::to_string(unstarted) + " blocks of the grid wait for a place, " +
            std::to_string(state.resident) + " may be resident at once";
  }
  return text;
}

void Order() {
  const Launch& launch = *state.launch;
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  state.order.resize(blocks);
  for (std::uint64_t n = 0; n < blocks; ++n) state.order[n] = n;
  if (launch.seed < 0) return;
  for (std::uint64_t n = blocks; n > 1; --n) std::swap(state.order[n - 1], state.order[Random() % n]);
}

// Whether one more block may begin.
bool MayBegin() {
  return state.next < state.order.size() && state.blocks.size() < state.resident && state.failure.empty();
}

// A block begins when the others cannot go on without it: so the stacks in use are few, and in the cache. With a seed some
// run side by side from the begin.
void RunBlocks() {
  const unsigned eager = state.launch->seed < 0 ? 1 : 8;
  while (state.failure.empty()) {
    while (MayBegin() && (state.blocks.size() < eager || state.ready.empty() || state.stalled)) {
      state.stalled = false;
      StartBlock(state.order[state.next++]);
    }
    if (state.blocks.empty() || !state.failure.empty()) return;
    if (state.ready.empty()) {
      const Thread* example = nullptr;
      for (unsigned n = 0; example == nullptr; ++n) {
        if (!state.blocks.front()->threads[n].gone) example = &state.blocks.front()->threads[n];
      }
      Fail("deadlock", "nobody can go on: " + Waiting(), example);
      return;
    }
    state.ended = nullptr;
    Thread* next = TakeReady();
    state.running = next;
    Switch(state.main, next->context);
    state.running = nullptr;
    if (state.ended != nullptr) EndBlock(state.ended);
  }
}

}  // namespace

State& Now() { return state; }

void Wait(const char* in, Site site) {
  Thread* me = state.running;
  me->waits_in = in;
  me->site = site;
  GiveWay();
  me->waits_in = nullptr;
}

void Wake(Thread* thread) {
  MakeReady(thread);
  state.Progress();
}

void Spin(const char* in, Site site) {
  Thread* me = state.running;
  if (++state.idle > 4096 + 64 * state.alive) {
    me->waits_in = in;
    me->site = site;
    Fail("deadlock", "threads only spin, and nothing that they look at changes: " + Waiting(), me);
  }
  MakeReady(me);
  state.stalled = state.idle > 2 * state.alive && MayBegin();
  Wait(in, site);
}

void Preempt() {
  if (state.launch->seed < 0 || (Random() & 1) != 0) return;
  MakeReady(state.running);
  GiveWay();
}

std::string Run(const Launch& launch) {
  state.launch = &launch;
  state.random = 88172645463325252u ^ (static_cast<std::uint64_t>(launch.seed + 1) * 0x9E3779B97F4A7C15u);
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  const unsigned fit = std::max(1u, kThreadsAtOnce / threads);
  Order();
  state.resident = std::min<std::uint64_t>(launch.resident == 0 ? fit : launch.resident, state.order.size());
  state.failure.clear();
  if (kDetectsRaces && state.resident > fit) {
    Fail("trap", "a race detector follows " + std::to_string(kThreadsAtOnce) + " threads at once: launch fewer blocks");
    return state.failure;
  }
  state.ready.Reserve(std::size_t{state.resident} * threads + 1);
  state.next = state.alive = state.idle = state.blocks_at_grid_barrier = 0;
  state.published.clear();
  state.fences.clear();
  Counted() = {};
  Begin(state.main);
  {
    Watch watch;
    RunBlocks();
  }
  while (!state.blocks.empty()) EndBlock(state.blocks.back().get());
  Acquire(&state.end);
  state.ready.Clear();
  state.stalled = false;
  DropStacks();
  if (state.failure.empty()) {
    const std::string damage = Damage();
    if (!damage.empty()) Fail("access", damage);
  }
  state.launch = nullptr;
  return state.failure;
}

}  // namespace stitch_emulator
