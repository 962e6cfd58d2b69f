#include "cupti/host_clock.h"

#include <cstdlib>

#include "core/clock.h"

namespace ai_prof::cupti {
namespace {

constexpr std::int64_t kSameOrigin = 1'000'000;  // ns

std::int64_t offset(const format::ClockRecord& reading) {
  return reading.source - reading.monotonic;
}

}  // namespace

format::ClockRecord HostClock::reading() const {
  return read_together(format::kHostClock, [this]() -> std::int64_t {
    std::uint64_t now = 0;
    return api_.cuptiGetTimestamp(&now) == CUPTI_SUCCESS ? static_cast<std::int64_t>(now) : 0;
  });
}

void HostClock::read(Recorder& recorder) {
  const format::ClockRecord now = reading();
  if (now.source == 0) return;
  if (settled_) {
    recorder.add(format::kClock, now);
  } else {
    held_.push_back(now);
  }
}

void HostClock::settle(Recorder& recorder) {
  if (settled_) return;
  settled_ = true;
  const format::ClockRecord now = reading();
  if (now.source == 0) {
    recorder.error("CUPTI's clock can't be read: times can't be aligned with other processes");
    return;
  }
  for (const format::ClockRecord& earlier : held_) {
    if (std::abs(offset(earlier) - offset(now)) <= kSameOrigin) recorder.add(format::kClock, earlier);
  }
  held_.clear();
  recorder.add(format::kClock, now);
}

}  // namespace ai_prof::cupti
