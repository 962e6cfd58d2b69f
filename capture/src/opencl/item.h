// One call of the program, and the command it enqueued.
#pragma once

#include <array>
#include <cstdint>

#include "opencl/calls.h"
#include "opencl/cl_abi.h"

namespace ai_prof::opencl {

struct Queue;

// What an application thread hands to the recorder's thread.
struct Item {
  enum class What : std::uint8_t { kKernel, kMemory, kSync, kCall, kQueueGone };

  cl_event event = nullptr;  // retained for us; kKernel and kMemory only
  Queue* queue = nullptr;
  std::int64_t start = 0;  // of the host's call, CLOCK_MONOTONIC
  std::int64_t end = 0;
  std::uint64_t bytes = 0;
  std::uint32_t name = 0;  // of the kernel
  std::uint32_t thread = 0;
  std::uint32_t correlation = 0;
  cl_int result = 0;
  std::array<std::uint32_t, 3> grid = {1, 1, 1};
  std::array<std::uint32_t, 3> block = {1, 1, 1};
  What what = What::kCall;
  Call call = Call::kFinish;
  bool blocking = false;       // the call waited for the command
  std::uint8_t copy_kind = 0;  // format::CopyKind
  std::uint8_t sync_kind = 0;  // format::SyncKind
};

}  // namespace ai_prof::opencl
