// Tells, while a program runs, that its iterations have settled and how many have passed.
//
// An iteration is the shortest sequence of operations (kernels by name and grid, copies between host and
// device) that repeats on the stream with the most kernels: a stream keeps its order, several streams do not.
// What was seen before a sequence is known to repeat counts as well, so that iterations have settled as soon
// as five in a row have taken a tenth of a second. A sequence that never meets the host may be the layers of
// one long iteration, and one of a few kernels may be an autotuner's measurement or the loading of weights:
// those must hold for a second. What does not fit (an iteration that logs) is tolerated as long as it is less
// than a fifth.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ai_prof/format.h"

namespace ai_prof {

// The shortest p so that the longest possible end of `tokens` repeats every p, three times or more; 0: none.
std::size_t period_at_end(std::span<const std::uint64_t> tokens);

class Iterations {
 public:
  // In any order between two searches.
  void add(const format::KernelRecord& kernel);
  void add(const format::MemoryRecord& copy);

  // Looks at what was added. To be called a few times a second; costs about a millisecond until it is found.
  void search();

  [[nodiscard]] bool settled() const { return settled_; }
  // Whole iterations seen so far; 0 until they have settled.
  [[nodiscard]] std::uint64_t passed() const { return settled_ ? gone_ + whole() : 0; }

 private:
  using StreamKey = std::array<std::uint32_t, 3>;  // device, context, stream
  struct Operation {
    StreamKey stream;
    std::int64_t start;
    std::int64_t end;
    std::uint64_t token;
  };

  void add(const Operation& operation);
  void choose_stream();
  void read_added();
  void remember(std::span<const Operation> operations);
  void adopt();
  bool follow(const Operation& operation);
  void start_again();
  void give_up();
  [[nodiscard]] bool meets_host() const;
  [[nodiscard]] std::uint64_t whole() const { return passed_ > 0 ? passed_ - 1 : 0; }

  std::vector<Operation> added_;                // since the last search
  std::map<StreamKey, std::uint64_t> kernels_;  // seen on each stream
  StreamKey busiest_{};
  // Of the busiest stream, in order: what a search looks through; the latest, half of the bound at least.
  std::vector<Operation> seen_;
  // The candidate, as one cycle of tokens, and where in it the next operation should be.
  std::vector<std::uint64_t> cycle_;
  std::size_t anchor_ = 0;  // the rarest token's place: it marks an iteration, and finds the way back
  std::size_t place_ = 0;
  bool lost_ = true;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t passed_ = 0;  // times that the anchor was met in a row
  std::int64_t since_ = 0;    // the device's time when it was met first
  std::int64_t must_hold_ = 0;
  bool settled_ = false;
  std::uint64_t gone_ = 0;  // iterations of an earlier cycle, which no longer comes
};

}  // namespace ai_prof
