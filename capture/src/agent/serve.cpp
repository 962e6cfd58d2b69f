#include "agent/serve.h"

#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "agent/settings.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/recorder.h"
#include "core/say.h"
#include "cupti/cuda_source.h"

namespace ai_prof::agent {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kTurn = 50'000'000;          // how often what can't wake us is looked at
constexpr std::int64_t kGoPatience = 60 * kSecond;  // where no line tells that the attacher is gone
constexpr milliseconds kStopPatience{60'000};       // the disk may be slow
constexpr std::int64_t kForEver = INT64_MAX;

// One capture at a time.
std::atomic<bool> g_busy{false};
std::atomic<Control*> g_control{nullptr};

void write_message(Control& control, std::string_view text) noexcept {
  const std::size_t bytes = std::min(text.size(), sizeof control.message - 1);
  std::memcpy(control.message, text.data(), bytes);
  control.message[bytes] = '\0';
}

// The target's stderr is not ours: the attacher shows this.
void tell(std::string_view problem) noexcept {
  Control* control = g_control.load();
  if (control != nullptr) write_message(*control, problem);
}

void set_state(Control& control, State state) {
  control.state.store(state, std::memory_order_release);
}

// For `ns`, or a turn if that is less.
void rest(std::int64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(ns, kTurn)));
}

bool stop_asked(const Control& control) {
  return control.request.load(std::memory_order_acquire) == kStop;
}

// False when the attacher thought better of it or went away.
bool wait_for_go(Control& control, int line) {
  const auto waits = [&] { return control.request.load(std::memory_order_acquire) == kWait; };
  const std::int64_t last = monotonic_ns() + kGoPatience;
  while (waits()) {
    if (is_cut(line) && waits()) return false;  // in this order: it lets go when it has said go
    if (monotonic_ns() > last) return false;
    rest(kTurn);
  }
  while (!stop_asked(control)) {
    const std::int64_t left = control.go_at_ns.load() - monotonic_ns();
    if (left <= 0) return true;
    rest(left);
  }
  return false;
}

// The driver is there and initialized. Never initializes it.
bool cuda_is_up() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  using Count = int (*)(int*);
  const auto count = reinterpret_cast<Count>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  const bool up = count != nullptr && count(&devices) == 0;
  dlclose(driver);
  return up;
}

bool wait_for_cuda(Control& control, std::int64_t until) {
  while (!cuda_is_up()) {
    set_state(control, kAwaitsCuda);
    if (stop_asked(control) || monotonic_ns() >= until) return false;
    rest(kTurn);
  }
  return true;
}

State record(Control& control, Config& config, std::int64_t until) {
  if (until != kForEver) {
    config.duration_s = std::max(1e-3, static_cast<double>(until - monotonic_ns()) / 1e9);
  }
  Recorder* recorder = cupti::CudaSource::start(config);
  if (recorder == nullptr) return kFailed;
  set_state(control, kRecording);
  while (!stop_asked(control) && !recorder->closed()) rest(kTurn);
  // Where the window ended by itself this only waits for the file.
  return recorder->stop(format::kEndStop, kStopPatience) ? kEnded : kFailed;
}

// What the attacher opened, as the recorder wants it. False, said, when it can't be had.
bool take_passed(Config& config, const Passed& passed) {
  if (passed.cupti >= 0) config.cupti_passed = "/proc/self/fd/" + std::to_string(passed.cupti);
  if (passed.output < 0) return true;
  config.descriptor = fcntl(passed.output, F_DUPFD_CLOEXEC, 3);  // the recorder closes it
  if (config.descriptor < 0) say("the program has no file descriptor left");
  return config.descriptor >= 0;
}

State serve(Control& control, const Passed& passed) {
  std::string problem;
  std::optional<Config> parsed = parse_settings({control.settings, control.settings_bytes}, problem);
  if (!parsed) {
    say(problem);
    return kFailed;
  }
  if (cupti::CudaSource::recording()) {
    say("this process is already captured: it was started with AI_PROF_ENABLE");
    say_to(nullptr);  // its own
    return kFailed;
  }
  Config& config = *parsed;
  config.attached = true;
  const bool stood_by = passed.output < 0;
  if (stood_by && config.cupti.empty()) config.cupti = ai_prof::config().cupti;
  set_state(control, kReady);
  if (!wait_for_go(control, passed.line)) return kNoCuda;
  const auto window = static_cast<std::int64_t>(config.duration_s * 1e9);
  const std::int64_t until = window > 0 ? control.go_at_ns.load() + window : kForEver;
  if (!wait_for_cuda(control, until)) return kNoCuda;
  return take_passed(config, passed) ? record(control, config, until) : kFailed;
}

}  // namespace

void fail(Control& control, std::string_view why) noexcept {
  write_message(control, why);
  set_state(control, kFailed);
}

bool claim() noexcept {
  return !g_busy.exchange(true);
}

void serve_claimed(Control& control, const Passed& passed) noexcept {
  g_control.store(&control);
  say_to(tell);
  State state = kFailed;
  try {
    state = serve(control, passed);
  } catch (const std::exception& error) {
    say(error.what());
  }
  g_busy.store(false);
  set_state(control, state);
}

void release() noexcept {
  g_busy.store(false);
}

}  // namespace ai_prof::agent
