// Which clock a device stamps its events with, found by where the stamps fall.
#pragma once

#include <array>
#include <cstdint>

#include "ai_prof/format.h"
#include "core/recorder.h"
#include "opencl/cl_abi.h"

namespace ai_prof::opencl {

// OpenCL lets a device count time from anywhere. clGetDeviceAndHostTimer is absent or wrong in many drivers,
// so it is only one candidate beside the host's own clocks. Each command is stamped QUEUED while the host is
// inside the enqueue, so the candidate that puts the first stamps between the call's start and end is the
// device's.
class DeviceClock {
 public:
  explicit DeviceClock(std::uint32_t id, cl_device_id device) : id_(id), device_(device) {}

  // A command was stamped `queued` on the device's clock in a call that ran from `start` to `end` on
  // CLOCK_MONOTONIC.
  void observe(std::int64_t queued, std::int64_t start, std::int64_t end);

  // Not settled on: every command should be observed.
  bool open() const { return !failed_ && chosen_ == kCandidates; }
  bool can_choose() const { return open() && seen_ != 0; }
  // Before the file holds a block of records whose times are on it.
  bool must_choose() const { return open() && seen_ >= kEnough; }

  // Reads the candidates; once a stamp has been seen, settles on one, says which in META, and adds its
  // readings.
  void calibrate(Recorder& recorder);

  // No command comes any more. Says where none of them told the clock.
  void finish(Recorder& recorder);

 private:
  static constexpr std::size_t kCandidates = 4;
  static constexpr std::uint32_t kEnough = 64;  // stamps

  std::int64_t read(std::size_t candidate) const;
  void choose(Recorder& recorder);
  void fail(Recorder& recorder);

  std::uint32_t id_;
  cl_device_id device_;
  std::array<format::ClockRecord, kCandidates> first_{};
  std::array<format::ClockRecord, kCandidates> latest_{};
  std::array<std::int64_t, kCandidates> worst_{};  // ns by which a stamp fell outside its call
  std::size_t chosen_ = kCandidates;               // none yet
  std::uint32_t seen_ = 0;                         // stamps
  bool worked_ = false;
  bool failed_ = false;
};

}  // namespace ai_prof::opencl
