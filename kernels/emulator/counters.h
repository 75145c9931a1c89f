// What a launch did, counted as a GPU's profiler counts it.
#ifndef TF_STITCH_EMULATOR_COUNTERS_H_
#define TF_STITCH_EMULATOR_COUNTERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>

namespace stitch_emulator {

// What went to and from one buffer. Sectors are summed over the instructions of warps; distinct ones are counted once in a
// launch: what a cache that keeps everything would fetch.
struct Traffic {
  std::uint64_t load_bytes = 0, store_bytes = 0;
  std::uint64_t load_sectors = 0, store_sectors = 0;
  std::unordered_set<std::uint64_t> loaded, stored;  // the distinct sectors
};

struct Counters {
  std::uint64_t switches = 0;        // from one thread to another
  std::uint64_t block_barriers = 0;  // passed by a whole block
  std::uint64_t grid_barriers = 0;   // passed by the whole grid
  std::uint64_t warp_meetings = 0;   // shuffles, votes, warp barriers
  std::uint64_t atomics = 0, fences = 0;  // volatile accesses are atomics where accesses are counted
  // Only where accesses are counted. Bytes are summed over threads; sectors are the distinct 32 bytes that the lanes of
  // a warp touch with one instruction; conflicts are the further turns that a warp's access to shared memory takes.
  std::uint64_t load_bytes = 0, store_bytes = 0;
  std::uint64_t load_sectors = 0, store_sectors = 0;
  std::uint64_t shared_loads = 0, shared_stores = 0, bank_conflicts = 0;
  std::map<const char*, Traffic> buffers;  // by their begin
};

Counters& Counted();
bool CountsAccesses();  // whether this runtime was built to
std::string CountersAsJson();

struct Block;
void CountedBlockEnds(const Block& block);  // its accesses are complete

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_COUNTERS_H_
