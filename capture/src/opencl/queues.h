// The command queues that are recorded, found by handle without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "opencl/cl_abi.h"
#include "opencl/item.h"

namespace ai_prof::opencl {

// What the program asked for, so that it never sees that we turned profiling on.
struct QueueView {
  bool profiled_by_program = false;
  std::vector<cl_properties> properties;  // its own list with the closing 0; empty when it gave none
};

struct Queue {
  QueueView view;
  std::uint32_t device = 0;
  std::uint32_t context = 0;
  std::uint32_t stream = 0;
  std::atomic<std::int64_t> references{1};  // the program's
  // The recorder's thread alone:
  std::deque<Item> pending;  // until the device has done them
  bool gone = false;         // the program holds it no more
  bool busy = false;         // listed among the queues to poll
};

// Open addressing with linear probing. A slot once taken keeps its place in the probe sequence for ever, so
// that a search never needs a lock; changes are made under the owner's.
class QueueTable {
 public:
  Queue* find(cl_command_queue handle) const noexcept {
    for (std::size_t i = 0, at = place(handle); i < kSlotsKept; ++i, at = (at + 1) % kSlotsKept) {
      const cl_command_queue there = slots_[at].handle.load(std::memory_order_acquire);
      if (there == handle) return slots_[at].queue.load(std::memory_order_acquire);
      if (there == nullptr) return nullptr;
    }
    return nullptr;
  }

  // False when there is no room. A handle that is known gets the new queue.
  bool insert(cl_command_queue handle, Queue* queue) noexcept {
    Slot* free = nullptr;
    for (std::size_t i = 0, at = place(handle); i < kSlotsKept; ++i, at = (at + 1) % kSlotsKept) {
      const cl_command_queue there = slots_[at].handle.load(std::memory_order_relaxed);
      if (there == handle) {
        free = &slots_[at];
        break;
      }
      if (free == nullptr && slots_[at].queue.load(std::memory_order_relaxed) == nullptr) free = &slots_[at];
      if (there == nullptr) break;
    }
    if (free == nullptr) return false;
    free->queue.store(queue, std::memory_order_release);
    free->handle.store(handle, std::memory_order_release);
    return true;
  }

  void erase(cl_command_queue handle) noexcept {
    for (Slot& slot : slots_) {
      if (slot.handle.load(std::memory_order_relaxed) == handle) {
        slot.queue.store(nullptr, std::memory_order_release);
      }
    }
  }

 private:
  static constexpr std::size_t kSlotsKept = 1024;

  struct Slot {
    std::atomic<cl_command_queue> handle{nullptr};
    std::atomic<Queue*> queue{nullptr};
  };

  static std::size_t place(cl_command_queue handle) noexcept {
    const std::uint64_t key = reinterpret_cast<std::uintptr_t>(handle) >> 4;
    return (key * 0x9E3779B97F4A7C15ull) >> 54;
  }

  std::array<Slot, kSlotsKept> slots_;
};

}  // namespace ai_prof::opencl
