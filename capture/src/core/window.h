// When a capture records: after AI_PROF_DELAY, with AI_PROF_STEADY once iterations have settled, and then
// until AI_PROF_DURATION or AI_PROF_ITERATIONS is reached.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "ai_prof/format.h"
#include "core/config.h"
#include "core/iterations.h"
#include "core/recorder.h"

namespace ai_prof {

// On the recorder's thread.
class Window {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State { kBefore, kWatching, kOpen, kOver };  // watching: the driver records, the file does not

  Window(const Config& config, Clock::time_point now);

  // The driver has begun to record, which can take it seconds: an open window lasts from there on.
  void begun(Clock::time_point now);

  // Moves on where it is time to. To be called a few times a second.
  State turn(Clock::time_point now);
  [[nodiscard]] State state() const { return state_; }

  // Every kernel and copy from the delay's end on.
  template <class Record>
  void add(const Record& record) {
    if (counting()) iterations_.add(record);
  }
  // Iterations are looked for or counted: what has come should be added, and turn() called, every
  // kSearchEvery.
  static constexpr std::chrono::milliseconds kSearchEvery{100};
  [[nodiscard]] bool counting() const {
    return config_.iterations != 0 || (config_.steady && state_ <= State::kWatching);
  }

  // What the user must be told at the end; empty when the window did what was asked for.
  [[nodiscard]] std::string_view problem() const;
  void tell(Recorder& recorder) const;
  // Gives back its memory; nothing is added any more.
  void forget() { iterations_ = {}; }

 private:
  const Config& config_;
  State state_ = State::kBefore;
  Clock::time_point opens_;
  Clock::time_point closes_;
  Clock::time_point searches_;
  Iterations iterations_;
  std::uint64_t passed_before_ = 0;
};

}  // namespace ai_prof
