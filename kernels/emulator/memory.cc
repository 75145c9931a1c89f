#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "sanitizer.h"

namespace stitch_emulator {

namespace {

// Wide, so that an index far off lands here and in no other buffer; less where a sanitizer keeps a shadow of it.
constexpr std::size_t kGuard = kSanitized ? std::size_t{1} << 20 : std::size_t{64} << 20;

std::map<const char*, Buffer>& Buffers() {  // by the begin of their mappings
  static auto* buffers = new std::map<const char*, Buffer>;
  return *buffers;
}

std::size_t RoundUp(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

char* Allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t pages = RoundUp(RoundUp(bytes, alignment) + 1, page);
  const std::size_t all = pages + 2 * kGuard;
  void* map = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(map) + kGuard;
  if (mprotect(begin, pages, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, all);
    return nullptr;
  }
  std::memset(begin, kPoison, pages);
  char* data = begin + pages - RoundUp(bytes, alignment);
  Forbid(begin, static_cast<std::size_t>(data - begin));
  Forbid(data + bytes, static_cast<std::size_t>(begin + pages - data) - bytes);
  Buffers()[static_cast<char*>(map)] = {data, bytes, static_cast<char*>(map), all, begin, pages};
  return data;
}

const Buffer* Find(const void* address) {
  const char* at = static_cast<const char*>(address);
  auto next = Buffers().upper_bound(at);
  if (next == Buffers().begin()) return nullptr;
  const Buffer& buffer = std::prev(next)->second;
  return at < buffer.map + buffer.map_bytes ? &buffer : nullptr;
}

bool Free(char* data) {
  const Buffer* buffer = Find(data);
  if (buffer == nullptr || buffer->data != data) return false;
  const Buffer gone = *buffer;
  Allow(gone.pages, gone.pages_bytes);
  Buffers().erase(gone.map);
  munmap(gone.map, gone.map_bytes);
  return true;
}

#if defined(TF_STITCH_EMULATOR_ADDRESS)
__attribute__((no_sanitize("address")))
#endif
const char* FirstDamaged(const char* begin, const char* end) {
  while (begin != end && static_cast<unsigned char>(*begin) == kPoison) ++begin;
  return begin;
}

std::string Damage() {
  for (const auto& [map, buffer] : Buffers()) {
    const char* before = FirstDamaged(buffer.pages, buffer.data);
    if (before != buffer.data) return "something was written " + Describe(before);
    const char* end = buffer.pages + buffer.pages_bytes;
    const char* after = FirstDamaged(buffer.data + buffer.bytes, end);
    if (after != end) return "something was written " + Describe(after);
  }
  return "";
}

std::string Describe(const void* address) {
  const Buffer* buffer = Find(address);
  if (buffer == nullptr) return "at an address that belongs to no buffer";
  const char* at = static_cast<const char*>(address);
  const std::string of = " a buffer of " + std::to_string(buffer->bytes) + " bytes";
  if (at < buffer->data) return std::to_string(buffer->data - at) + " bytes before the begin of" + of;
  if (at < buffer->data + buffer->bytes) return std::to_string(at - buffer->data) + " bytes into" + of;
  return std::to_string(at - (buffer->data + buffer->bytes)) + " bytes past the end of" + of;
}

}  // namespace stitch_emulator
