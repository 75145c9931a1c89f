// How the nests of a kernel are launched: those that do not wait for each other as one parallel loop.
#pragma once
#include "abi.h"
#include "loop.h"

namespace stitch {

// The units of one nest, of about `cost` nanoseconds each.
struct Loop {
  i64 units, cost;
  StitchTask task;
  void* argument;
};

struct Loops {
  const Loop* loops;
  i64 count;
};

// Runs what begins within [begin, end) nanoseconds, as if all units were run one after another.
inline void run_loops(void* argument, i64 begin, i64 end) {
  const Loops& all = *static_cast<const Loops*>(argument);
  i64 first = 0;
  for (i64 n = 0; n < all.count && first < end; ++n) {
    const Loop& loop = all.loops[n];
    const i64 last = first + loop.units * loop.cost;
    const i64 from = begin <= first ? 0 : (begin - first + loop.cost - 1) / loop.cost;
    const i64 to = end >= last ? loop.units : (end - first + loop.cost - 1) / loop.cost;
    if (from < to) loop.task(loop.argument, from, to);
    first = last;
  }
}

// One wake-up and one join for all of them, or none where all are short together.
template <int N>
STITCH_INLINE void launch(const StitchHost* host, const Loop (&loops)[N]) {
  if constexpr (N == 1) {
    host->parallel_for(host->context, loops[0].units, loops[0].cost, loops[0].task, loops[0].argument);
  } else {
    i64 nanoseconds = 0;
    for (const Loop& loop : loops) nanoseconds += loop.units * loop.cost;
    Loops all = {loops, N};
    host->parallel_for(host->context, nanoseconds, 1, run_loops, &all);
  }
}

}  // namespace stitch
