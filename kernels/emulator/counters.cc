// Counts the accesses to memory that the compiled kernel makes.
//
// A kernel that is compiled with -fsanitize=thread calls a function before every access to memory that another thread
// could see. ThreadSanitizer brings these functions; a runtime that counts is linked with those below instead. So what
// is counted is what the code does, with no word about it in the kernel. Volatile accesses count as atomic ones: how
// often a barrier looks at its word says nothing about the kernel.
//
// Lanes do not run in step here: lane 0 may be through its loop before lane 1 begins. The n-th time that a lane comes
// by an instruction is put together with the n-th time of the other lanes: such a *turn* is what a GPU does at once.
#include "counters.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "launch_state.h"
#include "memory.h"
#include "shared.h"

namespace stitch_emulator {

struct Turn {
  unsigned lanes = 0;
  std::uint64_t at[32];
};

struct Stream {  // the turns of one instruction in one warp
  bool shared = false, stores = false;
  unsigned bytes = 0;
  std::uint64_t begun[32] = {};  // turns, by lane
  std::uint64_t first = 0;       // turns before the first of `open`
  std::deque<Turn> open;
};

struct Accesses {
  std::vector<std::unordered_map<const void*, Stream>> streams;  // by warp, by instruction
};

Block::Block() = default;
Block::~Block() = default;

Counters& Counted() {
  static Counters counters;
  return counters;
}

namespace {

constexpr unsigned kSector = 32, kBanks = 32, kWord = 4;

unsigned Distinct(std::vector<std::uint64_t>& values) {
  std::sort(values.begin(), values.end());
  return std::unique(values.begin(), values.end()) - values.begin();
}

std::vector<std::uint64_t> Sectors(const Turn& turn, unsigned bytes) {
  std::vector<std::uint64_t> sectors;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((turn.lanes >> lane & 1) == 0) continue;
    const std::uint64_t last = (turn.at[lane] + bytes - 1) / kSector;
    for (std::uint64_t sector = turn.at[lane] / kSector; sector <= last; ++sector) sectors.push_back(sector);
  }
  sectors.resize(Distinct(sectors));
  return sectors;
}

void AddSectors(const std::vector<std::uint64_t>& sectors, bool stores) {
  Counters& counted = Counted();
  (stores ? counted.store_sectors : counted.load_sectors) += sectors.size();
  for (const std::uint64_t sector : sectors) {
    Traffic& traffic = counted.buffers[Find(reinterpret_cast<const void*>(sector * kSector))->data];
    (stores ? traffic.store_sectors : traffic.load_sectors) += 1;
    (stores ? traffic.stored : traffic.loaded).insert(sector);
  }
}

// Lanes that access 8 or 16 bytes go in two or four groups. In each group a bank gives one word at a time, to all that
// want the same.
unsigned Conflicts(const Turn& turn, unsigned bytes) {
  const unsigned group = bytes <= kWord ? 32 : std::max(1u, 32 * kWord / bytes);
  unsigned conflicts = 0;
  for (unsigned begin = 0; begin < 32; begin += group) {
    std::vector<std::uint64_t> words[kBanks];
    for (unsigned lane = begin; lane < begin + group; ++lane) {
      if ((turn.lanes >> lane & 1) == 0) continue;
      for (std::uint64_t w = turn.at[lane] / kWord; w <= (turn.at[lane] + bytes - 1) / kWord; ++w) {
        words[w % kBanks].push_back(w);
      }
    }
    unsigned worst = 0;
    for (auto& of_bank : words) worst = std::max(worst, Distinct(of_bank));
    if (worst > 1) conflicts += worst - 1;
  }
  return conflicts;
}

void Close(const Stream& stream, const Turn& turn) {
  Counters& counted = Counted();
  if (stream.shared) {
    (stream.stores ? counted.shared_stores : counted.shared_loads) += 1;
    counted.bank_conflicts += Conflicts(turn, stream.bytes);
  } else {
    AddSectors(Sectors(turn, stream.bytes), stream.stores);
  }
}

}  // namespace

void CountedBlockEnds(const Block& block) {
  if (block.accesses == nullptr) return;
  for (const auto& of_warp : block.accesses->streams) {
    for (const auto& [instruction, stream] : of_warp) {
      for (const Turn& turn : stream.open) {
        if (turn.lanes != 0) Close(stream, turn);
      }
    }
  }
}

#if defined(TF_STITCH_EMULATOR_COUNTING)

bool CountsAccesses() { return true; }

namespace {

void Note(const Thread& me, const void* instruction, std::uint64_t at, unsigned bytes, bool shared, bool stores) {
  Block& block = *me.block;
  if (block.accesses == nullptr) {
    block.accesses = std::make_unique<Accesses>();
    block.accesses->streams.resize(block.warps.size());
  }
  Stream& stream = block.accesses->streams[me.warp][instruction];
  stream.shared = shared;
  stream.stores = stores;
  stream.bytes = bytes;
  const std::uint64_t number = stream.begun[me.lane]++ - stream.first;
  if (number >= stream.open.size()) stream.open.resize(number + 1);
  Turn& turn = stream.open[number];
  turn.lanes |= 1u << me.lane;
  turn.at[me.lane] = at;
  while (!stream.open.empty() && stream.open.front().lanes == 0xffffffffu) {
    Close(stream, stream.open.front());
    stream.open.pop_front();
    ++stream.first;
  }
}

void Count(const void* address, unsigned bytes, bool stores, const void* instruction) {
  const State& now = Now();
  const Thread* me = now.running;
  if (me == nullptr) return;
  const char* at = static_cast<const char*>(address);
  if (at >= me->context.stack && at < me->context.stack + me->context.stack_bytes) return;
  const Block& block = *me->block;
  if (at >= block.shared && at < block.shared + SharedBytes(now.launch->dynamic_shared)) {
    Note(*me, instruction, static_cast<std::uint64_t>(at - block.shared), bytes, true, stores);
  } else if (const Buffer* buffer = Find(at); buffer != nullptr && at >= buffer->data) {
    // A real buffer begins with a sector, this one need not: places are counted from its begin. Mappings are pages, so
    // that adding theirs keeps the buffers apart, and sectors whole.
    const auto place = reinterpret_cast<std::uint64_t>(buffer->map) + static_cast<std::uint64_t>(at - buffer->data);
    Note(*me, instruction, place, bytes, false, stores);
    Traffic& traffic = Counted().buffers[buffer->data];
    (stores ? traffic.store_bytes : traffic.load_bytes) += bytes;
    (stores ? Counted().store_bytes : Counted().load_bytes) += bytes;
  }
}

}  // namespace

extern "C" {
#define TF_STITCH_HOOKS(bytes)                                                                                      \
  void __tsan_read##bytes(void* at) { Count(at, bytes, false, __builtin_return_address(0)); }                       \
  void __tsan_write##bytes(void* at) { Count(at, bytes, true, __builtin_return_address(0)); }                       \
  void __tsan_unaligned_read##bytes(void* at) { Count(at, bytes, false, __builtin_return_address(0)); }             \
  void __tsan_unaligned_write##bytes(void* at) { Count(at, bytes, true, __builtin_return_address(0)); }  \
  void __tsan_volatile_read##bytes(void*) { ++Counted().atomics; }                                                  \
  void __tsan_volatile_write##bytes(void*) { ++Counted().atomics; }
TF_STITCH_HOOKS(1)
TF_STITCH_HOOKS(2)
TF_STITCH_HOOKS(4)
TF_STITCH_HOOKS(8)
TF_STITCH_HOOKS(16)
#undef TF_STITCH_HOOKS
void __tsan_read_range(void* at, unsigned long bytes) { Count(at, bytes, false, __builtin_return_address(0)); }
void __tsan_write_range(void* at, unsigned long bytes) { Count(at, bytes, true, __builtin_return_address(0)); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
}

#else

bool CountsAccesses() { return false; }

#endif

std::string CountersAsJson() {
  const Counters& counted = Counted();
  std::string text = "{";
  const auto add = [&](const char* name, std::uint64_t value) {
    text += (text.size() == 1 ? "\"" : ",\"") + std::string(name) + "\":" + std::to_string(value);
  };
  add("switches", counted.switches);
  add("block_barriers", counted.block_barriers);
  add("grid_barriers", counted.grid_barriers);
  add("warp_meetings", counted.warp_meetings);
  add("atomics", counted.atomics);
  add("fences", counted.fences);
  if (CountsAccesses()) {
    add("load_bytes", counted.load_bytes);
    add("store_bytes", counted.store_bytes);
    add("load_sectors", counted.load_sectors);
    add("store_sectors", counted.store_sectors);
    add("shared_loads", counted.shared_loads);
    add("shared_stores", counted.shared_stores);
    add("bank_conflicts", counted.bank_conflicts);
    text += ",\"buffers\":{";
    bool first = true;
    for (const auto& [data, traffic] : counted.buffers) {
      text += (first ? "\"" : ",\"") + std::to_string(reinterpret_cast<std::uint64_t>(data)) + "\":[";
      text += std::to_string(traffic.load_bytes) + "," + std::to_string(traffic.store_bytes) + ",";
      text += std::to_string(traffic.load_sectors) + "," + std::to_string(traffic.store_sectors) + ",";
      text += std::to_string(traffic.loaded.size()) + "," + std::to_string(traffic.stored.size()) + "]";
      first = false;
    }
    text += "}";
  }
  return text + "}";
}

}  // namespace stitch_emulator
