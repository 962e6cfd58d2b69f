// Calls in which the host waits for the device.
#include "opencl/hooks.h"
#include "opencl/recording.h"

namespace ai_prof::opencl {
namespace {

template <class Wait>
cl_int record_wait(Capture& capture, Call call, format::SyncKind kind, Queue* queue, Wait&& wait) noexcept {
  Item item;
  item.what = Item::What::kSync;
  item.call = call;
  item.sync_kind = static_cast<std::uint8_t>(kind);
  item.queue = queue;
  item.correlation = capture.next_correlation();
  item.start = monotonic_ns();
  item.result = wait();
  item.end = monotonic_ns();
  capture.submit(item);
  return item.result;
}

cl_int finish(cl_command_queue handle) noexcept {
  const auto wait = [&] { return next<kFinish>()(handle); };
  Capture* const capture = Capture::current();
  Queue* const queue = capture != nullptr ? capture->find(handle) : nullptr;
  if (queue == nullptr) return wait();
  return record_wait(*capture, Call::kFinish, format::kStreamSynchronize, queue, wait);
}

cl_int wait_for_events(cl_uint count, const cl_event* events) noexcept {
  const auto wait = [&] { return next<kWaitForEvents>()(count, events); };
  Capture* const capture = Capture::current();
  if (capture == nullptr) return wait();
  return record_wait(*capture, Call::kWaitForEvents, format::kEventSynchronize, nullptr, wait);
}

}  // namespace

void put_wait_hooks(std::array<void*, kSlots>& table) {
  put<kFinish>(table, finish);
  put<kWaitForEvents>(table, wait_for_events);
}

}  // namespace ai_prof::opencl
