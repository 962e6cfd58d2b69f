// How a hook records: around the call to the driver, and without ever changing what the program gets.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "opencl/capture.h"
#include "opencl/driver.h"

namespace ai_prof::opencl {

// Puts a hook over a slot; the compiler checks its type.
template <Slot slot>
void put(std::array<void*, kSlots>& table, typename Signature<slot>::type hook) {
  table[slot] = reinterpret_cast<void*>(hook);
}

// Runs `enqueue(cl_event*)`, which returns an OpenCL error code, and hands the command's event over.
template <class EnqueueCall>
cl_int record_command(cl_command_queue handle, cl_event* wanted, Item item, EnqueueCall&& enqueue) noexcept {
  Capture* const capture = Capture::current();
  Queue* const queue = capture != nullptr ? capture->find(handle) : nullptr;
  if (queue == nullptr) {
    item.result = enqueue(wanted);
    if (capture != nullptr && item.result == kSuccess) capture->left_out(item);
    return item.result;
  }
  cl_event own = nullptr;
  cl_event* const event = wanted != nullptr ? wanted : &own;
  item.queue = queue;
  item.correlation = capture->next_correlation();
  item.start = monotonic_ns();
  item.result = enqueue(event);
  item.end = monotonic_ns();
  if (item.result != kSuccess) {
    item.what = Item::What::kCall;  // nothing was enqueued
    if (!capture->api()) return item.result;
  } else if (wanted == nullptr || next<kRetainEvent>()(*wanted) == kSuccess) {
    item.event = *event;
  }
  capture->submit(item);
  return item.result;
}

// Runs `call(cl_int& result)` and records it at level api alone.
template <class HostCall>
auto record_call(Call which, HostCall&& call) noexcept {
  Capture* const capture = Capture::current();
  Item item;
  if (capture == nullptr || !capture->api()) return call(item.result);
  item.call = which;
  item.correlation = capture->next_correlation();
  item.start = monotonic_ns();
  const auto given = call(item.result);
  item.end = monotonic_ns();
  capture->submit(item);
  return given;
}

}  // namespace ai_prof::opencl
