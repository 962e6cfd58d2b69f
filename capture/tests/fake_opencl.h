// An OpenCL driver of a few functions, whose commands take a microsecond each and are done when asked for. It
// counts what it is made to hold, and can leave a command running for ever.
#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>

#include "core/clock.h"
#include "opencl/cl_abi.h"

struct _cl_context {};
struct _cl_device_id {
  std::atomic<int> references{1};
};
struct _cl_mem {};
struct _cl_program {};
struct _cl_kernel {
  std::string name;
};
struct _cl_command_queue {
  ai_prof::opencl::cl_bitfield properties = 0;
  bool stuck = false;      // its commands never end
  bool unstamped = false;  // it is not told when they were enqueued
  std::atomic<int> references{1};
};
struct _cl_event {
  _cl_command_queue* queue = nullptr;
  std::int64_t queued = 0;
  bool stuck = false;
  bool unstamped = false;
  std::atomic<int> references{1};
};

namespace ai_prof::test {

using namespace ai_prof::opencl;

inline std::atomic<int> g_live_events{0};
inline std::atomic<int> g_live_queues{0};

// Not CLOCK_MONOTONIC, so that a capture that took it for that would be seen.
inline std::int64_t fake_time() {
  return read_clock(CLOCK_REALTIME);
}

inline cl_int fake_enqueue(cl_command_queue queue, cl_event* event) {
  const std::int64_t now = fake_time();
  if (event == nullptr) return kSuccess;
  *event = new _cl_event{queue, now, queue->stuck, queue->unstamped, 1};
  ++g_live_events;
  return kSuccess;
}

template <class Value>
cl_int fake_answer(const Value& answer, std::size_t size, void* value) {
  if (value != nullptr && size < sizeof answer) return kInvalidValue;
  if (value != nullptr) std::memcpy(value, &answer, sizeof answer);
  return kSuccess;
}

inline cl_int fake_text(const std::string& text, std::size_t size, void* value, std::size_t* needed) {
  if (needed != nullptr) *needed = text.size() + 1;
  if (value != nullptr && size < text.size() + 1) return kInvalidValue;
  if (value != nullptr) std::memcpy(value, text.c_str(), text.size() + 1);
  return kSuccess;
}

inline cl_int fake_device_info(cl_device_id, cl_uint what, std::size_t size, void* value,
                               std::size_t* needed) {
  if (what == kDeviceName) return fake_text("Fake device", size, value, needed);
  if (what == kDeviceGlobalMemSize) return fake_answer(cl_ulong{1} << 30, size, value);
  return fake_answer(cl_uint{4}, size, value);
}

inline cl_int fake_retain_device(cl_device_id device) {
  ++device->references;
  return kSuccess;
}

inline cl_context fake_create_context(const cl_context_properties*, cl_uint, const cl_device_id*,
                                      ContextNotify, void*, cl_int*) {
  static _cl_context context;
  return &context;
}

inline cl_command_queue fake_create_queue(cl_context, cl_device_id, cl_bitfield properties, cl_int* error) {
  if (error != nullptr) *error = kSuccess;
  ++g_live_queues;
  auto* queue = new _cl_command_queue;
  queue->properties = properties;
  return queue;
}

inline cl_command_queue fake_create_queue_with(cl_context context, cl_device_id device,
                                               const cl_properties* list, cl_int* error) {
  cl_bitfield flags = 0;
  for (; list != nullptr && *list != 0; list += 2) {
    if (list[0] == kQueueProperties) flags = list[1];
  }
  return fake_create_queue(context, device, flags, error);
}

inline cl_int fake_retain_queue(cl_command_queue queue) {
  ++queue->references;
  return kSuccess;
}

inline cl_int fake_release_queue(cl_command_queue queue) {
  if (--queue->references == 0) {
    delete queue;
    --g_live_queues;
  }
  return kSuccess;
}

inline cl_int fake_queue_info(cl_command_queue queue, cl_uint, std::size_t size, void* value, std::size_t*) {
  return fake_answer(queue->properties, size, value);
}

inline cl_int fake_kernel_info(cl_kernel kernel, cl_uint, std::size_t size, void* value,
                               std::size_t* needed) {
  return fake_text(kernel->name, size, value, needed);
}

inline cl_int fake_release_kernel(cl_kernel) {
  return kSuccess;
}

inline cl_int fake_event_info(cl_event event, cl_uint what, std::size_t size, void* value, std::size_t*) {
  if (what == kEventCommandQueue) return fake_answer(event->queue, size, value);
  return fake_answer(event->stuck ? cl_int{1} : kComplete, size, value);
}

inline cl_int fake_retain_event(cl_event event) {
  ++event->references;
  return kSuccess;
}

inline cl_int fake_release_event(cl_event event) {
  if (--event->references == 0) {
    delete event;
    --g_live_events;
  }
  return kSuccess;
}

inline cl_int fake_profile(cl_event event, cl_uint what, std::size_t size, void* value, std::size_t*) {
  if (what == kProfilingCommandQueued && event->unstamped) return kProfilingInfoNotAvailable;
  const std::int64_t after = what == kProfilingCommandStart ? 1000 : what == kProfilingCommandEnd ? 2000 : 0;
  return fake_answer(static_cast<cl_ulong>(event->queued + after), size, value);
}

inline cl_int fake_finish(cl_command_queue) {
  return kSuccess;
}
inline cl_int fake_wait(cl_uint, const cl_event*) {
  return kSuccess;
}

inline cl_int fake_launch(cl_command_queue queue, cl_kernel, cl_uint dimensions, Sizes, Sizes, Sizes, cl_uint,
                          const cl_event*, cl_event* event) {
  return dimensions > 3 ? kInvalidValue : fake_enqueue(queue, event);
}

inline cl_int fake_read(cl_command_queue queue, cl_mem, cl_bool, std::size_t, std::size_t, void*, cl_uint,
                        const cl_event*, cl_event* event) {
  return fake_enqueue(queue, event);
}

inline cl_int fake_write(cl_command_queue queue, cl_mem, cl_bool, std::size_t, std::size_t, const void*,
                         cl_uint, const cl_event*, cl_event* event) {
  return fake_enqueue(queue, event);
}

inline cl_int fake_fill(cl_command_queue queue, cl_mem, const void*, std::size_t, std::size_t, std::size_t,
                        cl_uint, const cl_event*, cl_event* event) {
  return fake_enqueue(queue, event);
}

inline cl_mem fake_create_buffer(cl_context, cl_bitfield, std::size_t, void*, cl_int* error) {
  static _cl_mem memory;
  if (error != nullptr) *error = kSuccess;
  return &memory;
}

template <Slot slot>
void set(std::array<void*, kSlots>& table, typename Signature<slot>::type function) {
  table[slot] = reinterpret_cast<void*>(function);
}

inline std::array<void*, kSlots> fake_driver() {
  std::array<void*, kSlots> table{};
  set<kGetDeviceInfo>(table, fake_device_info);
  set<kRetainDevice>(table, fake_retain_device);
  set<kCreateContext>(table, fake_create_context);
  set<kCreateCommandQueue>(table, fake_create_queue);
  set<kCreateCommandQueueWithProperties>(table, fake_create_queue_with);
  set<kRetainCommandQueue>(table, fake_retain_queue);
  set<kReleaseCommandQueue>(table, fake_release_queue);
  set<kGetCommandQueueInfo>(table, fake_queue_info);
  set<kGetKernelInfo>(table, fake_kernel_info);
  set<kReleaseKernel>(table, fake_release_kernel);
  set<kGetEventInfo>(table, fake_event_info);
  set<kRetainEvent>(table, fake_retain_event);
  set<kReleaseEvent>(table, fake_release_event);
  set<kGetEventProfilingInfo>(table, fake_profile);
  set<kFinish>(table, fake_finish);
  set<kWaitForEvents>(table, fake_wait);
  set<kEnqueueNDRangeKernel>(table, fake_launch);
  set<kEnqueueReadBuffer>(table, fake_read);
  set<kEnqueueWriteBuffer>(table, fake_write);
  set<kEnqueueFillBuffer>(table, fake_fill);
  set<kCreateBuffer>(table, fake_create_buffer);
  return table;
}

}  // namespace ai_prof::test
