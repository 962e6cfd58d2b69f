// A thread for calls into a driver that may not return: who gives it one waits for it only so long.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>

#include "core/condition.h"

namespace ai_prof {

// Lives for ever once started: its thread may stand in the driver until the process is gone. One thread at a
// time gives it work.
class Errands {
 public:
  // Starts the thread, with all signals blocked. Throws std::system_error.
  void start();

  // Has `task` done after all that was given before, and waits for it: `patience`, of which it takes what it
  // used, and more while the thread is at work. False when that was too short; the task is done all the same,
  // once it can be. `what` names the task.
  bool run(const char* what, std::function<void()> task, std::chrono::milliseconds& patience);

  // Something that was given has not returned.
  [[nodiscard]] bool out() const;
  // What that is, and for how many seconds; else what was last waited for in vain.
  [[nodiscard]] std::string still_out() const;

  // The thread ends after what was given so far.
  void close();

  // For those who wait for whoever waits here.
  [[nodiscard]] int thread() const { return thread_.load(std::memory_order_relaxed); }

 private:
  struct Errand {
    const char* what;
    std::function<void()> task;
    std::chrono::steady_clock::time_point since;
  };

  void work() noexcept;

  mutable std::mutex mutex_;
  Condition changed_;
  std::list<Errand> waiting_;  // the first one is being done
  Errand late_{};
  std::uint64_t given_ = 0;
  std::uint64_t returned_ = 0;
  bool closing_ = false;
  std::atomic<int> thread_{0};
};

}  // namespace ai_prof
