#include "cupti/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // of Linux 5.14; absent in the headers of older C libraries
#endif

namespace ai_prof::cupti {

BufferPool::BufferPool(std::size_t bytes)
    : slots_(std::max<std::size_t>(bytes / kSlotBytes, 5) - 1),
      words_((slots_ + 63) / 64),
      free_(new std::atomic<std::uint64_t>[words_]),
      // A queue that holds every slot never refuses one; a cell is far smaller than 64 bytes.
      filled_(std::bit_ceil(slots_) * 64) {
  void* memory = mmap(nullptr, (slots_ + 1) * kSlotBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::uint8_t*>(memory);
  slot_memory_ = memory_ + kSlotBytes;
  for (std::size_t word = 0; word < words_; ++word) {
    const std::size_t left = slots_ - word * 64;
    free_[word].store(left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1,
                      std::memory_order_relaxed);
  }
}

BufferPool::~BufferPool() {
  munmap(memory_, (slots_ + 1) * kSlotBytes);
}

// Takes the lowest set bit, so that the same few slots, warm in the cache, go round and round.
bool BufferPool::claim(std::atomic<std::uint64_t>& word, std::size_t& bit) noexcept {
  std::uint64_t free = word.load(std::memory_order_relaxed);
  while (free != 0) {
    if (word.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire)) {
      bit = static_cast<std::size_t>(std::countr_zero(free));
      return true;
    }
  }
  return false;
}

// Buffers start small and double after every four of a round. CUPTI gives a buffer back when it is full or
// when all of its records are complete, and on a busy device the last record never is: a buffer must
// therefore hold less than a round's records, whatever the rate.
std::size_t BufferPool::size(std::uint32_t taken) noexcept {
  return std::min(kFirstBytes << std::min(taken / 4, 16u), kSlotBytes);
}

std::uint8_t* BufferPool::take(std::size_t& bytes) noexcept {
  for (std::size_t word = 0; word < words_; ++word) {
    std::size_t bit = 0;
    if (!claim(free_[word], bit)) continue;
    bytes = size(taken_.fetch_add(1, std::memory_order_relaxed));
    return slot_memory_ + (word * 64 + bit) * kSlotBytes;
  }
  bytes = kDiscardBytes;
  return discard();
}

// CUPTI must be given memory: some releases crash on null.
std::uint8_t* BufferPool::discard() noexcept {
  std::size_t bit = 0;
  return claim(free_discards_, bit) ? memory_ + bit * kDiscardBytes : memory_ + kDiscards * kDiscardBytes;
}

BufferPool::Kind BufferPool::kind(const std::uint8_t* buffer) const noexcept {
  if (buffer >= slot_memory_) return Kind::kSlot;
  return buffer < memory_ + kDiscards * kDiscardBytes ? Kind::kDiscard : Kind::kShared;
}

void BufferPool::put(const Filled& filled) noexcept {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  filled_.push(filled);
}

void BufferPool::release(const std::uint8_t* buffer) noexcept {
  switch (kind(buffer)) {
    case Kind::kSlot: {
      const std::size_t slot = static_cast<std::size_t>(buffer - slot_memory_) / kSlotBytes;
      free_[slot / 64].fetch_or(std::uint64_t{1} << (slot % 64), std::memory_order_release);
      return;
    }
    case Kind::kDiscard: {
      const std::size_t slot = static_cast<std::size_t>(buffer - memory_) / kDiscardBytes;
      free_discards_.fetch_or(std::uint64_t{1} << slot, std::memory_order_release);
      return;
    }
    case Kind::kShared:
      return;
  }
}

bool BufferPool::next(Filled& filled) noexcept {
  if (!filled_.pop(filled)) return false;
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

std::size_t BufferPool::lent() const noexcept {
  std::size_t here = waiting();
  for (std::size_t word = 0; word < words_; ++word) {
    here += static_cast<std::size_t>(std::popcount(free_[word].load(std::memory_order_relaxed)));
  }
  return slots_ - std::min(here, slots_);
}

// A first write to a page costs the program more than the twenty records that the page holds. The reader
// keeps a doubling ahead, so that a program of few records does not pay for many in memory.
void BufferPool::warm() noexcept {
  const std::size_t wanted = std::min(2 * size(taken_.load(std::memory_order_relaxed)), kSlotBytes);
  if (wanted <= warm_) return;
  for (std::size_t slot = 0; slot < std::min(kWarmSlots, slots_); ++slot) {
    // Leaves what CUPTI has written meanwhile as it is; an old kernel refuses, and the writes fault as ever.
    madvise(slot_memory_ + slot * kSlotBytes + warm_, wanted - warm_, MADV_POPULATE_WRITE);
  }
  warm_ = wanted;
}

void BufferPool::cool() noexcept {
  for (std::size_t word = 0; word < words_; ++word) {
    std::uint64_t taken = 0;
    for (std::size_t bit = 0; claim(free_[word], bit); taken |= std::uint64_t{1} << bit) {
      madvise(slot_memory_ + (word * 64 + bit) * kSlotBytes, kSlotBytes, MADV_DONTNEED);
    }
    free_[word].fetch_or(taken, std::memory_order_release);
  }
  warm_ = 0;
}

}  // namespace ai_prof::cupti
