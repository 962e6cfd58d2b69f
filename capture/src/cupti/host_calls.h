// Host calls, each counted once: a runtime call and the driver calls that it makes share one correlation id.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/recorder.h"
#include "cupti/calls.h"
#include "cupti/layouts.h"

namespace ai_prof::cupti {

class HostCalls {
 public:
  HostCalls();

  void add(const Api& record, Recorder& recorder);

  // Writes the driver calls that have waited since the last round without the runtime call that made them.
  void round(Recorder& recorder);
  // Writes all that wait.
  void finish(Recorder& recorder);

  // Gives back its memory; nothing is added any more.
  void forget();

  // Launches of kernels and graphs so far.
  [[nodiscard]] std::uint64_t launches() const { return launches_; }

 private:
  std::uint32_t name_of(const CallRow* row, Recorder& recorder);
  format::CallRecord call_record(const Api& record, const CallRow& row, Recorder& recorder);
  void write(const format::CallRecord& call, Recorder& recorder);
  void write_outermost(std::vector<format::CallRecord>& calls, Recorder& recorder);
  [[nodiscard]] std::uint32_t& runtime_slot(std::uint32_t correlation);

  // The correlations of the latest runtime calls, each at its own value modulo the size: ids count up.
  std::vector<std::uint32_t> runtime_;
  // Driver calls end, and are recorded, before the runtime call around them.
  std::vector<format::CallRecord> fresh_;
  std::vector<format::CallRecord> waiting_;
  std::unordered_map<const CallRow*, std::uint32_t> names_;
  std::uint64_t launches_ = 0;
};

}  // namespace ai_prof::cupti
