// CUPTI's clock, on which it stamps host and device records alike, against the host's own.
#pragma once

#include <vector>

#include "core/recorder.h"
#include "cupti/cupti_api.h"

namespace ai_prof::cupti {

// Until CUDA is up CUPTI's clock may still change its origin: readings are held back until the first record
// has come, and those that then prove to be of another origin are dropped.
class HostClock {
 public:
  explicit HostClock(const CuptiApi& api) : api_(api) {}

  void read(Recorder& recorder);
  // CUDA is up.
  void settle(Recorder& recorder);

 private:
  [[nodiscard]] format::ClockRecord reading() const;

  const CuptiApi& api_;
  std::vector<format::ClockRecord> held_;
  bool settled_ = false;
};

}  // namespace ai_prof::cupti
