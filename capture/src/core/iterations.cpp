#include "core/iterations.h"

#include <algorithm>
#include <unordered_map>

namespace ai_prof {
namespace {

constexpr std::size_t kRepeats = 3;
constexpr std::size_t kMostTokens = std::size_t{1} << 17;  // iterations of up to 43,000 kernels
constexpr std::size_t kMostStreams = 64;
constexpr std::uint64_t kSettled = 5;
constexpr std::int64_t kHolds_ns = 100'000'000;
constexpr std::int64_t kDoubtfulHolds_ns = 1'000'000'000;
constexpr std::size_t kKernelsPerCopy = 8;  // loading weights copies and converts by turns
constexpr std::uint64_t kHitsPerMiss = 4;
constexpr std::size_t kRemembered = 16;               // cycles by whose hits and misses it is judged
constexpr std::uint64_t kClearly = 2;                 // two equal streams must not take turns
constexpr std::uint64_t kHostCopy = 0xC0B1ull << 48;  // no kernel's name and grid: ids are small

std::uint64_t token_of(const format::KernelRecord& kernel) {
  std::uint64_t token = kernel.name;
  for (const std::uint32_t blocks : kernel.grid) token = (token ^ blocks) * 0x9E3779B97F4A7C15u;
  return token & ~kHostCopy;
}

std::size_t rarest(std::span<const std::uint64_t> cycle) {
  std::unordered_map<std::uint64_t, std::size_t> counts;
  for (const std::uint64_t token : cycle) ++counts[token];
  const auto count = [&](std::uint64_t token) { return counts.at(token); };
  return static_cast<std::size_t>(std::ranges::min_element(cycle, {}, count) - cycle.begin());
}

}  // namespace

// The failure function of Knuth, Morris and Pratt over the reversed tokens: border[n] is the longest proper
// suffix of the last n tokens that is also their prefix, so that they repeat every n - border[n].
std::size_t period_at_end(std::span<const std::uint64_t> tokens) {
  const std::size_t count = tokens.size();
  const auto at = [&](std::size_t i) { return tokens[count - 1 - i]; };
  std::vector<std::uint32_t> border(count + 1, 0);
  std::size_t best = 0;
  for (std::size_t n = 2; n <= count; ++n) {
    std::uint32_t length = border[n - 1];
    while (length > 0 && at(length) != at(n - 1)) length = border[length];
    if (at(length) == at(n - 1)) ++length;
    border[n] = length;
    const std::size_t period = n - length;
    if (period * kRepeats <= n) best = period;
  }
  return best;
}

void Iterations::add(const format::KernelRecord& kernel) {
  const StreamKey stream{kernel.device, kernel.context, kernel.stream};
  if (kernels_.size() >= kMostStreams && !kernels_.contains(stream)) return;
  ++kernels_[stream];
  add({stream, kernel.start, kernel.end, token_of(kernel)});
}

void Iterations::add(const format::MemoryRecord& copy) {
  if (copy.kind != format::kHostToDevice && copy.kind != format::kDeviceToHost) return;
  add({{copy.device, copy.context, copy.stream}, copy.start, copy.end, kHostCopy | copy.kind});
}

void Iterations::add(const Operation& operation) {
  if (operation.start <= 0 || operation.end < operation.start) return;
  if (added_.size() >= kMostTokens) read_added();
  added_.push_back(operation);
}

void Iterations::search() {
  read_added();
  if (settled_ && !cycle_.empty()) return;
  const std::size_t period = period_at_end(tokens_);
  // Three layers repeat before three iterations do.
  const bool better = period > cycle_.size() || passed_ < kRepeats;
  if (period != 0 && better) adopt(period);
}

// Copies come with the kernels of their stream, but not always between those that they ran between.
void Iterations::read_added() {
  choose_stream();
  std::ranges::stable_sort(added_, {}, &Operation::start);
  for (const Operation& operation : added_) {
    if (operation.stream != busiest_) continue;
    if (!cycle_.empty() && !follow(operation.token, operation.end) && settled_) give_up();
    if (settled_ && !cycle_.empty()) continue;
    if (tokens_.size() >= kMostTokens) {
      tokens_.erase(tokens_.begin(), tokens_.begin() + kMostTokens / 2);
      ends_.erase(ends_.begin(), ends_.begin() + kMostTokens / 2);
    }
    tokens_.push_back(operation.token);
    ends_.push_back(operation.end);
  }
  added_.clear();
}

void Iterations::choose_stream() {
  if (settled_ || kernels_.empty()) return;
  const auto most = std::ranges::max_element(kernels_, {}, [](const auto& entry) { return entry.second; });
  const auto now = kernels_.find(busiest_);
  if (now != kernels_.end() && most->second <= kClearly * now->second) return;
  busiest_ = most->first;
  give_up();
}

void Iterations::adopt(std::size_t period) {
  cycle_.assign(tokens_.end() - static_cast<std::ptrdiff_t>(period), tokens_.end());
  anchor_ = rarest(cycle_);
  must_hold_ = meets_host() ? kHolds_ns : kDoubtfulHolds_ns;
  start_again();
  for (std::size_t i = 0; i < tokens_.size(); ++i) follow(tokens_[i], ends_[i]);
}

bool Iterations::meets_host() const {
  const auto of_host = [](std::uint64_t token) { return (token & kHostCopy) == kHostCopy; };
  const auto copies = static_cast<std::size_t>(std::ranges::count_if(cycle_, of_host));
  return copies != 0 && cycle_.size() - copies >= kKernelsPerCopy * copies;
}

// What comes now is another phase of the program; the iterations of that count on.
void Iterations::give_up() {
  cycle_.clear();
  tokens_.clear();
  ends_.clear();
}

void Iterations::start_again() {
  if (settled_) gone_ += whole();
  lost_ = true;
  hits_ = misses_ = passed_ = 0;
}

// False when too little of what came lately is the candidate's.
bool Iterations::follow(std::uint64_t token, std::int64_t end) {
  if (lost_ && token == cycle_[anchor_]) {
    place_ = anchor_;
    lost_ = false;
  }
  if (lost_ || token != cycle_[place_]) {
    lost_ = true;
    ++misses_;
  } else {
    ++hits_;
    if (place_ == anchor_ && ++passed_ == 1) since_ = end;
    place_ = (place_ + 1) % cycle_.size();
  }
  if (misses_ * kHitsPerMiss > hits_ + cycle_.size()) {
    start_again();
    return false;
  }
  if (hits_ + misses_ > kRemembered * cycle_.size()) {
    hits_ /= 2;
    misses_ /= 2;
  }
  if (whole() >= kSettled && end - since_ >= must_hold_) settled_ = true;
  return true;
}

}  // namespace ai_prof
