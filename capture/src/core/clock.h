// Host clocks in nanoseconds, and one moment read on several of them.
#pragma once

#include <time.h>

#include <cstdint>
#include <limits>

#include "ai_prof/format.h"

namespace ai_prof {

inline std::int64_t read_clock(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

inline std::int64_t monotonic_ns() noexcept {
  return read_clock(CLOCK_MONOTONIC);
}
inline std::int64_t realtime_ns() noexcept {
  return read_clock(CLOCK_REALTIME);
}

// Reads `read_source` (returns ns, 0 or less when it can't) between two readings of CLOCK_MONOTONIC and keeps
// the tightest of a few tries. `source` is 0 when no reading came.
template <class ReadSource>
format::ClockRecord read_together(std::uint32_t clock, ReadSource&& read_source) {
  constexpr int kTries = 9;
  format::ClockRecord best{};
  best.clock = clock;
  std::int64_t tightest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t before = monotonic_ns();
    const std::int64_t source = read_source();
    const std::int64_t after = monotonic_ns();
    const std::int64_t realtime = realtime_ns();
    const std::int64_t later = monotonic_ns();
    if (source <= 0 || after - before >= tightest) continue;
    tightest = after - before;
    best.source = source;
    best.monotonic = before + (after - before) / 2;
    best.realtime = realtime - ((after + (later - after) / 2) - best.monotonic);
    best.uncertainty = static_cast<std::uint32_t>((after - before + 1) / 2);
  }
  return best;
}

}  // namespace ai_prof
