// How the nests of a kernel are launched: as one parallel loop those that do not wait for each other, and those that
// follow each other row by row.
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

// A nest of a chain: of each `rows` rows it has the same number of units, and of what is left as many as there are.
struct Link {
  Loop loop;
  i64 rows;
};

struct Chain {
  const Link* links;
  i64 count, rows, step;  // step: rows, a multiple of those of each link
};

// Rows that pass through all of the chain before the next do: enough for weights to be read rarely, few enough for what
// the nests hand on to stay in a core's caches.
constexpr i64 kRowsOfChain = 64;

// Units are `step` rows.
inline void run_chain(void* argument, i64 begin, i64 end) {
  const Chain& all = *static_cast<const Chain*>(argument);
  const i64 at_once = all.step < kRowsOfChain ? kRowsOfChain / all.step * all.step : all.step;
  const i64 last = end * all.step < all.rows ? end * all.step : all.rows;
  for (i64 row = begin * all.step; row < last; row += at_once) {
    const i64 next = row + at_once < last ? row + at_once : last;
    for (i64 n = 0; n < all.count; ++n) {
      const Link& link = all.links[n];
      const i64 each = link.loop.units / ((all.rows + link.rows - 1) / link.rows);
      const i64 to = next == all.rows ? link.loop.units : next / link.rows * each;
      link.loop.task(link.loop.argument, row / link.rows * each, to);
    }
  }
}

// Where there are too few rows for all threads to be busy to the end, the nests run one after another.
template <int N>
STITCH_INLINE void launch_chain(const StitchHost* host, i64 rows, i64 step, const Link (&links)[N]) {
  if (rows < 1) return;
  const i64 units = (rows + step - 1) / step;
  if (host->threads > 1 && units < 4 * host->threads && units % host->threads != 0) {
    for (const Link& link : links) {
      host->parallel_for(host->context, link.loop.units, link.loop.cost, link.loop.task, link.loop.argument);
    }
    return;
  }
  i64 nanoseconds = 0;
  for (const Link& link : links) nanoseconds += link.loop.units * link.loop.cost;
  Chain all = {links, N, rows, step};
  host->parallel_for(host->context, units, nanoseconds / units + 1, run_chain, &all);
}

}  // namespace stitch
