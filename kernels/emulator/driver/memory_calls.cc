// Device memory: buffers of the emulator, so that what leaves them is noticed.
#include <cstdlib>
#include <cstring>

#include "emulator/memory.h"
#include "state.h"

namespace stitch_emulator::driver {
namespace {

using Address = unsigned long long;

char* At(Address address) { return reinterpret_cast<char*>(address); }

// The buffer that holds all of [address, address + bytes); null: none does.
const Buffer* Holding(Address address, std::size_t bytes) {
  const Buffer* buffer = stitch_emulator::Find(At(address));
  if (buffer == nullptr || At(address) < buffer->data) return nullptr;
  return At(address) + bytes <= buffer->data + buffer->bytes ? buffer : nullptr;
}

std::string Traced(const char* call, std::size_t bytes) {
  return std::string("{\"call\":\"") + call + "\",\"bytes\":" + std::to_string(bytes) + "}";
}

Result Copy(const char* call, void* to, const void* from, std::size_t bytes, bool to_device, bool from_device) {
  if (const Result ready = Ready()) return ready;
  if (to_device && Holding(reinterpret_cast<Address>(to), bytes) == nullptr && bytes != 0) return kInvalidValue;
  if (from_device && Holding(reinterpret_cast<Address>(from), bytes) == nullptr && bytes != 0) return kInvalidValue;
  std::memmove(to, from, bytes);
  Trace(Traced(call, bytes));
  return kSuccess;
}

template <class T>
Result Fill(Address to, T value, std::size_t count) {
  if (const Result ready = Ready()) return ready;
  if (count == 0) return kSuccess;
  if (Holding(to, count * sizeof(T)) == nullptr || to % sizeof(T) != 0) return kInvalidValue;
  for (std::size_t n = 0; n < count; ++n) reinterpret_cast<T*>(to)[n] = value;
  Trace(Traced("memset", count * sizeof(T)));
  return kSuccess;
}

}  // namespace
}  // namespace stitch_emulator::driver

using namespace stitch_emulator::driver;
using stitch_emulator::driver::Stream;

TF_STITCH_CALL cuMemAlloc_v2(Address* address, std::size_t bytes) {
  TF_STITCH_LOCKED;
  if (const Result ready = Ready()) return ready;
  if (bytes == 0) return kInvalidValue;
  if (bytes > MemoryBytes() - Driver().used) return kOutOfMemory;
  // The driver aligns to 256 bytes. Here only what vectors need: the nearer the end is to the page that nobody may
  // touch.
  char* data = stitch_emulator::Allocate(bytes, 16);
  if (data == nullptr) return kOutOfMemory;
  Driver().used += bytes;
  Current()->memory.insert(data);
  *address = reinterpret_cast<Address>(data);
  Trace(Traced("alloc", bytes));
  return kSuccess;
}
TF_STITCH_CALL cuMemFree_v2(Address address) {
  TF_STITCH_LOCKED;
  if (const Result ready = Ready()) return ready;
  if (address == 0) return kSuccess;
  for (Context* context : Driver().contexts) {
    if (context->memory.erase(At(address)) == 0) continue;
    Driver().used -= stitch_emulator::Find(At(address))->bytes;
    stitch_emulator::Free(At(address));
    return kSuccess;
  }
  return kInvalidValue;
}
TF_STITCH_CALL cuMemAllocAsync(Address* address, std::size_t bytes, Stream*) { return cuMemAlloc_v2(address, bytes); }
TF_STITCH_CALL cuMemFreeAsync(Address address, Stream*) { return cuMemFree_v2(address); }
TF_STITCH_CALL cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  TF_STITCH_LOCKED;
  *total = MemoryBytes();
  *free = *total - Driver().used;
  return Ready();
}
TF_STITCH_CALL cuMemGetAddressRange_v2(Address* base, std::size_t* bytes, Address address) {
  TF_STITCH_LOCKED;
  if (const Result ready = Ready()) return ready;
  const auto* buffer = Holding(address, 0);
  if (buffer == nullptr) return kNotFound;
  if (base != nullptr) *base = reinterpret_cast<Address>(buffer->data);
  if (bytes != nullptr) *bytes = buffer->bytes;
  return kSuccess;
}

TF_STITCH_CALL cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  TF_STITCH_LOCKED;
  return Copy("to_device", At(to), from, bytes, true, false);
}
TF_STITCH_CALL cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  TF_STITCH_LOCKED;
  return Copy("from_device", to, At(from), bytes, false, true);
}
TF_STITCH_CALL cuMemcpyDtoD_v2(Address to, Address from, std::size_t bytes) {
  TF_STITCH_LOCKED;
  return Copy("on_device", At(to), At(from), bytes, true, true);
}
TF_STITCH_CALL cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Stream*) {
  return cuMemcpyHtoD_v2(to, from, bytes);
}
TF_STITCH_CALL cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Stream*) {
  return cuMemcpyDtoH_v2(to, from, bytes);
}
TF_STITCH_CALL cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Stream*) {
  return cuMemcpyDtoD_v2(to, from, bytes);
}

#define TF_STITCH_FILL(name, suffix, type)                                                  \
  TF_STITCH_CALL name##suffix(Address to, type value, std::size_t count) {                  \
    TF_STITCH_LOCKED;                                                                       \
    return Fill(to, value, count);                                                          \
  }                                                                                         \
  TF_STITCH_CALL name##Async(Address to, type value, std::size_t count, Stream*) {          \
    TF_STITCH_LOCKED;                                                                       \
    return Fill(to, value, count);                                                          \
  }
TF_STITCH_FILL(cuMemsetD8, _v2, unsigned char)
TF_STITCH_FILL(cuMemsetD16, _v2, unsigned short)
TF_STITCH_FILL(cuMemsetD32, _v2, unsigned)
#undef TF_STITCH_FILL

// Page-locked memory of the host is memory.
TF_STITCH_CALL cuMemHostAlloc(void** data, std::size_t bytes, unsigned) {
  TF_STITCH_LOCKED;
  if (const Result ready = Ready()) return ready;
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*data == nullptr) return kOutOfMemory;
  Driver().host_memory[*data] = bytes;
  return kSuccess;
}
TF_STITCH_CALL cuMemAllocHost_v2(void** data, std::size_t bytes) { return cuMemHostAlloc(data, bytes, 0); }
TF_STITCH_CALL cuMemFreeHost(void* data) {
  TF_STITCH_LOCKED;
  if (Driver().host_memory.erase(data) == 0) return kInvalidValue;
  std::free(data);
  return kSuccess;
}
TF_STITCH_CALL cuMemHostRegister_v2(void*, std::size_t, unsigned) {
  TF_STITCH_LOCKED;
  return Ready();
}
TF_STITCH_CALL cuMemHostUnregister(void*) {
  TF_STITCH_LOCKED;
  return Ready();
}
