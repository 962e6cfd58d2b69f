#include "core/iterations.h"

#include <algorithm>
#include <unordered_map>

namespace ai_prof {
namespace {

constexpr std::size_t kRepeats = 3;
constexpr std::size_t kMostTokens = std::size_t{1} << 17;  // iterations of up to 43,000 kernels
constexpr std::size_t kMostStreams = 64;
constexpr std::int64_t kHolds_ns = 1'000'000'000;
constexpr std::uint64_t kHitsPerMiss = 4;
constexpr std::uint64_t kClearly = 2;  // two equal streams must not take turns

std::uint64_t token_of(const format::KernelRecord& kernel) {
  std::uint64_t token = kernel.name;
  for (const std::uint32_t blocks : kernel.grid) token = (token ^ blocks) * 0x9E3779B97F4A7C15u;
  return token;
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
  const StreamKey key{kernel.device, kernel.context, kernel.stream};
  if (streams_.size() >= kMostStreams && !streams_.contains(key)) return;
  Stream& stream = streams_[key];
  ++stream.kernels;
  const std::uint64_t token = token_of(kernel);
  if (!cycle_.empty()) {
    if (key == busiest_) follow(token, kernel.end);
    return;
  }
  if (key == busiest_) latest_ = kernel.end;
  std::vector<std::uint64_t>& tokens = stream.tokens;
  if (tokens.size() >= kMostTokens) tokens.erase(tokens.begin(), tokens.begin() + kMostTokens / 2);
  tokens.push_back(token);
}

void Iterations::search() {
  if (settled_ || streams_.empty()) return;
  const auto kernels = [](const auto& entry) { return entry.second.kernels; };
  const auto most = std::ranges::max_element(streams_, {}, kernels);
  auto stream = streams_.find(busiest_);
  if (stream == streams_.end() || most->second.kernels > kClearly * stream->second.kernels) {
    stream = most;
    busiest_ = most->first;
    forget();
    latest_ = 0;
  }
  const std::span<const std::uint64_t> tokens = stream->second.tokens;
  if (!cycle_.empty() || latest_ == 0) return;
  const std::size_t period = period_at_end(tokens);
  if (period == 0) return;
  cycle_.assign(tokens.end() - static_cast<std::ptrdiff_t>(period), tokens.end());
  anchor_ = rarest(cycle_);
  passed_ = kRepeats;
  since_ = latest_;
  for (auto& [key, each] : streams_) each.tokens.clear();
}

void Iterations::follow(std::uint64_t token, std::int64_t end) {
  if (lost_ && token == cycle_[anchor_]) {
    place_ = anchor_;
    lost_ = false;
  }
  if (lost_ || token != cycle_[place_]) {
    lost_ = true;
    ++misses_;
  } else {
    ++hits_;
    if (place_ == anchor_) ++passed_;
    place_ = (place_ + 1) % cycle_.size();
  }
  if (settled_) return;
  if (misses_ * kHitsPerMiss > hits_ + cycle_.size()) {
    forget();
  } else {
    settled_ = end - since_ >= kHolds_ns;
  }
}

void Iterations::forget() {
  cycle_.clear();
  place_ = 0;
  lost_ = false;
  hits_ = misses_ = passed_ = 0;
}

}  // namespace ai_prof
