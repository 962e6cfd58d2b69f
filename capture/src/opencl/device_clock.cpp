#include "opencl/device_clock.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/json.h"
#include "opencl/driver.h"

namespace ai_prof::opencl {
namespace {

// Host clocks before the driver's own timer: where both fit, a host clock is read more tightly.
constexpr std::array<clockid_t, 3> kHostClocks = {CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC, CLOCK_REALTIME};
constexpr std::array<std::string_view, 4> kNames = {"CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC",
                                                    "CLOCK_REALTIME", "clGetDeviceAndHostTimer"};
constexpr std::int64_t kTooFar_ns = 5'000'000;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::int64_t DeviceClock::read(std::size_t candidate) const {
  if (candidate < kHostClocks.size()) return read_clock(kHostClocks[candidate]);
  cl_ulong device = 0;
  cl_ulong host = 0;
  const auto read_both = next<kGetDeviceAndHostTimer>();
  if (read_both == nullptr || read_both(device_, &device, &host) != kSuccess) return 0;
  return static_cast<std::int64_t>(device);
}

void DeviceClock::calibrate(Recorder& recorder) {
  for (std::size_t i = 0; i < kCandidates; ++i) {
    if (chosen_ < kCandidates && i != chosen_) continue;
    const format::ClockRecord reading = read_together(id_, [&] { return read(i); });
    if (reading.source == 0) continue;
    if (first_[i].source == 0) first_[i] = reading;
    latest_[i] = reading;
  }
  if (can_choose()) choose(recorder);
  if (chosen_ < kCandidates) recorder.add(format::kClock, latest_[chosen_]);
}

void DeviceClock::observe(std::int64_t queued, std::int64_t start, std::int64_t end) {
  worked_ = true;
  if (queued <= 0) return;
  ++seen_;
  for (std::size_t i = 0; i < kCandidates; ++i) {
    const std::int64_t there = queued - latest_[i].source + latest_[i].monotonic;
    const std::int64_t outside = latest_[i].source == 0 ? kNever : std::max(start - there, there - end);
    worst_[i] = std::max(worst_[i], outside);
  }
}

void DeviceClock::choose(Recorder& recorder) {
  const auto best = std::ranges::min_element(worst_);
  if (*best > kTooFar_ns) return fail(recorder);
  chosen_ = static_cast<std::size_t>(best - worst_.begin());
  recorder.meta("device_clock_" + std::to_string(id_), json_string(kNames[chosen_]));
  recorder.add(format::kClock, first_[chosen_]);
}

void DeviceClock::fail(Recorder& recorder) {
  failed_ = true;
  recorder.error("the clock of device " + std::to_string(id_) + " can't be told: its times are not aligned");
}

void DeviceClock::finish(Recorder& recorder) {
  if (open() && worked_ && seen_ == 0) fail(recorder);
}

}  // namespace ai_prof::opencl
