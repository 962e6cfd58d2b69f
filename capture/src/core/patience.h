// Waiting for another thread of ours, with more patience while that is at work.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "core/condition.h"

namespace ai_prof {

// Whether a thread of this process runs or waits for a core: it is at work then, however slowly.
bool runnable(int thread) noexcept;

// Waits until `holds()`. Takes from `patience` the time in which `thread` was not at work; one that works on
// is waited for some 20 s more. False when that was too short. `lock` is held.
template <class Holds>
bool wait_patiently(Condition& changed, std::unique_lock<std::mutex>& lock, const std::atomic<int>& thread,
                    std::chrono::milliseconds& patience, Holds&& holds) {
  using std::chrono::milliseconds;
  constexpr milliseconds kAtWork{20'000};
  constexpr milliseconds kLook{100};
  const auto limit = std::chrono::steady_clock::now() + patience + kAtWork;
  while (!changed.wait_for(lock, std::min(patience, kLook), holds)) {
    if (!runnable(thread)) patience -= std::min(patience, kLook);
    if (patience == milliseconds{0} || std::chrono::steady_clock::now() >= limit) return false;
  }
  return true;
}

}  // namespace ai_prof
