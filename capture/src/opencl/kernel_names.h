// Kernel handle -> string id, without a lock on the way of a launch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "opencl/cl_abi.h"

namespace ai_prof::opencl {

// One word a slot holds handle and id together, so that a reader never sees half of each. A handle that has
// more bits than fit, or an id too large, is not kept and is looked up anew.
class KernelNames {
 public:
  std::uint32_t find(cl_kernel kernel) const noexcept {  // 0 when unknown; string ids start at 1
    const std::uint64_t word = slot(kernel).load(std::memory_order_relaxed);
    return (word >> kIdBits) == key(kernel) ? static_cast<std::uint32_t>(word & kIdMask) : 0;
  }

  void keep(cl_kernel kernel, std::uint32_t id) noexcept {
    if (id > kIdMask || (key(kernel) >> (64 - kIdBits)) != 0) return;
    slot(kernel).store((key(kernel) << kIdBits) | id, std::memory_order_relaxed);
  }

  // A released handle may come back as another kernel.
  void forget(cl_kernel kernel) noexcept {
    if (find(kernel) != 0) slot(kernel).store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr unsigned kIdBits = 20;
  static constexpr std::uint64_t kIdMask = (1u << kIdBits) - 1;
  static constexpr std::size_t kSlotsKept = 1024;

  static std::uint64_t key(cl_kernel kernel) noexcept {
    return reinterpret_cast<std::uintptr_t>(kernel) >> 4;
  }
  static std::size_t place(cl_kernel kernel) noexcept {
    return (key(kernel) * 0x9E3779B97F4A7C15ull) >> 54;  // Fibonacci hashing to 10 bits
  }
  std::atomic<std::uint64_t>& slot(cl_kernel kernel) noexcept { return slots_[place(kernel)]; }
  const std::atomic<std::uint64_t>& slot(cl_kernel kernel) const noexcept { return slots_[place(kernel)]; }

  std::array<std::atomic<std::uint64_t>, kSlotsKept> slots_{};
};

}  // namespace ai_prof::opencl
