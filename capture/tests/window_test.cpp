// When a capture's window opens and closes, on invented sequences of kernels and an invented clock.
#include "core/window.h"

#include <initializer_list>
#include <vector>

#include "check.h"

namespace {

using namespace ai_prof;
using std::chrono::milliseconds;
using State = Window::State;

constexpr std::int64_t kMs = 1'000'000;

// Plays kernels of one millisecond each, and turns the window every hundredth.
class Player {
 public:
  explicit Player(const Config& config) : config_(config), window(config_, now_) {}

  void play(std::initializer_list<std::uint32_t> names, std::uint32_t stream = 7) {
    for (const std::uint32_t name : names) {
      format::KernelRecord kernel{};
      kernel.start = time_;
      kernel.end = time_ += kMs;
      kernel.name = name;
      kernel.stream = stream;
      window.add(kernel);
      went_by();
    }
  }
  // A copy to the host, as of a loss that is printed.
  void read_back() {
    format::MemoryRecord copy{};
    copy.start = time_;
    copy.end = time_ += kMs;
    copy.stream = 7;
    copy.kind = format::kDeviceToHost;
    window.add(copy);
    went_by();
  }
  State state() const { return window.state(); }

 private:
  void went_by() {
    if (++played % 100 == 0) window.turn(now_ + milliseconds(time_ / kMs));
  }

  const Config config_;
  Window::Clock::time_point now_;
  std::int64_t time_ = kMs;

 public:
  Window window;
  int played = 0;
};

Config steady(std::uint64_t iterations = 0) {
  Config config;
  config.steady = true;
  config.iterations = iterations;
  return config;
}

void periods() {
  const auto period = [](std::vector<std::uint64_t> tokens) { return period_at_end(tokens); };
  CHECK(period({}) == 0);
  CHECK(period({1, 2, 3}) == 0);
  CHECK(period({1, 1, 1}) == 1);
  CHECK(period({1, 2, 1, 2}) == 0);
  CHECK(period({9, 9, 9, 9, 1, 2, 1, 2, 1, 2}) == 2);
  CHECK(period({1, 2, 2, 1, 2, 2, 1, 2, 2}) == 3);  // not the three 2s that are never in a row
  CHECK(period({2, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1}) == 3);
}

void without_wishes_it_is_open() {
  CHECK(Player(Config{}).state() == State::kOpen);
}

void delay_and_duration() {
  Config config;
  config.delay_s = 2;
  config.duration_s = 3;
  const Window::Clock::time_point start{};
  Window window(config, start);
  CHECK(window.state() == State::kBefore);
  CHECK(window.problem().find("AI_PROF_DELAY") != std::string::npos);
  CHECK(window.turn(start + milliseconds(1999)) == State::kBefore);
  CHECK(window.turn(start + milliseconds(2000)) == State::kOpen);
  CHECK(window.turn(start + milliseconds(4999)) == State::kOpen);
  CHECK(window.turn(start + milliseconds(5000)) == State::kOver);
  CHECK(window.problem().empty());
}

void what_the_driver_took_to_begin_is_not_of_the_duration() {
  Config config;
  config.duration_s = 3;
  const Window::Clock::time_point start{};
  Window window(config, start);
  window.begun(start + milliseconds(10'000));
  CHECK(window.turn(start + milliseconds(12'999)) == State::kOpen);
  CHECK(window.turn(start + milliseconds(13'000)) == State::kOver);
}

void it_opens_when_iterations_have_settled() {
  Player player(steady());
  for (std::uint32_t name = 1000; name < 2000; ++name) player.play({name});  // compilation: every kernel once
  CHECK(player.state() == State::kWatching);
  for (int i = 0; i < 100; ++i) player.play({1, 2, 3, 2, 4});
  CHECK(player.state() == State::kWatching);
  for (int i = 0; i < 250; ++i) player.play({1, 2, 3, 2, 4});
  CHECK(player.state() == State::kOpen);
}

void it_opens_although_some_iterations_log() {
  Player player(steady());
  for (int i = 0; i < 400; ++i) {
    player.play({1, 2, 3, 4, 5, 6});
    if (i % 10 == 9) player.play({70, 71, 72});
  }
  CHECK(player.state() == State::kOpen);
}

void initialization_and_autotuning_are_no_iterations() {
  Player player(steady());
  for (std::uint32_t variant = 0; variant < 20; ++variant) {
    for (int i = 0; i < 60; ++i) player.play({100, 200 + variant});  // a cache flush and what is measured
  }
  CHECK(player.state() == State::kWatching);
  for (std::uint32_t name = 1; name < 3000; ++name) player.play({name * 7919 % 1000});
  CHECK(player.state() == State::kWatching);
  CHECK(player.window.problem().find("AI_PROF_STEADY") != std::string::npos);
}

// What meets the host once in many kernels is an iteration, and need not hold for long.
void iterations_that_read_back_settle_soon() {
  Player player(steady());
  int iterations = 0;
  for (; iterations < 100 && player.state() == State::kWatching; ++iterations) {
    player.play({1, 2, 3, 2, 4, 5, 6, 7, 8, 9});
    player.read_back();
  }
  CHECK(player.state() == State::kOpen);
  CHECK(iterations >= 5 && iterations <= 30);
}

// Layers repeat before iterations do.
void layers_are_no_iterations() {
  Player player(steady(5));
  const auto iterate = [&] {
    player.play({100, 101});
    for (int layer = 0; layer < 12; ++layer) player.play({1, 2, 3, 2, 4, 5, 6, 7, 8, 9});
    player.play({102, 103, 104});
    player.read_back();
  };
  while (player.state() == State::kWatching) iterate();
  const int opened = player.played;
  while (player.state() == State::kOpen) iterate();
  CHECK(player.played - opened >= 5 * 126);
}

// Loading weights copies and converts by turns.
void loading_is_no_iteration() {
  Player player(steady());
  for (int layer = 0; layer < 90; ++layer) {
    for (const std::uint32_t name : {1, 2, 1, 3}) {
      player.read_back();
      player.play({name});
    }
  }
  CHECK(player.state() == State::kWatching);
}

// The iterations of a later phase count on, or the window would never close.
void another_phase_counts_on() {
  Player player(steady(500));
  while (player.state() == State::kWatching) player.play({1, 2, 3, 4});
  while (player.state() == State::kOpen && player.played < 10'000) player.play({5, 6, 7});
  CHECK(player.state() == State::kOver);
}

void the_busiest_stream_decides() {
  Player player(steady(3));
  for (int i = 0; i < 400; ++i) {
    player.play({1, 2, 3, 4});
    player.play({9}, 13);  // copies of buckets repeat faster than iterations
    player.play({5, 6, 7, 8});
    player.play({9}, 13);
    if (player.state() == State::kOpen) break;
  }
  const int opened = player.played;
  while (player.state() == State::kOpen) {
    player.play({1, 2, 3, 4});
    player.play({9, 9}, 13);
    player.play({5, 6, 7, 8});
  }
  CHECK(player.played - opened >= 3 * 10 && player.played - opened <= 3 * 10 + 200);
}

void it_closes_after_the_iterations_asked_for() {
  for (const std::uint64_t wanted : {1, 50, 400}) {
    Player player(steady(wanted));
    while (player.state() == State::kWatching) player.play({1, 2, 2});
    const int opened = player.played;
    while (player.state() == State::kOpen) player.play({1, 2, 2});
    const int kernels = player.played - opened;
    const int least = static_cast<int>(wanted) * 3;
    CHECK(kernels >= least && kernels <= least + 110);
  }
}

void iterations_without_steady_count_from_the_start() {
  Config config;
  config.iterations = 1000;
  Player player(config);
  CHECK(player.state() == State::kOpen);
  while (player.state() == State::kOpen && player.played < 10'000) player.play({1, 2, 3});
  CHECK(player.state() == State::kOver && player.played >= 3000 && player.played <= 3600);
  Player none(config);
  none.play({1, 2, 3});
  CHECK(none.window.problem().find("AI_PROF_ITERATIONS") != std::string::npos);
}

}  // namespace

int main() {
  periods();
  without_wishes_it_is_open();
  delay_and_duration();
  what_the_driver_took_to_begin_is_not_of_the_duration();
  it_opens_when_iterations_have_settled();
  it_opens_although_some_iterations_log();
  initialization_and_autotuning_are_no_iterations();
  iterations_that_read_back_settle_soon();
  layers_are_no_iterations();
  loading_is_no_iteration();
  another_phase_counts_on();
  the_busiest_stream_decides();
  it_closes_after_the_iterations_asked_for();
  iterations_without_steady_count_from_the_start();
  return ai_prof::test::verdict();
}
