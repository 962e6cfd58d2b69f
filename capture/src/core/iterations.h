// Tells, while a program runs, that its iterations have settled and how many have passed.
//
// An iteration is the shortest sequence of kernels (name and grid) that repeats on the stream with the most
// kernels: a stream keeps its order, several streams do not. Three repeats in a row make a candidate, which
// must then hold for a second, so that a weight's initialization or one measured variant of an autotuner is
// no iteration. What does not fit (an iteration that logs) is tolerated as long as it is less than a fifth.
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
  // Kernels of a stream in their order.
  void add(const format::KernelRecord& kernel);

  // Looks for what repeats. To be called a few times a second; costs about a millisecond until it is found.
  void search();

  [[nodiscard]] bool settled() const { return settled_; }
  // Whole iterations since the first repeat was seen; 0 until they have settled.
  [[nodiscard]] std::uint64_t passed() const { return settled_ && passed_ > 0 ? passed_ - 1 : 0; }

 private:
  using StreamKey = std::array<std::uint32_t, 3>;  // device, context, stream
  struct Stream {
    std::uint64_t kernels = 0;
    std::vector<std::uint64_t> tokens;  // the latest; the last half of them at least
  };

  void follow(std::uint64_t token, std::int64_t end);
  void forget();

  std::map<StreamKey, Stream> streams_;
  StreamKey busiest_{};
  // The candidate, as one cycle of tokens, and where in it the next kernel should be.
  std::vector<std::uint64_t> cycle_;
  std::size_t anchor_ = 0;  // the rarest token's place: it marks an iteration, and finds the way back
  std::size_t place_ = 0;
  bool lost_ = false;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t passed_ = 0;  // times that the anchor was met
  std::int64_t since_ = 0;    // the device's time when the candidate was found
  std::int64_t latest_ = 0;
  bool settled_ = false;
};

}  // namespace ai_prof
