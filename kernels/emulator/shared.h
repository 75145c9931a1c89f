// Shared memory: where `__shared__` variables lie in a block's, and the red zones between them.
//
//     | red zone | variable | red zone | variable | ... | red zone | dynamic part | red zone |
//
// All of it is poisoned with 0xFF when a block begins. Red zones are checked when it ends.
#ifndef TF_STITCH_EMULATOR_SHARED_H_
#define TF_STITCH_EMULATOR_SHARED_H_

#include <cstddef>
#include <string>

namespace stitch_emulator {

std::size_t ReserveShared(const char* name, std::size_t bytes, std::size_t alignment);
std::size_t StaticSharedBytes();  // of the variables alone
std::size_t DynamicOffset();

char* AllocateShared(std::size_t dynamic_bytes);
void FreeShared(char* shared, std::size_t dynamic_bytes);
std::size_t SharedBytes(std::size_t dynamic_bytes);

// What was written into red zones, in words; empty if nothing was.
std::string SharedDamage(const char* shared, std::size_t dynamic_bytes);
std::string DescribeShared(std::size_t offset, std::size_t dynamic_bytes);

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_SHARED_H_
