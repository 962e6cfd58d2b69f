// Host calls, each counted once: a runtime call and the driver calls that it makes share one correlation id.
// Those that synchronize are the file's synchronizes as well.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/mapped_vector.h"
#include "core/recorder.h"
#include "cupti/calls.h"
#include "cupti/layouts.h"

namespace ai_prof::cupti {

class HostCalls {
 public:
  HostCalls();

  // What is written of calls, before the first.
  struct Wanted {
    bool calls = true;
    bool syncs = false;
  };
  void want(Wanted wanted) { wanted_ = wanted; }
  [[nodiscard]] const Wanted& wanted() const { return wanted_; }

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
  struct Call {
    const CallRow* row;
    format::CallRecord record;
  };

  std::uint32_t name_of(const CallRow* row, Recorder& recorder);
  format::CallRecord call_record(const Api& record, const CallRow& row, Recorder& recorder);
  void write(const Call& call, Recorder& recorder);
  void write_outermost(MappedVector<Call>& calls, Recorder& recorder);
  [[nodiscard]] std::uint32_t& runtime_slot(std::uint32_t correlation);

  // The correlations of the latest runtime calls, each at its own value modulo the size: ids count up.
  MappedVector<std::uint32_t> runtime_;
  // Driver calls end, and are recorded, before the runtime call around them.
  MappedVector<Call> fresh_;
  MappedVector<Call> waiting_;
  std::unordered_map<const CallRow*, std::uint32_t> names_;
  std::uint64_t launches_ = 0;
  Wanted wanted_;
};

}  // namespace ai_prof::cupti
