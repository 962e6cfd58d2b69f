// What a capture keeps and what it counts: its losses, and its window. Against a mock libcupti.
// Usage: as cupti_test.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "check.h"
#include "emit.h"
#include "program.h"

namespace {

using namespace ai_prof;
using namespace ai_prof::test;

void losses_are_counted(const Parts& parts) {
  Program program;
  program.prepare = [](MockCupti& mock) { mock.dropped = 17; };
  program.body = [](const Mock& mock) {
    const std::uint64_t now = mock.now();
    mock.emit(kernel("k", now, now + 1, 1));
    mock.emit(kernel("k", now, now, 2));      // valid: adds no length
    mock.emit(kernel("k", 0, 0, 3));          // no timestamp collected
    mock.emit(kernel("k", now, 0, 4));        // still running
    mock.emit(kernel("k", now, now - 1, 5));  // the clock went back
  };
  const Outcome outcome = run(parts, program);
  const format::LossRecord loss = outcome.only().loss(format::kKernel);
  CHECK(loss.captured == 2 && loss.invalid_time == 3 && loss.cupti_dropped == 17 && loss.budget_dropped == 0);
  CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == 2);
}

// At the end the driver gives out work in flight, which has no times yet. The 4th was spoiled: its stream has
// ended later work.
void work_in_flight_at_the_end_is_no_loss(const Parts& parts) {
  Program program;
  program.prepare = [](MockCupti& mock) { mock.last_record_runs = true; };
  program.body = [](const Mock& mock) {
    const std::uint64_t now = mock.now();
    for (std::uint32_t i = 1; i <= 3; ++i) mock.emit(kernel("k", now + i, now + i + 1, i));
    mock.emit(kernel("k", 0, 0, 4));
    mock.emit(kernel("k", now + 5, now + 6, 5));
    for (std::uint32_t i = 6; i <= 12; ++i) mock.emit(kernel("k", 0, 0, i));
    CUpti_ActivityMemcpy5 running = copy(CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, now, 64);
    running.end = 0;
    mock.emit(running);
    // The host waits for it.
    auto waiting =
        call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020, now, 13);
    waiting.end = 0;
    mock.emit(waiting);
    if (std::getenv("AI_PROF_DURATION") != nullptr) sleep_ms(1500);
  };
  for (const format::EndReason reason : {format::kEndExit, format::kEndWindow}) {
    if (reason == format::kEndWindow) program.environment["AI_PROF_DURATION"] = "0.5";
    const Outcome outcome = run(parts, program);
    CHECK(ended(outcome, reason));
    CHECK(outcome.errors.empty());
    const format::LossRecord kernels = outcome.only().loss(format::kKernel);
    CHECK(kernels.captured == 4 && kernels.invalid_time == 1 && kernels.unfinished == 7);
    const format::LossRecord copies = outcome.only().loss(format::kMemcpy);
    CHECK(copies.captured == 0 && copies.invalid_time == 0 && copies.unfinished == 1);
    const format::LossRecord waits = outcome.only().loss(format::kSync);
    CHECK(waits.captured == 0 && waits.invalid_time == 0 && waits.unfinished == 1);
  }
}

void the_bound_holds_and_is_counted(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_BUFFER_MB"] = "5";
  program.prepare = [](MockCupti& mock) { mock.flush_takes_ms = 1000; };
  constexpr std::uint32_t kEmitted = 100'000;
  program.body = [](const Mock& mock) {
    const std::uint64_t now = mock.now();
    mock.emit(kernel("k", now, now + 1, 1));
    sleep_ms(400);  // the reader now sits in its flush
    for (std::uint32_t i = 1; i < kEmitted; ++i) mock.emit(kernel("k", now + i, now + i + 1, i));
  };
  const format::LossRecord loss = run(parts, program).only().loss(format::kKernel);
  CHECK(loss.budget_dropped > 0 && loss.captured > 0);
  CHECK(loss.captured + loss.budget_dropped == kEmitted);
}

void the_window_bounds_the_capture(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_DELAY"] = "0.5";
  program.environment["AI_PROF_DURATION"] = "1";
  program.environment["AI_PROF_LEVEL"] = "api";
  program.body = [](const Mock& mock) {
    mock.control->context_made = true;
    mock.emit(kernel("before", mock.now(), 1));
    sleep_ms(1000);
    mock.emit(
        call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, mock.now(), 2));
    mock.emit(kernel("inside", mock.now(), 2));
    sleep_ms(1500);
    mock.emit(kernel("after", mock.now(), 3));
    CHECK(!mock.control->subscribed);
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndWindow));
  const auto kernels = outcome.only().records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() == 1 && outcome.only().name(kernels.at(0).name) == "inside");
  CHECK(outcome.only().records<format::CallRecord>(format::kCall).size() == 1);
}

// A setup of other kernels, then iterations of three: the file begins after the setup and holds what was
// asked for, and the program goes on unrecorded.
void iterations_that_have_settled_are_recorded(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_STEADY"] = "1";
  program.environment["AI_PROF_ITERATIONS"] = "20";
  program.environment["AI_PROF_LEVEL"] = "api";
  program.body = [](const Mock& mock) {
    std::uint32_t correlation = 0;
    const auto launch = [&](const char* name) {
      const std::uint64_t now = mock.now();
      mock.emit(call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, now,
                     ++correlation));
      mock.emit(kernel(name, now, now + 1, correlation));
    };
    mock.emit(context(kContextId));
    for (int i = 0; i < 50; ++i) launch("setup");
    for (int i = 0; i < 400; ++i) {
      for (const char* name : {"forward", "backward", "step"}) launch(name);
      if (!mock.control->subscribed) break;
      sleep_ms(10);
    }
    CHECK(!mock.control->subscribed);
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndWindow));
  CHECK(outcome.errors.empty());
  const CaptureFile& file = outcome.only();
  const auto kernels = file.records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() >= 3 * 20 && kernels.size() <= 3 * 100);
  // What settles is five whole iterations at the least; window_test holds it to the time.
  for (const auto& one : kernels) CHECK(file.name(one.name) != "setup" && one.correlation > 50 + 3 * 5);
  CHECK(file.records<format::CallRecord>(format::kCall).size() <= kernels.size() + 3);
}

void iterations_that_never_settle_are_an_error(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_STEADY"] = "1";
  program.body = [](const Mock& mock) { mock.emit(kernel("k", mock.now(), 1)); };
  const Outcome outcome = run(parts, program);
  CHECK(outcome.errors.find("no iterations settled") != std::string::npos);
  CHECK(outcome.only().says("no iterations settled"));
  CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).empty());
}

// A program that goes on after its window of half a second.
Program windowed() {
  Program program;
  program.environment = {{"AI_PROF_DURATION", "0.5"}, {"AI_PROF_LEVEL", "api"}};
  return program;
}

bool comes(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) sleep_ms(10);
  return condition();
}

bool left(const Mock& mock) {
  return comes([&] { return !mock.control->subscribed; });
}

// NVML counts: the program's own initialization stays.
void what_nvml_holds_ends_with_the_window(const Parts& parts) {
  Program program = windowed();
  program.nvml = true;
  program.body = [&parts](const Mock& mock) {
    void* const nvml = dlopen(parts.nvml.c_str(), RTLD_NOW | RTLD_NOLOAD);
    CHECK(nvml != nullptr);
    const auto initialized = reinterpret_cast<int (*)()>(dlsym(nvml, "mock_nvml_initialized"));
    const auto initialize = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
    CHECK(initialize() == 0);
    mock.emit(kernel("k", mock.now(), 1));
    CHECK(comes([&] { return initialized() == 2; }));
    CHECK(comes([&] { return initialized() == 1; }));
    sleep_ms(500);
    CHECK(initialized() == 1);
  };
  CHECK(ended(run(parts, program), format::kEndWindow));
}

int g_given_back = 0;
alignas(8) std::uint8_t g_later_buffer[4096];

// What a profiler of the program's own does, later.
void a_later_client_records(const Mock& mock, void* cupti) {
  const auto call = [&]<class Function>(Function*, const char* name, auto... arguments) {
    const auto function = reinterpret_cast<Function*>(dlsym(cupti, name));
    CHECK(function(arguments...) == CUPTI_SUCCESS);
  };
#define CALL(name, ...) call(static_cast<decltype(::name)*>(nullptr), #name, __VA_ARGS__)
  CUpti_SubscriberHandle subscriber = nullptr;
  const CUpti_BuffersCallbackRequestFunc requested = [](std::uint8_t** buffer, std::size_t* bytes,
                                                        std::size_t* most) {
    *buffer = g_later_buffer;
    *bytes = sizeof g_later_buffer;
    *most = 0;
  };
  const CUpti_BuffersCallbackCompleteFunc completed = [](CUcontext, std::uint32_t, std::uint8_t*, std::size_t,
                                                         std::size_t valid) {
    if (valid != 0) ++g_given_back;
  };
  CALL(cuptiSubscribe, &subscriber, nullptr, nullptr);
  CALL(cuptiActivityRegisterCallbacks, requested, completed);
  CALL(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  mock.emit(kernel("of the program's own profiler", mock.now(), 2));
  CALL(cuptiActivityFlushAll, std::uint32_t{0});
  CALL(cuptiUnsubscribe, subscriber);
#undef CALL
  CHECK(g_given_back == 1);
}

void the_end_of_a_window_lets_go_of_cupti(const Parts& parts) {
  for (const bool own : {true, false}) {
    Program program = windowed();
    program.environment["AI_PROF_DURATION"] = "1.2";  // CUDA has long come up
    program.own_cupti = own;
    program.body = [&](const Mock& mock) {
      mock.emit(kernel("inside", mock.now(), 1));
      CHECK(left(mock));
      const std::string calls = mock.calls();
      CHECK(calls.ends_with("disable flush dropped force dropped timestamp unsubscribe "));
      sleep_ms(1500);  // longer than anything that the library does now and then
      CHECK(mock.calls() == calls);
      CHECK(mock.control->finalized == 0);
      CHECK(mock.control->left_hooked == 0);
      a_later_client_records(mock, dlopen(parts.cupti.c_str(), RTLD_NOW | RTLD_NOLOAD));
    };
    const Outcome outcome = run(parts, program);
    CHECK(ended(outcome, format::kEndWindow));
    CHECK(outcome.errors.empty());
    CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == 1);
  }
}

void work_in_flight_is_waited_for(const Parts& parts) {
  Program program = windowed();
  program.environment["AI_PROF_DURATION"] = "1.2";
  program.body = [](const Mock& mock) {
    const std::uint64_t now = mock.now();
    mock.emit(kernel("inside", now, now + 1, 1));
    CHECK(comes([&] { return mock.control->flushes > 1; }));
    mock.control->last_record_runs = true;
    mock.emit(kernel("in flight", now, now + 1, 2));
    const std::size_t begun = mock.calls().size();
    CHECK(comes([&] { return mock.calls().find("disable", begun) != std::string::npos; }));
    sleep_ms(200);
    mock.control->last_record_runs = false;
    CHECK(left(mock));
    CHECK(mock.control->kept == 0);
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndWindow));
  CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == 2);
}

// Records come faster than they are read, for longer than the test waits.
void a_window_ends_under_any_load(const Parts& parts) {
  Program program = windowed();
  program.prepare = [](MockCupti& mock) { mock.next_record_takes_ms = 1; };
  program.body = [](const Mock& mock) {
    for (std::uint32_t i = 1; i < 20'000 && mock.control->subscribed; ++i) {
      mock.emit(kernel("k", mock.now(), i));
      if (i % 8 == 0) sleep_ms(4);
    }
    CHECK(!mock.control->subscribed);
  };
  CHECK(ended(run(parts, program), format::kEndWindow));
}

MockCupti* g_at_exit = nullptr;

void an_exit_leaves_cupti_as_it_is(const Parts& parts) {
  Program program;
  program.prepare = [](MockCupti& mock) {
    g_at_exit = &mock;
    std::atexit([] {  // after the library's own
      if (!g_at_exit->subscribed || g_at_exit->finalized != 0) _exit(1);
    });
  };
  program.body = [](const Mock& mock) { mock.emit(kernel("k", mock.now(), 1)); };
  CHECK(ended(run(parts, program), format::kEndExit));
}

void an_unsubscribe_that_hangs_costs_no_record(const Parts& parts) {
  Program program = windowed();
  program.body = [](const Mock& mock) {
    mock.control->unsubscribe_takes_ms = 60'000;
    for (std::uint32_t i = 1; i <= 100; ++i) mock.emit(kernel("k", mock.now(), i));
    CHECK(comes([&] { return mock.calls().ends_with("unsubscribe "); }));
  };
  const Outcome outcome = run(parts, program);
  CHECK(outcome.status == 0);
  const CaptureFile& file = outcome.only();
  CHECK(file.records<format::KernelRecord>(format::kKernel).size() == 100);
  CHECK(file.loss(format::kKernel).captured == 100);
  CHECK(ended(outcome, format::kEndWindow));
}

// A program that loads its data for long before it uses CUDA.
void a_window_lasts_from_the_first_work_on(const Parts& parts) {
  for (const char* delay : {"0", "0.3"}) {
    Program program = windowed();
    program.environment["AI_PROF_DELAY"] = delay;
    program.body = [](const Mock& mock) {
      sleep_ms(1500);
      CHECK(mock.control->subscribed);
      mock.emit(kernel("inside", mock.now(), 1));
      CHECK(left(mock));
      CHECK(mock.control->left_too_early == 0);
    };
    const Outcome outcome = run(parts, program);
    CHECK(ended(outcome, format::kEndWindow));
    CHECK(outcome.errors.empty());
    CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == 1);
  }
}

// The first buffer is asked for while the context is made.
void cupti_is_not_left_while_cuda_comes_up(const Parts& parts) {
  Program program = windowed();
  program.environment["AI_PROF_DURATION"] = "0.1";
  program.body = [](const Mock& mock) {
    const auto before = std::chrono::steady_clock::now();
    mock.emit(context(kContextId));
    CHECK(left(mock));
    CHECK(std::chrono::steady_clock::now() - before >= std::chrono::seconds(1));
  };
  CHECK(ended(run(parts, program), format::kEndWindow));
}

void a_program_without_a_file_is_not_left_too_early_either(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_OUTPUT"] = "/proc/none";
  program.body = [](const Mock& mock) {
    sleep_ms(300);
    CHECK(mock.control->left_too_early == 0);
    mock.emit(context(kContextId));
    CHECK(left(mock));
    CHECK(mock.control->left_too_early == 0);
  };
  const Outcome outcome = run(parts, program);
  CHECK(outcome.status == 0);
}

constexpr std::uint32_t kLaunches = 12;
constexpr std::uint32_t kKernels = 10;

// Launches of which all but the last two have a kernel. They are in the file when the device gets stuck.
void work_and_get_stuck(const Mock& mock) {
  for (std::uint32_t i = 1; i <= kLaunches; ++i) {
    const auto launch = CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000;
    mock.emit(call(CUPTI_ACTIVITY_KIND_RUNTIME, launch, mock.now(), i));
    if (i <= kKernels) mock.emit(kernel("k", mock.now(), i));
  }
  const unsigned flushed = mock.control->flushes;
  CHECK(comes([&] { return mock.control->flushes > flushed; }));
  mock.control->flush_stuck = true;
}

bool file_is_closed() {
  const std::filesystem::path folder = std::getenv("AI_PROF_OUTPUT");
  const auto file = std::filesystem::directory_iterator(folder);
  try {
    return !CaptureFile(file->path()).records<format::EndRecord>(format::kEnd).empty();
  } catch (const std::runtime_error&) {  // being written
    return false;
  }
}

void tells_of_a_stuck_flush(const Outcome& outcome) {
  CHECK(ended(outcome, format::kEndError));
  CHECK(outcome.errors.find("CUPTI's flush has not returned for") != std::string::npos);
  const CaptureFile& file = outcome.only();
  CHECK(file.says("s: the device may be stuck in a kernel; 2 launches have no kernel yet"));
  CHECK(!file.says("too old for the GPU"));
  CHECK(file.records<format::KernelRecord>(format::kKernel).size() == kKernels);
  CHECK(file.records<format::CallRecord>(format::kCall).size() == kLaunches);
  CHECK(file.loss(format::kKernel).unfinished == kLaunches - kKernels);
}

void a_flush_that_does_not_return_holds_no_window(const Parts& parts) {
  for (const bool returns : {true, false}) {
    Program program = windowed();
    program.environment["AI_PROF_DURATION"] = "2";
    program.body = [returns](const Mock& mock) {
      work_and_get_stuck(mock);
      CHECK(comes(file_is_closed));
      CHECK(mock.control->subscribed);
      CHECK(mock.control->called_while_stuck == 0);
      if (!returns) return;
      mock.control->flush_stuck = false;
      CHECK(left(mock));
      CHECK(mock.calls().ends_with("disable force unsubscribe "));
      CHECK(mock.control->finalized == 0);
    };
    tells_of_a_stuck_flush(run(parts, program));
  }
}

void a_flush_that_does_not_return_holds_no_exit(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_LEVEL"] = "api";
  program.body = work_and_get_stuck;
  tells_of_a_stuck_flush(run(parts, program));
}

void a_flush_that_returns_late_costs_nothing(const Parts& parts) {
  Program program;
  program.body = [](const Mock& mock) {
    work_and_get_stuck(mock);
    sleep_ms(1500);
    mock.emit(kernel("k", mock.now(), kKernels + 1));
    mock.control->flush_stuck = false;
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndExit));
  CHECK(outcome.errors.empty());
  CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == kKernels + 1);
}

#define CASE(name) {#name, name}
constexpr Case kCases[] = {
    CASE(losses_are_counted),
    CASE(work_in_flight_at_the_end_is_no_loss),
    CASE(the_bound_holds_and_is_counted),
    CASE(what_nvml_holds_ends_with_the_window),
    CASE(the_window_bounds_the_capture),
    CASE(iterations_that_have_settled_are_recorded),
    CASE(iterations_that_never_settle_are_an_error),
    CASE(the_end_of_a_window_lets_go_of_cupti),
    CASE(work_in_flight_is_waited_for),
    CASE(a_window_ends_under_any_load),
    CASE(an_exit_leaves_cupti_as_it_is),
    CASE(an_unsubscribe_that_hangs_costs_no_record),
    CASE(a_window_lasts_from_the_first_work_on),
    CASE(cupti_is_not_left_while_cuda_comes_up),
    CASE(a_program_without_a_file_is_not_left_too_early_either),
    CASE(a_flush_that_does_not_return_holds_no_window),
    CASE(a_flush_that_does_not_return_holds_no_exit),
    CASE(a_flush_that_returns_late_costs_nothing),
};
#undef CASE

}  // namespace

int main(int count, char** words) {
  return run_cases(kCases, count, words);
}
