// The way in of an attacher: ai_prof_attach runs on a borrowed thread of the target and does no more there
// than start the agent's own.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "agent/control.h"
#include "agent/descriptors.h"
#include "agent/settings.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/recorder.h"
#include "core/say.h"
#include "core/signals_blocked.h"
#include "cupti/cuda_source.h"

namespace ai_prof::agent {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kTurn = 50'000'000;          // how often what can't wake us is looked at
constexpr std::int64_t kGoPatience = 60 * kSecond;  // an attacher that is gone never says go
constexpr milliseconds kStopPatience{60'000};       // a flush may wait for a long kernel
constexpr std::int64_t kForEver = INT64_MAX;

// One capture at a time.
std::atomic<bool> g_busy{false};
std::atomic<Control*> g_control{nullptr};

// The target's stderr is not ours: the attacher shows this.
void tell(std::string_view problem) noexcept {
  Control* control = g_control.load();
  if (control == nullptr) return;
  const std::size_t bytes = std::min(problem.size(), sizeof control->message - 1);
  std::memcpy(control->message, problem.data(), bytes);
  control->message[bytes] = '\0';
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
bool wait_for_go(Control& control) {
  const std::int64_t last = monotonic_ns() + kGoPatience;
  while (control.request.load(std::memory_order_acquire) == kWait) {
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

State record(Control& control, Config& config, int output, std::int64_t until) {
  config.descriptor = fcntl(output, F_DUPFD_CLOEXEC, 3);  // the recorder closes it
  if (config.descriptor < 0) {
    say("the program has no file descriptor left");
    return kFailed;
  }
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
  if (passed.cupti >= 0) config.cupti_passed = "/proc/self/fd/" + std::to_string(passed.cupti);
  set_state(control, kReady);
  if (!wait_for_go(control)) return kNoCuda;
  const auto window = static_cast<std::int64_t>(config.duration_s * 1e9);
  const std::int64_t until = window > 0 ? control.go_at_ns.load() + window : kForEver;
  if (!wait_for_cuda(control, until)) return kNoCuda;
  return record(control, config, passed.output, until);
}

// On the agent's thread.
void run(Control& control, int control_descriptor, int socket) noexcept {
  const Passed passed = receive(socket);
  close(socket);
  g_control.store(&control);
  say_to(tell);
  State state = kFailed;
  try {
    if (passed.output >= 0) {
      state = serve(control, passed);
    } else {
      say("the attacher passed no file to record into");
    }
  } catch (const std::exception& error) {
    say(error.what());
  }
  if (passed.output >= 0) close(passed.output);
  if (passed.cupti >= 0) close(passed.cupti);
  g_busy.store(false);
  set_state(control, state);
  close(control_descriptor);
  // The page stays mapped: the library may still have something to say.
}

}  // namespace
}  // namespace ai_prof::agent

// Takes over all three descriptors. The answer comes through the control block. `library` is what this
// library was loaded from, -1 when it was there already.
extern "C" __attribute__((visibility("default"))) int ai_prof_attach(int control_descriptor, int socket,
                                                                     int library) noexcept {
  using namespace ai_prof::agent;
  if (library >= 0) close(library);
  void* page = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, control_descriptor, 0);
  auto* control = static_cast<Control*>(page);
  const bool known =
      page != MAP_FAILED && std::memcmp(control->magic, kControlMagic, sizeof kControlMagic) == 0;
  if (known) control->pid.store(getpid());
  if (known && !g_busy.exchange(true)) {
    try {
      const ai_prof::SignalsBlocked blocked;
      std::thread([=] { run(*control, control_descriptor, socket); }).detach();
      return 0;
    } catch (const std::exception&) {  // no thread; said by the state
      g_busy.store(false);
    }
  }
  if (known) control->state.store(kFailed);
  if (page != MAP_FAILED) munmap(page, sizeof(Control));
  close(socket);
  close(control_descriptor);
  return 1;
}
