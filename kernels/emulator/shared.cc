#include "shared.h"

#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "memory.h"
#include "sanitizer.h"

namespace stitch_emulator {

namespace {

constexpr std::size_t kRedZone = 64;
constexpr std::size_t kDynamicAlignment = 128;

struct Variable {
  const char* name;
  std::size_t begin, bytes;
};

std::vector<Variable>& Variables() {
  static auto* variables = new std::vector<Variable>;
  return *variables;
}

std::size_t End() { return Variables().empty() ? 0 : Variables().back().begin + Variables().back().bytes; }

// The variables and the dynamic part, in order.
std::vector<Variable> Parts(std::size_t dynamic_bytes) {
  std::vector<Variable> parts = Variables();
  parts.push_back({"the dynamic shared memory", DynamicOffset(), dynamic_bytes});
  return parts;
}

std::string Quoted(const Variable& variable) {
  return std::string(variable.name) + " (" + std::to_string(variable.bytes) + " bytes of shared memory)";
}

}  // namespace

std::size_t ReserveShared(const char* name, std::size_t bytes, std::size_t alignment) {
  const std::size_t begin = (End() + kRedZone + alignment - 1) / alignment * alignment;
  Variables().push_back({name, begin, bytes});
  return begin;
}

std::size_t StaticSharedBytes() {
  std::size_t bytes = 0;
  for (const Variable& variable : Variables()) bytes += variable.bytes;
  return bytes;
}

std::size_t DynamicOffset() {
  return (End() + kRedZone + kDynamicAlignment - 1) / kDynamicAlignment * kDynamicAlignment;
}

std::size_t SharedBytes(std::size_t dynamic_bytes) { return DynamicOffset() + dynamic_bytes + kRedZone; }

char* AllocateShared(std::size_t dynamic_bytes) {
  // A mapping of its own for each block: a race detector then knows nothing of the block that was there before.
  const std::size_t bytes = SharedBytes(dynamic_bytes);
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  char* shared = static_cast<char*>(map);
  std::memset(shared, kPoison, bytes);
  std::size_t free = 0;
  for (const Variable& part : Parts(dynamic_bytes)) {
    Forbid(shared + free, part.begin - free);
    free = part.begin + part.bytes;
  }
  Forbid(shared + free, bytes - free);
  return shared;
}

void FreeShared(char* shared, std::size_t dynamic_bytes) {
  Allow(shared, SharedBytes(dynamic_bytes));
  munmap(shared, SharedBytes(dynamic_bytes));
}

std::string SharedDamage(const char* shared, std::size_t dynamic_bytes) {
  std::size_t free = 0;
  for (const Variable& part : Parts(dynamic_bytes)) {
    const char* damaged = FirstDamaged(shared + free, shared + part.begin);
    if (damaged != shared + part.begin) return DescribeShared(damaged - shared, dynamic_bytes);
    free = part.begin + part.bytes;
  }
  const char* end = shared + SharedBytes(dynamic_bytes);
  const char* damaged = FirstDamaged(shared + free, end);
  return damaged == end ? "" : DescribeShared(damaged - shared, dynamic_bytes);
}

std::string DescribeShared(std::size_t offset, std::size_t dynamic_bytes) {
  Variable below = {"", 0, 0};
  for (const Variable& part : Parts(dynamic_bytes)) {
    if (part.begin > offset) {
      const bool nearer = below.bytes == 0 || part.begin - offset < offset - (below.begin + below.bytes);
      if (nearer) return std::to_string(part.begin - offset) + " bytes before the begin of " + Quoted(part);
      break;
    }
    below = part;
  }
  const std::size_t end = below.begin + below.bytes;
  if (offset < end) return std::to_string(offset - below.begin) + " bytes into " + Quoted(below);
  return std::to_string(offset - end) + " bytes past the end of " + Quoted(below);
}

}  // namespace stitch_emulator
