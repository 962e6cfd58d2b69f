// When a window opens and closes on the work of two PyTorch programs, as it was recorded on an H200 from
// their start on. Usage: recorded_window_test FOLDER, that of tests/captures.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "check.h"
#include "core/window.h"
#include "mock/capture_file.h"

namespace {

using namespace ai_prof;
using State = Window::State;

constexpr std::int64_t kMs = 1'000'000;

struct Operation {
  std::int64_t start;
  std::int64_t end;
  std::variant<format::KernelRecord, format::MemoryRecord> record;
};

// A program's device work from its start, and how many operations make one of its iterations.
struct Work {
  std::vector<Operation> operations;
  std::size_t iteration;
};

template <class Record>
void take(const test::CaptureFile& file, format::BlockType type, std::vector<Operation>& into) {
  for (const Record& record : file.records<Record>(type)) into.push_back({record.start, record.end, record});
}

// Both programs read one value back at the end of each iteration.
bool ends_iteration(const Operation& operation) {
  const auto* copy = std::get_if<format::MemoryRecord>(&operation.record);
  return copy != nullptr && copy->kind == format::kDeviceToHost;
}

// The recorded work, its last iteration repeated until there are `iterations` more.
Work prolonged(const std::filesystem::path& path, int iterations) {
  const test::CaptureFile file(path);
  Work work{};
  std::vector<Operation>& all = work.operations;
  take<format::KernelRecord>(file, format::kKernel, all);
  take<format::MemoryRecord>(file, format::kMemcpy, all);
  std::ranges::sort(all, {}, &Operation::start);
  while (!ends_iteration(all.back())) all.pop_back();
  std::size_t first = all.size() - 1;
  while (!ends_iteration(all[first - 1])) --first;
  work.iteration = all.size() - first;
  const std::int64_t length = all.back().end - all[first - 1].end;
  const std::vector<Operation> last(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
  for (int i = 1; i <= iterations; ++i) {
    for (Operation operation : last) {
      operation.start += i * length;
      operation.end += i * length;
      std::visit([&](auto& record) { record.start = operation.start, record.end = operation.end; },
                 operation.record);
      all.push_back(operation);
    }
  }
  return work;
}

struct Played {
  State state;
  std::size_t opened;  // operations that had ended when it opened
  std::size_t recorded;
};

struct Delivery {
  std::int64_t late;  // ns from the end of an operation until it comes
  bool held;  // the middle of each third round comes a round later, as where another stream's work holds it
              // back
};

// Kernels ahead of copies.
void give(const Work& work, const std::vector<std::size_t>& places, Window& window) {
  for (const bool kernels : {true, false}) {
    for (const std::size_t i : places) {
      const auto& record = work.operations[i].record;
      if (std::holds_alternative<format::KernelRecord>(record) != kernels) continue;
      std::visit([&](const auto& one) { window.add(one); }, record);
    }
  }
}

// As the recorder's thread gets it, every tenth of a second.
Played play(const Work& work, const Config& config, Delivery delivery) {
  const Window::Clock::time_point begin;
  Window window(config, begin);
  const std::vector<Operation>& all = work.operations;
  Played played{State::kWatching, 0, 0};
  std::size_t next = 0;
  std::vector<std::size_t> held;
  for (std::int64_t round = 0; next < all.size() && window.state() != State::kOver; ++round) {
    const std::int64_t now = all.front().start + round * 100 * kMs;
    std::vector<std::size_t> places;
    for (; next < all.size() && all[next].end <= now - delivery.late; ++next) places.push_back(next);
    const auto third = static_cast<std::ptrdiff_t>(places.size() / 3);
    const bool hold = delivery.held && round % 3 == 0;
    std::vector<std::size_t> holding(places.begin() + third, places.begin() + (hold ? 2 * third : third));
    if (hold) places.erase(places.begin() + third, places.begin() + 2 * third);
    places.insert(places.end(), held.begin(), held.end());
    held = std::move(holding);
    give(work, places, window);
    if (window.state() == State::kOpen) played.recorded += places.size();
    const bool watched = window.state() == State::kWatching;
    window.turn(begin + std::chrono::milliseconds(round * 100));
    if (watched && window.state() == State::kOpen) played.opened = next;
  }
  played.state = window.state();
  return played;
}

// Iterations that had passed in whole when the window opened, setup not counted.
std::size_t iterations_before(const Work& work, const Played& played) {
  return static_cast<std::size_t>(
      std::count_if(work.operations.begin(),
                    work.operations.begin() + static_cast<std::ptrdiff_t>(played.opened), ends_iteration));
}

Config wanting(std::uint64_t iterations) {
  Config config;
  config.steady = true;
  config.iterations = iterations;
  return config;
}

void it_opens_early_and_closes_in_time(const std::string& path, std::size_t of_iteration,
                                       std::size_t latest) {
  const Work work = prolonged(path, 200);
  CHECK(work.iteration == of_iteration);
  for (const Delivery delivery : {Delivery{0, false}, Delivery{150 * kMs, false}, Delivery{50 * kMs, true}}) {
    const Played played = play(work, wanting(20), delivery);
    const std::size_t before = iterations_before(work, played);
    std::printf("%s: opened after %zu iterations, %zu operations recorded\n", path.c_str(), before,
                played.recorded);
    CHECK(played.state == State::kOver);
    CHECK(before >= 5 && before <= latest);
    CHECK(played.recorded >= 20 * work.iteration);
  }
}

void setup_alone_is_no_iteration(const std::string& path) {
  Work work = prolonged(path, 0);
  const auto first = std::ranges::find_if(work.operations, ends_iteration);
  work.operations.erase(first, work.operations.end());
  const Played played = play(work, wanting(0), {});
  CHECK(played.state == State::kWatching);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::string folder = words[1];
  for (const char* name : {"/h200_torch_train.aiprof", "/h200_torch_decode.aiprof"}) {
    setup_alone_is_no_iteration(folder + name);
  }
  it_opens_early_and_closes_in_time(folder + "/h200_torch_decode.aiprof", 152, 110);
  it_opens_early_and_closes_in_time(folder + "/h200_torch_train.aiprof", 414, 20);
  return test::verdict();
}
