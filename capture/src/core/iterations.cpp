#include "core/iterations.h"

#include <algorithm>
#include <unordered_map>

namespace ai_prof {
namespace {

constexpr std::size_t kRepeats = 3;
constexpr std::size_t kMostSeen = std::size_t{1} << 17;  // iterations of up to 43,000 kernels
constexpr std::size_t kMostAdded = std::size_t{1} << 15;
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
  if (added_.size() >= kMostAdded) read_added();
  added_.push_back(operation);
}

void Iterations::search() {
  read_added();
  if (settled_ && !cycle_.empty()) return;
  adopt();
  if (cycle_.empty()) return;
  start_again();
  for (const Operation& operation : seen_) follow(operation);
}

void Iterations::read_added() {
  choose_stream();
  std::erase_if(added_, [this](const Operation& operation) { return operation.stream != busiest_; });
  std::ranges::stable_sort(added_, {}, &Operation::start);
  auto next = added_.begin();
  if (settled_ && !cycle_.empty()) {
    while (next != added_.end() && follow(*next)) ++next;
    if (next != added_.end()) give_up();
  }
  remember({next, added_.end()});
  added_.clear();
}

// Work of one stream that was held back by a longer one on another comes late, and copies not always between
// the kernels that they ran between: what was seen is kept in the order in which it ran.
void Iterations::remember(std::span<const Operation> operations) {
  if (operations.empty()) return;
  const auto old = static_cast<std::ptrdiff_t>(seen_.size());
  seen_.insert(seen_.end(), operations.begin(), operations.end());
  std::ranges::inplace_merge(seen_, seen_.begin() + old, {}, &Operation::start);
  if (seen_.size() > kMostSeen) seen_.erase(seen_.begin(), seen_.end() - kMostSeen / 2);
}

void Iterations::choose_stream() {
  if (settled_ || kernels_.empty()) return;
  const auto most = std::ranges::max_element(kernels_, {}, [](const auto& entry) { return entry.second; });
  const auto now = kernels_.find(busiest_);
  if (now != kernels_.end() && most->second <= kClearly * now->second) return;
  busiest_ = most->first;
  give_up();
}

// Takes what repeats at the end of what was seen for the candidate, if it is a better one.
void Iterations::adopt() {
  std::vector<std::uint64_t> tokens(seen_.size());
  std::ranges::transform(seen_, tokens.begin(), &Operation::token);
  const std::size_t period = period_at_end(tokens);
  // Three layers repeat before three iterations do.
  const bool better = period > cycle_.size() || passed_ < kRepeats;
  if (period == 0 || !better) return;
  cycle_.assign(tokens.end() - static_cast<std::ptrdiff_t>(period), tokens.end());
  anchor_ = rarest(cycle_);
  must_hold_ = meets_host() ? kHolds_ns : kDoubtfulHolds_ns;
}

bool Iterations::meets_host() const {
  const auto of_host = [](std::uint64_t token) { return (token & kHostCopy) == kHostCopy; };
  const auto copies = static_cast<std::size_t>(std::ranges::count_if(cycle_, of_host));
  return copies != 0 && cycle_.size() - copies >= kKernelsPerCopy * copies;
}

// What comes now is another phase of the program; the iterations of that count on.
void Iterations::give_up() {
  cycle_.clear();
  seen_.clear();
}

void Iterations::start_again() {
  if (settled_) gone_ += whole();
  lost_ = true;
  hits_ = misses_ = passed_ = 0;
}

// False when too little of what came lately is the candidate's.
bool Iterations::follow(const Operation& operation) {
  if (lost_ && operation.token == cycle_[anchor_]) {
    place_ = anchor_;
    lost_ = false;
  }
  if (lost_ || operation.token != cycle_[place_]) {
    lost_ = true;
    ++misses_;
  } else {
    ++hits_;
    if (place_ == anchor_ && ++passed_ == 1) since_ = operation.end;
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
  if (whole() >= kSettled && operation.end - since_ >= must_hold_) settled_ = true;
  return true;
}

}  // namespace ai_prof
