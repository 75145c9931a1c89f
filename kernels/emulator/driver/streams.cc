// Streams and events. A stream runs at once, so there is never anything to wait for.
#include <chrono>

#include "state.h"

namespace stitch_emulator::driver {
namespace {

double Milliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

// Null, 1 and 2 name the default streams.
bool Known(Stream* stream) {
  if (reinterpret_cast<std::uintptr_t>(stream) <= 2) return true;
  for (const Context* context : Driver().contexts) {
    if (context->streams.count(stream) != 0) return true;
  }
  return false;
}

bool Known(Event* event) {
  for (const Context* context : Driver().contexts) {
    if (context->events.count(event) != 0) return true;
  }
  return false;
}

template <class T>
Result ReadyFor(T* handle) {
  if (const Result ready = Ready()) return ready;
  return Known(handle) ? kSuccess : kInvalidHandle;
}

}  // namespace

bool StreamIsKnown(Stream* stream) { return Known(stream); }

}  // namespace stitch_emulator::driver

using namespace stitch_emulator::driver;
using stitch_emulator::driver::Event;
using stitch_emulator::driver::Stream;

TF_STITCH_CALL cuStreamCreate(Stream** stream, unsigned) {
  TF_STITCH_LOCKED;
  if (const Result ready = Ready()) return ready;
  *stream = new Stream{++Driver().ids};
  Current()->streams.insert(*stream);
  return kSuccess;
}
TF_STITCH_CALL cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}
TF_STITCH_CALL cuStreamDestroy_v2(Stream* stream) {
  TF_STITCH_LOCKED;
  if (!Driver().initialized) return kNotInitialized;
  for (Context* context : Driver().contexts) {
    if (context->streams.erase(stream) == 0) continue;
    delete stream;
    return kSuccess;
  }
  return kInvalidHandle;
}
TF_STITCH_CALL cuStreamSynchronize(Stream* stream) {
  TF_STITCH_LOCKED;
  return ReadyFor(stream);
}
TF_STITCH_CALL cuStreamQuery(Stream* stream) {
  TF_STITCH_LOCKED;
  return ReadyFor(stream);
}
TF_STITCH_CALL cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  TF_STITCH_LOCKED;
  if (const Result ready = ReadyFor(stream)) return ready;
  return ReadyFor(event);
}

TF_STITCH_CALL cuEventCreate(Event** event, unsigned flags) {
  TF_STITCH_LOCKED;
  if (const Result ready = Ready()) return ready;
  *event = new Event;
  (*event)->timed = (flags & 2) == 0;
  Current()->events.insert(*event);
  return kSuccess;
}
TF_STITCH_CALL cuEventDestroy_v2(Event* event) {
  TF_STITCH_LOCKED;
  for (Context* context : Driver().contexts) {
    if (context->events.erase(event) == 0) continue;
    delete event;
    return kSuccess;
  }
  return kInvalidHandle;
}
TF_STITCH_CALL cuEventRecord(Event* event, Stream* stream) {
  TF_STITCH_LOCKED;
  if (const Result ready = ReadyFor(event)) return ready;
  if (const Result ready = ReadyFor(stream)) return ready;
  event->recorded = true;
  event->milliseconds = Milliseconds();
  return kSuccess;
}
TF_STITCH_CALL cuEventSynchronize(Event* event) {
  TF_STITCH_LOCKED;
  return ReadyFor(event);
}
TF_STITCH_CALL cuEventQuery(Event* event) {
  TF_STITCH_LOCKED;
  return ReadyFor(event);
}
TF_STITCH_CALL cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  TF_STITCH_LOCKED;
  if (const Result ready = ReadyFor(begin)) return ready;
  if (const Result ready = ReadyFor(end)) return ready;
  if (!begin->timed || !end->timed || !begin->recorded || !end->recorded) return kInvalidHandle;
  *milliseconds = static_cast<float>(end->milliseconds - begin->milliseconds);
  return kSuccess;
}
TF_STITCH_CALL cuEventElapsedTime_v2(float* milliseconds, Event* begin, Event* end) {
  return cuEventElapsedTime(milliseconds, begin, end);
}
