// A bounded lock-free queue for many producers and one consumer (Vyukov's).
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace ai_prof {

// The cells come from mmap, so that memory that was never needed is never touched. A cell's turn is kept less
// its own index: zeroed pages are a valid empty queue.
template <class T>
class BoundedQueue {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Room for the largest power of two of items that fits into `bytes`, at least two.
  explicit BoundedQueue(std::size_t bytes)
      : capacity_(std::bit_floor(bytes / sizeof(Cell) < 2 ? std::size_t{2} : bytes / sizeof(Cell))) {
    void* memory = mmap(nullptr, capacity_ * sizeof(Cell), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    cells_ = static_cast<Cell*>(memory);
  }
  ~BoundedQueue() { munmap(cells_, capacity_ * sizeof(Cell)); }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Any thread; false when full.
  bool push(const T& item) noexcept {
    std::uint64_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & (capacity_ - 1)];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire) + (at & (capacity_ - 1));
      const auto ahead = static_cast<std::int64_t>(turn - at);
      if (ahead < 0) return false;
      if (ahead > 0) {
        at = tail_.load(std::memory_order_relaxed);
      } else if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        cell.item = item;
        cell.turn.store(at + 1 - (at & (capacity_ - 1)), std::memory_order_release);
        return true;
      }
    }
  }

  // The consumer's thread; false when empty.
  bool pop(T& item) noexcept {
    const std::uint64_t index = head_ & (capacity_ - 1);
    Cell& cell = cells_[index];
    if (cell.turn.load(std::memory_order_acquire) + index != head_ + 1) return false;
    item = cell.item;
    cell.turn.store(head_ + capacity_ - index, std::memory_order_release);
    ++head_;
    return true;
  }

  std::size_t capacity() const { return capacity_; }

 private:
  struct Cell {
    std::atomic<std::uint64_t> turn;
    T item;
  };

  const std::size_t capacity_;
  Cell* cells_ = nullptr;
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  alignas(64) std::uint64_t head_ = 0;
};

}  // namespace ai_prof
