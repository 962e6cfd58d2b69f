// The buffers that CUPTI fills: one region mapped before the first of them is asked for, handed out and taken
// back without a lock or an allocation.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/bounded_queue.h"

namespace ai_prof::cupti {

struct Filled {
  std::uint8_t* data;
  std::size_t bytes;  // of valid records
};

class BufferPool {
 public:
  // At most `bytes`, at least four slots. Throws std::bad_alloc.
  explicit BufferPool(std::size_t bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // ---- any thread ----
  // A buffer to fill; never null. When all slots are out, one whose content will be thrown away.
  std::uint8_t* take(std::size_t& bytes) noexcept;

  enum class Kind { kSlot, kDiscard, kShared };
  // What take() gave. The content of a discard buffer may be read and counted; that of the shared one, which
  // several threads may fill at once, may not.
  [[nodiscard]] Kind kind(const std::uint8_t* buffer) const noexcept;

  // Queues a slot for the reader.
  void put(const Filled& filled) noexcept;
  // Takes back any buffer.
  void release(const std::uint8_t* buffer) noexcept;
  // True when so many slots wait that the reader should not sleep until its next turn: soon the program would
  // be given slots that are not warm.
  [[nodiscard]] bool crowded() const noexcept {
    return waiting_.load(std::memory_order_relaxed) * 2 >= std::min(kWarmSlots, slots_);
  }

  // ---- the reader's thread ----
  bool next(Filled& filled) noexcept;
  // Slots that are queued now.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.load(std::memory_order_relaxed); }
  // Slots that CUPTI has.
  [[nodiscard]] std::size_t lent() const noexcept;
  // Starts the next round: buffers are small again.
  void round() noexcept { taken_.store(0, std::memory_order_relaxed); }
  // Touches what CUPTI will next write to, so that the program's threads do not fault there: at every turn.
  void warm() noexcept;
  // Gives the memory of the slots that are not out back to the system, once no more are asked for.
  void cool() noexcept;

  [[nodiscard]] std::size_t slots() const { return slots_; }

 private:
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
  static constexpr std::size_t kFirstBytes = std::size_t{16} << 10;
  static constexpr std::size_t kWarmSlots = 8;  // half of them being read, half filled
  static constexpr std::size_t kDiscardBytes = kFirstBytes;
  static constexpr std::size_t kDiscards = 63;  // and the shared one makes a MiB

  // Of the buffer after `taken` of a round.
  static std::size_t size(std::uint32_t taken) noexcept;
  bool claim(std::atomic<std::uint64_t>& word, std::size_t& bit) noexcept;
  std::uint8_t* discard() noexcept;

  const std::size_t slots_;
  const std::size_t words_;
  std::uint8_t* memory_ = nullptr;  // the discard region, then the slots
  std::uint8_t* slot_memory_ = nullptr;
  std::unique_ptr<std::atomic<std::uint64_t>[]> free_;  // a set bit is a free slot
  std::atomic<std::uint64_t> free_discards_{(std::uint64_t{1} << kDiscards) - 1};
  std::atomic<std::uint32_t> taken_{0};  // in this round
  std::atomic<std::size_t> waiting_{0};
  BoundedQueue<Filled> filled_;
  std::atomic<std::size_t> warm_{0};  // bytes of each of the first slots
};

}  // namespace ai_prof::cupti
