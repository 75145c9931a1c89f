// The state of the launch that runs, and the few moves that meetings, atomics and reports need. There is one at a time.
#ifndef TF_STITCH_EMULATOR_LAUNCH_STATE_H_
#define TF_STITCH_EMULATOR_LAUNCH_STATE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler.h"

namespace stitch_emulator {

// Threads that may go on, first come first served. It never allocates while threads run.
class ReadyQueue {
 public:
  void Reserve(std::size_t threads) {
    if (ring_.size() < threads) ring_.resize(threads);
    Clear();
  }
  void Clear() { head_ = size_ = 0; }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  void Push(Thread* thread) { ring_[At(size_++)] = thread; }
  Thread* Pop() {
    Thread* thread = ring_[head_];
    head_ = At(1);
    --size_;
    return thread;
  }
  void Swap(std::size_t n) { std::swap(ring_[head_], ring_[At(n)]); }  // the n-th becomes the first

 private:
  std::size_t At(std::size_t n) const {
    const std::size_t at = head_ + n;
    return at < ring_.size() ? at : at - ring_.size();
  }
  std::vector<Thread*> ring_;
  std::size_t head_ = 0, size_ = 0;
};

struct State {
  const Launch* launch = nullptr;
  Context main;
  Thread* running = nullptr;
  ReadyQueue ready;
  std::vector<std::unique_ptr<Block>> blocks;  // that have begun and not ended
  Block* ended = nullptr;
  std::vector<std::uint64_t> order;  // of the grid's blocks
  std::uint64_t next = 0;            // in `order`
  unsigned resident = 1;
  bool stalled = false;  // the blocks that have begun only wait for others
  std::uint64_t alive = 0;  // threads
  std::uint64_t idle = 0;   // turns of spinning threads since anything happened
  std::uint64_t random = 1;
  long long clock = 0;
  std::vector<char*> stacks;  // of blocks that have ended
  std::string failure;        // JSON
  std::uint64_t blocks_at_grid_barrier = 0;
  char end = 0;               // a tag: released by every thread when it returns
  // For the race detector: the fences that came before the atomic stores to an address.
  std::unordered_map<const void*, std::vector<Fences*>> published;
  std::deque<Fences> fences;  // of all threads that have begun

  void Progress() { idle = 0; }
};

State& Now();

void Wait(const char* in, Site site);  // until another thread calls `Wake`
void Wake(Thread* thread);
void Spin(const char* in, Site site);  // lets the others run; a failure if there have been too many in vain
void Preempt();                        // with a seed, sometimes lets others run

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_LAUNCH_STATE_H_
