// A vector for what grows with the program's work. Its memory comes from the system and goes back to it; that
// of malloc would stay with the program, in an arena for each of our threads.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace ai_prof {

template <class T>
struct MappedMemory {
  using value_type = T;

  MappedMemory() = default;
  template <class Other>
  explicit MappedMemory(const MappedMemory<Other>&) noexcept {}

  T* allocate(std::size_t count) {
    void* memory =
        mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) noexcept { munmap(memory, count * sizeof(T)); }

  bool operator==(const MappedMemory&) const = default;
};

template <class T>
using MappedVector = std::vector<T, MappedMemory<T>>;

}  // namespace ai_prof
