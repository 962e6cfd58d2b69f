// The CUDA source, from InitializeInjection to the closed file, against a mock libcupti.
// Usage: cupti_test LIBRARY MOCK OLD_MOCK MOCK_CUDA MOCK_NVML [CASE...]; without a case, all of them.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "check.h"
#include "emit.h"
#include "program.h"

namespace {

using namespace ai_prof;
using namespace ai_prof::test;

void every_kind(const Parts& parts) {
  Program program;
  // As from a newer CUPTI, whose records are longer.
  program.prepare = [](MockCupti& mock) { mock.record_growth = 40; };
  program.body = [](const Mock& mock) {
    const std::uint64_t now = mock.now();
    mock.emit(context(kContextId));
    mock.emit(kernel("_Z6vecAddPKfS0_Pfi", now, now + 1500, 20));
    mock.emit(kernel("plain_name", now + 2000, now + 2000, 26));
    mock.emit(copy(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, now, 1 << 20));
    CUpti_ActivityMemcpy5 pageable = copy(CUPTI_ACTIVITY_MEMCPY_KIND_ATOH, now + 5000, 16);
    pageable.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    mock.emit(pageable);
    mock.emit(peer_copy(now));
    mock.emit(set(now));
    mock.emit(
        call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020, now, 24));
    mock.emit(call(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize, now, 25));
    mock.emit(overhead(now));
    mock.emit(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, now, "step"));
    mock.emit(marker(CUPTI_ACTIVITY_FLAG_MARKER_END, now + 700, nullptr));
    mock.emit(call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, now, 20));
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndExit));
  CHECK(outcome.errors.empty());
  const CaptureFile& file = outcome.only();

  const auto kernels = file.records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() == 2);
  const format::KernelRecord& first = kernels.at(0);
  CHECK(file.name(first.name) == "vecAdd(float const*, float const*, float*, int)");
  CHECK(file.name(kernels.at(1).name) == "plain_name");
  CHECK(first.end - first.start == 1500);
  CHECK(first.correlation == 20 && first.stream == 7 && first.context == kContextId && first.device == 0);
  CHECK(first.grid[0] == 11 && first.grid[1] == 12 && first.grid[2] == 13);
  CHECK(first.block[0] == 32 && first.block[1] == 2 && first.block[2] == 1);
  CHECK(first.registers == 40 && first.shared_bytes == 1536);
  CHECK(first.graph == 5 && first.graph_node == 0x500000001);

  const auto copies = file.records<format::MemoryRecord>(format::kMemcpy);
  CHECK(copies.size() == 3);
  CHECK(copies.at(0).kind == format::kHostToDevice && copies.at(0).bytes == 1 << 20);
  CHECK(copies.at(0).flags == format::kAsync && copies.at(0).correlation == 21);
  CHECK(copies.at(0).peer == format::kNone32);
  CHECK(copies.at(1).kind == format::kDeviceToHost &&
        copies.at(1).flags == (format::kAsync | format::kPageable));
  CHECK(copies.at(2).kind == format::kPeerToPeer && copies.at(2).peer == 3 && copies.at(2).correlation == 22);
  CHECK(file.records<format::MemoryRecord>(format::kMemset).at(0).kind == format::kSet);

  // By their calls, which alone of all calls level `kernel` asks for.
  const auto syncs = file.records<format::SyncRecord>(format::kSync);
  CHECK(syncs.size() == 2);
  CHECK(syncs.at(0).kind == format::kContextSynchronize && syncs.at(0).end - syncs.at(0).start == 2000);
  CHECK(syncs.at(0).thread == 4242 && syncs.at(0).correlation == 24);
  CHECK(syncs.at(0).device == format::kNone32 && syncs.at(0).stream == format::kNone32);
  CHECK(syncs.at(1).kind == format::kEventSynchronize);
  CHECK(file.records<format::OverheadRecord>(format::kOverhead).at(0).thread == 4242);
  const auto range = file.records<format::RangeRecord>(format::kRange).at(0);
  CHECK(file.name(range.name) == "step" && range.end - range.start == 700 && range.thread == 4242);
  CHECK(file.records<format::CallRecord>(format::kCall).empty());

  const auto devices = file.records<format::DeviceRecord>(format::kDevice);
  CHECK(devices.size() == 1);
  CHECK(file.name(devices.at(0).name) == "Mock H200" && devices.at(0).units == 132);
  CHECK(devices.at(0).uuid[0] == 1 && devices.at(0).uuid[15] == 16 && devices.at(0).kind == format::kCuda);
  CHECK(file.says("\"cupti_version\": 130001") && file.says("\"driver_version\": 13000"));
  CHECK(file.loss(format::kKernel).captured == 2);
}

void clocks_tie_to_the_host(const Parts& parts) {
  Program program;
  program.prepare = [](MockCupti& mock) {
    mock.clock_jump = 5'000'000'000;  // CUDA is not up
    mock.last_record_runs = true;
  };
  program.body = [](const Mock& mock) {
    mock.emit(context(kContextId));
    sleep_ms(1400);
    mock.control->clock_jump = 0;
    mock.control->last_record_runs = false;
    const std::uint64_t now = mock.now();
    mock.emit(kernel("k", now, now + 10, 1));
    sleep_ms(400);
  };
  const auto clocks = run(parts, program).only().records<format::ClockRecord>(format::kClock);
  CHECK(clocks.size() >= 2);
  for (const format::ClockRecord& clock : clocks) {
    CHECK(clock.clock == format::kHostClock);
    CHECK(std::abs(clock.source - clock.monotonic - 1'700'000'000'000'000'000) < 1'000'000);
    CHECK(clock.realtime > clock.monotonic);
  }
}

void calls_count_once(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_LEVEL"] = "api";
  program.body = [](const Mock& mock) {
    const std::uint64_t now = mock.now();
    const auto driver = CUPTI_ACTIVITY_KIND_DRIVER;
    const auto runtime = CUPTI_ACTIVITY_KIND_RUNTIME;
    for (std::uint32_t i = 1; i <= 100; ++i) {
      mock.emit(call(driver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, now + i, i));
      mock.emit(call(runtime, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, now + i, i));
      mock.emit(kernel("k", now + i, now + i + 1, i));
      if (i == 50) sleep_ms(600);  // what waits is written between rounds, too
    }
    mock.emit(call(driver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, now, 500));
    mock.emit(call(runtime, CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_ptsz_v7000, now, 501));
    mock.emit(call(runtime, CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, now, 502));
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndExit));
  const CaptureFile& file = outcome.only();
  auto calls = file.records<format::CallRecord>(format::kCall);
  CHECK(calls.size() == 102);
  const auto named = [&](std::string_view name) {
    return std::count_if(calls.begin(), calls.end(),
                         [&](const auto& c) { return file.name(c.name) == name; });
  };
  CHECK(named("cudaLaunchKernel") == 100);
  CHECK(named("cuLaunchKernelEx") == 1);
  CHECK(named("cudaStreamSynchronize") == 1);
  for (const format::CallRecord& one : calls) CHECK(one.thread == 4242 && one.end - one.start == 2000);
  const auto syncs = file.records<format::SyncRecord>(format::kSync);
  CHECK(syncs.size() == 1 && syncs.at(0).kind == format::kStreamSynchronize &&
        syncs.at(0).correlation == 501);
  CHECK(calls.front().kind == format::kCallLaunch);
}

void launches_without_kernels_are_an_error(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_LEVEL"] = "api";
  program.body = [](const Mock& mock) {
    mock.emit(
        call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, mock.now(), 1));
  };
  const Outcome outcome = run(parts, program);
  CHECK(outcome.errors.find("no kernel was recorded") != std::string::npos);
  CHECK(outcome.only().says("\"errors\"") && outcome.only().says("no kernel was recorded"));
}

void another_subscriber_is_named(const Parts& parts) {
  Program program;
  program.prepare = [](MockCupti& mock) {
    mock.subscribe_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndError));
  CHECK(outcome.errors.find("Nsight Systems") != std::string::npos);
  CHECK(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
  CHECK(outcome.only().says("another tool holds CUPTI"));
}

void kernels_refused(const Parts& parts) {
  Program program;
  program.prepare = [](MockCupti& mock) { mock.enable_kernel_result = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES; };
  program.body = [](const Mock& mock) { CHECK(!mock.control->subscribed); };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndError));
  CHECK(outcome.only().says("CUPTI does not record kernels"));
}

void a_library_that_is_not_cupti(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_CUPTI"] = parts.cuda;
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndError));
  CHECK(outcome.only().says("lacks cuptiGetVersion"));
}

void old_cupti_stays_at_kernels(const Parts& parts) {
  Program program;
  program.old_cupti = true;
  program.environment["AI_PROF_LEVEL"] = "api";
  program.body = [](const Mock& mock) {
    mock.emit(context(kContextId));
    mock.emit(kernel("k", mock.now(), 1));
    mock.emit(synchronization(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, mock.now()));
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndExit));
  CHECK(outcome.only().says("\"level\": \"kernel\"") && outcome.only().says("host calls are not recorded"));
  CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == 1);
  const auto sync = outcome.only().records<format::SyncRecord>(format::kSync).at(0);
  CHECK(sync.kind == format::kContextSynchronize && sync.end - sync.start == 5000);
  CHECK(sync.device == 0 && sync.stream == format::kNone32 && sync.correlation == 24);
}

void many_threads_lose_nothing(const Parts& parts) {
  Program program;
  constexpr std::uint32_t kEach = 50'000;
  program.prepare = [](MockCupti& mock) { mock.last_record_runs = true; };
  program.body = [](const Mock& mock) {
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&mock, t] {
        for (std::uint32_t i = 0; i < kEach; ++i) {
          const std::uint64_t now = mock.now();
          mock.emit(kernel("k", now, now + 1, t * kEach + i + 1));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  const Outcome outcome = run(parts, program);
  auto kernels = outcome.only().records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() == 4 * kEach);
  std::vector<bool> seen(4 * kEach + 1, false);
  for (const auto& one : kernels) seen.at(one.correlation) = true;
  CHECK(std::count(seen.begin(), seen.end(), true) == 4 * kEach);
}

void reused_name_pointers_are_seen(const Parts& parts) {
  Program program;
  program.body = [](const Mock& mock) {
    static char name[16] = "first";
    const std::uint64_t now = mock.now();
    mock.emit(kernel(name, now, now + 1, 1));
    sleep_ms(600);
    std::strcpy(name, "second");
    mock.emit(kernel(name, now, now + 1, 2));
  };
  const Outcome outcome = run(parts, program);
  const auto kernels = outcome.only().records<format::KernelRecord>(format::kKernel);
  CHECK(outcome.only().name(kernels.at(0).name) == "first");
  CHECK(outcome.only().name(kernels.at(1).name) == "second");
}

void graphs_as_one_record(const Parts& parts) {
  Program program;
  program.body = [](const Mock& mock) {
    mock.emit(graph(mock.now()));
    mock.emit(kernel("k", mock.now(), 1));
  };
  CHECK(run(parts, program).only().records<format::KernelRecord>(format::kKernel).size() == 1);
  program.environment["AI_PROF_GRAPHS"] = "graph";
  const Outcome outcome = run(parts, program);
  const auto kernels = outcome.only().records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() == 2);
  CHECK(outcome.only().name(kernels.at(0).name) == "cudaGraph" && kernels.at(0).graph == 6);
}

void a_forked_child_leaves_the_file_alone(const Parts& parts) {
  Program program;
  program.body = [](const Mock& mock) {
    mock.emit(kernel("parent", mock.now(), 1));
    const pid_t child = fork_at_rest();
    if (child == 0) std::exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    mock.emit(kernel("parent", mock.now(), 2));
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndExit));
  CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == 2);
}

void a_stuck_driver_does_not_hold_the_program(const Parts& parts) {
  Program program;
  program.prepare = [](MockCupti& mock) { mock.forced_flush_takes_ms = 60'000; };
  program.body = [](const Mock& mock) { mock.emit(kernel("k", mock.now(), 1)); };
  const auto before = std::chrono::steady_clock::now();
  const Outcome outcome = run(parts, program);
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(30));
  CHECK(ended(outcome, format::kEndError));
  CHECK(outcome.errors.find("CUPTI's flush has not returned") != std::string::npos);
  CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == 1);
}

void nothing_is_flushed_before_cuda_is_up(const Parts& parts) {
  Program program;
  program.body = [](const Mock& mock) {
    sleep_ms(700);
    CHECK(mock.control->flushes == 0);
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndExit));
  CHECK(outcome.errors.empty());
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void nvtx_is_led_to_the_same_cupti(const Parts& parts) {
  Program program;
  program.body = [&](const Mock&) {
    CHECK(std::filesystem::equivalent(variable("NVTX_INJECTION64_PATH"), parts.cupti));
  };
  CHECK(ended(run(parts, program), format::kEndExit));
  program.environment["NVTX_INJECTION64_PATH"] = "/another/tool.so";
  program.body = [](const Mock&) { CHECK(variable("NVTX_INJECTION64_PATH") == "/another/tool.so"); };
  CHECK(ended(run(parts, program), format::kEndExit));
}

void standby_does_nothing(const Parts& parts) {
  Program program;
  program.environment["AI_PROF_ENABLE"] = "standby";
  program.body = [](const Mock& mock) {
    mock.emit(kernel("k", mock.now(), 1));
    CHECK(!mock.control->subscribed);
    CHECK(variable("AI_PROF_CAPTURE_ID").empty() && variable("NVTX_INJECTION64_PATH").empty());
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream name(task.path() / "comm");
      std::string text;
      CHECK(std::getline(name, text) && text != "ai-prof");
    }
  };
  const Outcome outcome = run(parts, program);
  CHECK(outcome.status == 0 && outcome.errors.empty() && outcome.files.empty());
}

// The mock's numbers: two GPUs, of which CUDA has the second; what was there before this process is 1 GiB.
void the_devices_in_use_are_sampled(const Parts& parts) {
  Program program;
  program.nvml = true;
  program.body = [](const Mock& mock) {
    sleep_ms(300);
    mock.emit(kernel("k", mock.now(), 1));
    sleep_ms(1500);
  };
  const Outcome outcome = run(parts, program);
  CHECK(ended(outcome, format::kEndExit));
  CHECK(outcome.only().says("\"nvidia_driver\": \"580.159\""));
  const auto samples = outcome.only().records<format::SampleRecord>(format::kSample);
  CHECK(samples.size() >= 3 && samples.size() <= 6);
  CHECK(samples.at(0).memory_used == std::uint64_t{1} << 30);
  CHECK(samples.at(0).other_processes == 1);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const format::SampleRecord& sample = samples.at(i);
    CHECK(i == 0 || (sample.memory_used > std::uint64_t{1} << 30 && sample.other_processes == 1));
    CHECK(i < 2 || i + 1 == samples.size() || sample.time - samples.at(i - 1).time >= 500'000'000);
    CHECK(sample.device == 0 && sample.memory_total == std::uint64_t{141} << 30);
    CHECK(sample.gpu_utilization == 97 && sample.memory_utilization == 12);
    CHECK(sample.sm_clock == 1980 && sample.memory_clock == 3201);
    CHECK(sample.temperature == 61 && sample.power == format::kNone32);
    CHECK(sample.throttle_reasons == 0x8);
  }
}

#define CASE(name) {#name, name}
constexpr Case kCases[] = {
    CASE(every_kind),
    CASE(clocks_tie_to_the_host),
    CASE(calls_count_once),
    CASE(launches_without_kernels_are_an_error),
    CASE(another_subscriber_is_named),
    CASE(kernels_refused),
    CASE(a_library_that_is_not_cupti),
    CASE(old_cupti_stays_at_kernels),
    CASE(many_threads_lose_nothing),
    CASE(reused_name_pointers_are_seen),
    CASE(graphs_as_one_record),
    CASE(a_forked_child_leaves_the_file_alone),
    CASE(a_stuck_driver_does_not_hold_the_program),
    CASE(nothing_is_flushed_before_cuda_is_up),
    CASE(nvtx_is_led_to_the_same_cupti),
    CASE(standby_does_nothing),
    CASE(the_devices_in_use_are_sampled),
};
#undef CASE

}  // namespace

int main(int count, char** words) {
  return run_cases(kCases, count, words);
}
