#include "agent/serve.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

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
#include "core/explain.h"
#include "core/recorder.h"
#include "core/say.h"
#include "cupti/cuda_source.h"

namespace ai_prof::agent {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kTurn = 50'000'000;     // how often what can't wake us is looked at
constexpr milliseconds kStopPatience{60'000};  // the disk may be slow
constexpr std::int64_t kForEver = INT64_MAX;

// The process that is captured, one capture at a time; 0 for none. A forked child is not its parent.
std::atomic<pid_t> g_busy{0};
std::atomic<Control*> g_control{nullptr};

void write_message(Control& control, std::string_view text) noexcept {
  const std::size_t bytes = std::min(text.size(), sizeof control.message - 1);
  std::memcpy(control.message, text.data(), bytes);
  control.message[bytes] = '\0';
}

// The target's stderr is not ours: the attacher shows this. Takes the page away meanwhile, rather than a lock
// that would stay held in a child that is forked now.
void tell(std::string_view problem) noexcept {
  Control* control = g_control.exchange(nullptr);
  if (control == nullptr) return;
  write_message(*control, problem);
  g_control.store(control);
}

// Nothing is told in `control` any more.
void stop_telling(Control& control) noexcept {
  for (Control* told = &control; !g_control.compare_exchange_weak(told, nullptr); told = &control) {
    std::this_thread::yield();
  }
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

// The attacher is gone, whatever ended it: it holds the page's lock while it looks after the capture. So is
// one whose page the program has closed.
bool is_alone(const OwnDescriptor& page) {
  if (!page.still_ours()) return true;
  if (flock(page.get(), LOCK_SH | LOCK_NB) != 0) return false;
  flock(page.get(), LOCK_UN);
  return true;
}

// A capture with a deadline needs nobody; one without is not to go on for ever.
bool is_to_end(const Control& control, const OwnDescriptor& page, std::int64_t until) {
  return stop_asked(control) || (until == kForEver && is_alone(page));
}

// False when the attacher thought better of it or went away.
bool wait_for_go(Control& control, const OwnDescriptor& page) {
  const auto waits = [&] { return control.request.load(std::memory_order_acquire) == kWait; };
  while (waits()) {
    if (is_alone(page) && waits()) return false;  // in this order: it may say go and end
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

bool wait_for_cuda(Control& control, const OwnDescriptor& page, std::int64_t until) {
  while (!cuda_is_up()) {
    set_state(control, kAwaitsCuda);
    if (is_to_end(control, page, until) || monotonic_ns() >= until) return false;
    rest(kTurn);
  }
  return true;
}

State record(Control& control, const OwnDescriptor& page, Config& config, std::int64_t until) {
  if (until != kForEver) {
    config.duration_s = std::max(1e-3, static_cast<double>(until - monotonic_ns()) / 1e9);
  }
  Recorder* recorder = cupti::CudaSource::start(config);
  if (recorder == nullptr) return kFailed;
  set_state(control, kRecording);
  while (!is_to_end(control, page, until) && !recorder->closed()) rest(kTurn);
  // Where the window ended by itself this only waits for the file.
  return recorder->stop(format::kEndStop, kStopPatience) ? kEnded : kFailed;
}

// What the attacher opened, as the recorder wants it. False, said, when it can't be had.
bool take_passed(Config& config, const Passed& passed) {
  if (passed.cupti.get() >= 0) config.cupti_passed = "/proc/self/fd/" + std::to_string(passed.cupti.get());
  if (passed.output.get() < 0) return true;
  config.descriptor = fcntl(passed.output.get(), F_DUPFD_CLOEXEC, 3);  // the recorder closes it
  if (config.descriptor < 0) say("the program has no file descriptor left");
  return config.descriptor >= 0;
}

State serve(Control& control, const OwnDescriptor& page, const Passed& passed) {
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
  const bool stood_by = passed.output.get() < 0;
  if (stood_by && config.cupti.empty()) config.cupti = ai_prof::config().cupti;
  set_state(control, kReady);
  if (!wait_for_go(control, page)) return kNoCuda;
  const auto window = static_cast<std::int64_t>(config.duration_s * 1e9);
  const std::int64_t until = window > 0 ? control.go_at_ns.load() + window : kForEver;
  if (!wait_for_cuda(control, page, until)) return kNoCuda;
  return take_passed(config, passed) ? record(control, page, config, until) : kFailed;
}

}  // namespace

void fail(Control& control, std::string_view why) noexcept {
  write_message(control, why);
  set_state(control, kFailed);
}

bool claim(Control& control) noexcept {
  const pid_t self = getpid();
  if (g_busy.exchange(self) != self) return true;
  fail(control, "another capture of this process is under way");
  return false;
}

void release() noexcept {
  g_busy.store(0);
}

void serve_claimed(Control& control, const OwnDescriptor& page, const Passed& passed) noexcept {
  g_control.store(&control);
  say_to(tell);
  State state = kFailed;
  try {
    state = serve(control, page, passed);
  } catch (const std::exception& error) {
    say(explain(error));
  }
  stop_telling(control);
  release();
  set_state(control, state);
}

}  // namespace ai_prof::agent
