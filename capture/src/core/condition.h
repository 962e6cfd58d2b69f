// A condition variable whose waits nobody's setting of the clock prolongs. std::condition_variable's need
// pthread_cond_clockwait for that, which glibc has only since 2.30.
#pragma once

#include <pthread.h>

#include <chrono>
#include <ctime>
#include <mutex>

namespace ai_prof {

class Condition {
 public:
  Condition() noexcept {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &monotonic);
    pthread_condattr_destroy(&monotonic);
  }
  ~Condition() { pthread_cond_destroy(&condition_); }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_all() noexcept { pthread_cond_broadcast(&condition_); }

  // Waits until `holds()`. `lock` is held.
  template <class Holds>
  void wait(std::unique_lock<std::mutex>& lock, Holds&& holds) {
    while (!holds()) pthread_cond_wait(&condition_, lock.mutex()->native_handle());
  }

  // Waits until `holds()`, at most `patience`; what `holds()` says at the end. `lock` is held.
  template <class Holds>
  bool wait_for(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds patience, Holds&& holds) {
    constexpr long kSecond = 1'000'000'000;
    timespec end{};
    clock_gettime(CLOCK_MONOTONIC, &end);
    const auto nanoseconds = patience.count() + end.tv_nsec;
    end.tv_sec += nanoseconds / kSecond;
    end.tv_nsec = nanoseconds % kSecond;
    while (!holds()) {
      if (pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &end) != 0) return holds();
    }
    return true;
  }

 private:
  pthread_cond_t condition_{};
};

}  // namespace ai_prof
