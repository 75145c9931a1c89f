// Global memory: buffers that end at a page which nobody may touch.
//
//     | no access | red zone ... | the buffer | red zone of < 16 bytes | no access |
//                                ^ aligned as asked                    ^ end of a page
//
// Both red zones and the fresh buffer hold 0xFF: NaN in every floating type, and -1.
#ifndef TF_STITCH_EMULATOR_MEMORY_H_
#define TF_STITCH_EMULATOR_MEMORY_H_

#include <cstddef>
#include <string>
#include <vector>

namespace stitch_emulator {

inline constexpr unsigned char kPoison = 0xFF;

struct Buffer {
  char* data;
  std::size_t bytes;
  char* map;  // the whole mapping
  std::size_t map_bytes;
  char* pages;  // what may be touched of it
  std::size_t pages_bytes;
};

// A new buffer for `bytes` bytes, poisoned; null if there is no memory. `alignment` is a power of two, at most a page.
char* Allocate(std::size_t bytes, std::size_t alignment);

// Whether `data` is the begin of a buffer; if so it is no more.
bool Free(char* data);

// The buffer that holds `address`, red zones included; null if none does.
const Buffer* Find(const void* address);

// What was written into red zones, in words; empty if nothing was.
std::string Damage();

// Where `address` lies relative to the nearest buffer, in words.
std::string Describe(const void* address);

// The first byte of [begin, end) that is no longer poison; `end` if all are.
const char* FirstDamaged(const char* begin, const char* end);

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_MEMORY_H_
