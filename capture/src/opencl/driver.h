// The functions below the layer: the driver's, or the next layer's.
#pragma once

#include <array>

#include "opencl/cl_abi.h"

namespace ai_prof::opencl {

// Filled once by clInitLayer, before any OpenCL call; null where the loader is older than the slot.
inline std::array<void*, kSlots> g_next{};

template <Slot slot>
auto next() noexcept {
  return reinterpret_cast<typename Signature<slot>::type>(g_next[slot]);
}

// A number, handle or time that a GetInfo function gives; `absent` when it does not.
template <Slot slot, class Value, class Handle>
Value info(Handle handle, cl_uint what, Value absent) noexcept {
  Value value{};
  return next<slot>()(handle, what, sizeof value, &value, nullptr) == kSuccess ? value : absent;
}

}  // namespace ai_prof::opencl
