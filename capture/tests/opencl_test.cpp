// The OpenCL layer over a driver of our own, from clInitLayer to the closed file. This program's own pwrite
// stands before the C library's, so that a thread can be held where it writes the first bytes of a file.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <initializer_list>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_opencl.h"
#include "mock/capture_file.h"

extern "C" {
ai_prof::opencl::cl_int clGetLayerInfo(ai_prof::opencl::cl_uint, std::size_t, void*, std::size_t*) noexcept;
ai_prof::opencl::cl_int clInitLayer(ai_prof::opencl::cl_uint, void* const*, ai_prof::opencl::cl_uint*,
                                    void* const**) noexcept;
}

namespace {

using namespace ai_prof;
using namespace ai_prof::test;

std::atomic<bool> g_hold{false};
std::atomic<bool> g_held{false};
std::atomic<bool> g_die{false};  // once a full block of records is in the file
constexpr std::size_t kFullBlock = 256 << 10;

void wait_while(const std::atomic<bool>& flag) {
  while (flag.load()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

}  // namespace

extern "C" ssize_t pwrite(int file, const void* bytes, std::size_t count, off_t at) {
  if (g_hold.load()) g_held.store(true);
  wait_while(g_hold);
  const ssize_t written = syscall(SYS_pwrite64, file, bytes, count, at);
  if (g_die.load() && count >= kFullBlock) std::raise(SIGKILL);
  return written;
}

namespace {

// The program's side of the layer.
struct Program {
  explicit Program(const std::array<void*, kSlots>& driver) {
    cl_uint count = 0;
    CHECK(clInitLayer(kSlots, driver.data(), &count, &table) == kSuccess);
    CHECK(count == kSlots);
  }

  template <Slot slot>
  auto call() const {
    return reinterpret_cast<typename Signature<slot>::type>(table[slot]);
  }

  cl_command_queue queue(cl_bitfield properties = 0) {
    context = call<kCreateContext>()(nullptr, 1, nullptr, nullptr, nullptr, nullptr);
    return call<kCreateCommandQueue>()(context, &device, properties, nullptr);
  }
  cl_int launch(cl_command_queue on, cl_event* event = nullptr) {
    const std::size_t global[2] = {100, 6};
    const std::size_t local[2] = {32, 2};
    return call<kEnqueueNDRangeKernel>()(on, &kernel, 2, nullptr, global, local, 0, nullptr, event);
  }

  void* const* table = nullptr;
  cl_context context = nullptr;
  _cl_device_id device;
  _cl_kernel kernel{"gemm"};
  _cl_mem memory;
};

// Runs `work` in a process of its own, with the capture switched on by `variables`, and reads what it left.
template <class Work>
std::vector<CaptureFile> captured(std::initializer_list<std::pair<const char*, const char*>> variables,
                                  Work&& work) {
  const Folder folder;
  CHECK(in_child([&] {
          setenv("AI_PROF_OUTPUT", folder.path.c_str(), 1);
          for (const auto& [name, value] : variables) setenv(name, value, 1);
          work();
        }) == 0);
  std::vector<CaptureFile> files;
  for (const auto& path : folder.files()) files.emplace_back(path);
  return files;
}

void work_at_level_api() {
  Program program(fake_driver());
  cl_command_queue queue = program.queue();
  for (int i = 0; i < 3; ++i) CHECK(program.launch(queue) == kSuccess);
  char host[64] = {};
  program.call<kEnqueueWriteBuffer>()(queue, &program.memory, 1, 0, 64, host, 0, nullptr, nullptr);
  program.call<kEnqueueReadBuffer>()(queue, &program.memory, 0, 0, 32, host, 0, nullptr, nullptr);
  program.call<kEnqueueFillBuffer>()(queue, &program.memory, host, 1, 0, 16, 0, nullptr, nullptr);
  program.call<kCreateBuffer>()(program.context, 0, 64, nullptr, nullptr);
  program.call<kFinish>()(queue);
  const std::vector<std::size_t> shorter(1, 64);  // than what is said of it
  CHECK(program.call<kEnqueueNDRangeKernel>()(queue, &program.kernel, 9, nullptr, shorter.data(), nullptr, 0,
                                              nullptr, nullptr) == kInvalidValue);
}

void everything_is_recorded() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}, {"AI_PROF_LEVEL", "api"}}, work_at_level_api);
  CHECK(files.size() == 1);
  const CaptureFile& file = files.at(0);
  const auto kernels = file.records<format::KernelRecord>(format::kKernel);
  const auto calls = file.records<format::CallRecord>(format::kCall);
  CHECK(kernels.size() == 3 && calls.size() == 9);
  for (const auto& kernel : kernels) {
    CHECK(file.name(kernel.name) == "gemm" && kernel.end - kernel.start == 1000);
    CHECK(kernel.grid[0] == 4 && kernel.grid[1] == 3 && kernel.grid[2] == 1);
    CHECK(kernel.block[0] == 32 && kernel.block[1] == 2 && kernel.block[2] == 1);
    CHECK(std::ranges::count(calls, kernel.correlation, &format::CallRecord::correlation) == 1);
  }
  const auto copies = file.records<format::MemoryRecord>(format::kMemcpy);
  CHECK(copies.size() == 2);
  CHECK(copies[0].kind == format::kHostToDevice && copies[0].bytes == 64 && copies[0].flags == 0);
  CHECK(copies[1].kind == format::kDeviceToHost && copies[1].bytes == 32 &&
        copies[1].flags == format::kAsync);
  const auto fills = file.records<format::MemoryRecord>(format::kMemset);
  CHECK(fills.size() == 1 && fills[0].bytes == 16);
  const auto syncs = file.records<format::SyncRecord>(format::kSync);
  CHECK(syncs.size() == 2);
  CHECK(syncs[0].kind == format::kBlockingCopy && syncs[0].correlation == copies[0].correlation);
  CHECK(syncs[1].kind == format::kStreamSynchronize && syncs[1].stream == 0);
  CHECK(calls.back().result == kInvalidValue && file.name(calls.back().name) == "clEnqueueNDRangeKernel");
  const auto devices = file.records<format::DeviceRecord>(format::kDevice);
  CHECK(devices.size() == 1 && file.name(devices[0].name) == "Fake device" && devices[0].units == 4);
}

void the_device_clock_is_found() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}, {"AI_PROF_LEVEL", "api"}}, work_at_level_api);
  const CaptureFile& file = files.at(0);
  CHECK(file.says("CLOCK_REALTIME"));
  const auto clocks = file.records<format::ClockRecord>(format::kClock);
  const auto device = std::ranges::find(clocks, 0u, &format::ClockRecord::clock);
  CHECK(device != clocks.end());
  const auto kernel = file.records<format::KernelRecord>(format::kKernel).at(0);
  const auto calls = file.records<format::CallRecord>(format::kCall);
  const auto call = *std::ranges::find(calls, kernel.correlation, &format::CallRecord::correlation);
  const std::int64_t queued = kernel.start - 1000 - device->source + device->monotonic;
  CHECK(queued >= call.start - 100'000 && queued <= call.end + 100'000);
}

void a_device_clock_that_is_not_found_is_said() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}}, [] {
    Program program(fake_driver());
    cl_command_queue queue = program.queue();
    queue->unstamped = true;
    program.launch(queue);
  });
  CHECK(files.at(0).records<format::KernelRecord>(format::kKernel).size() == 1);
  CHECK(files.at(0).says("the clock of device 0 can't be told"));
}

void a_device_that_works_late_and_little_has_its_clock() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}}, [] {
    Program program(fake_driver());
    cl_command_queue queue = program.queue();
    for (int i = 0; i < 100; ++i) program.launch(queue);
    _cl_device_id second;
    program.launch(program.call<kCreateCommandQueue>()(program.context, &second, 0, nullptr));
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
  });
  const auto clocks = files.at(0).records<format::ClockRecord>(format::kClock);
  CHECK(std::ranges::count(clocks, 0u, &format::ClockRecord::clock) > 0);
  CHECK(std::ranges::count(clocks, 1u, &format::ClockRecord::clock) > 0);
}

void a_killed_program_leaves_no_times_without_their_clock() {
  const Folder folder;
  CHECK(in_child([&] {
          setenv("AI_PROF_OUTPUT", folder.path.c_str(), 1);
          setenv("AI_PROF_ENABLE", "1", 1);
          g_die = true;
          Program program(fake_driver());
          cl_command_queue queue = program.queue();
          std::this_thread::sleep_for(std::chrono::milliseconds{10});  // the recorder has looked, and rests
          for (int i = 0; i < 10'000; ++i) program.launch(queue);
          std::this_thread::sleep_for(std::chrono::seconds{30});
        }) == -1);
  const CaptureFile file(folder.files().at(0));
  CHECK(!file.records<format::KernelRecord>(format::kKernel).empty());
  const auto clocks = file.records<format::ClockRecord>(format::kClock);
  CHECK(std::ranges::count(clocks, 0u, &format::ClockRecord::clock) > 0);
}

void level_kernel_leaves_calls_out() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}}, work_at_level_api);
  CHECK(files.at(0).records<format::KernelRecord>(format::kKernel).size() == 3);
  CHECK(files.at(0).records<format::SyncRecord>(format::kSync).size() == 2);
  CHECK(files.at(0).records<format::CallRecord>(format::kCall).empty());
}

void off_changes_nothing() {
  const auto files = captured({}, [] {
    const auto driver = fake_driver();
    const Program program(driver);
    CHECK(std::equal(driver.begin(), driver.end(), program.table));
  });
  CHECK(files.empty());
}

void the_program_sees_its_own_queues() {
  captured({{"AI_PROF_ENABLE", "1"}}, [] {
    Program program(fake_driver());
    cl_command_queue plain = program.queue();
    cl_bitfield seen = 99;
    CHECK((plain->properties & kQueueProfilingEnable) != 0);
    program.call<kGetCommandQueueInfo>()(plain, kQueueProperties, sizeof seen, &seen, nullptr);
    CHECK(seen == 0);
    cl_event event = nullptr;
    program.launch(plain, &event);
    cl_ulong time = 0;
    const auto profile = program.call<kGetEventProfilingInfo>();
    CHECK(profile(event, kProfilingCommandStart, sizeof time, &time, nullptr) == kProfilingInfoNotAvailable);
    program.call<kReleaseEvent>()(event);
    cl_command_queue profiled = program.queue(kQueueProfilingEnable);
    program.launch(profiled, &event);
    CHECK(profile(event, kProfilingCommandStart, sizeof time, &time, nullptr) == kSuccess && time > 0);
    const cl_properties list[] = {kQueueProperties, 1, 0};
    cl_command_queue listed =
        program.call<kCreateCommandQueueWithProperties>()(program.context, &program.device, list, nullptr);
    CHECK(listed->properties == (1 | kQueueProfilingEnable));
    cl_properties back[8] = {};
    std::size_t size = 0;
    CHECK(program.call<kGetCommandQueueInfo>()(listed, kQueuePropertiesArray, sizeof back, back, &size) ==
          kSuccess);
    CHECK(size == sizeof list && std::equal(std::begin(list), std::end(list), back));
  });
}

void nothing_is_kept_from_the_driver() {
  captured({{"AI_PROF_ENABLE", "1"}}, [] {
    Program program(fake_driver());
    for (int round = 0; round < 50; ++round) {
      cl_command_queue queue = program.queue();
      program.call<kRetainCommandQueue>()(queue);
      program.call<kReleaseCommandQueue>()(queue);
      cl_event event = nullptr;
      program.launch(queue, &event);
      program.launch(queue);
      program.call<kReleaseEvent>()(event);
      program.call<kReleaseCommandQueue>()(queue);
    }
    for (int i = 0; i < 3000 && g_live_events > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    CHECK(g_live_events == 0);
    CHECK(g_live_queues == 0);
  });
}

// Of a part of a device, nothing is left when its last reference goes.
void a_device_stays_while_its_clock_is_read() {
  captured({{"AI_PROF_ENABLE", "1"}}, [] {
    Program program(fake_driver());
    for (int i = 0; i < 3; ++i) program.call<kReleaseCommandQueue>()(program.queue());
    CHECK(program.device.references == 2);
  });
}

void the_window_is_kept() {
  const auto files =
      captured({{"AI_PROF_ENABLE", "1"}, {"AI_PROF_DELAY", "0.3"}, {"AI_PROF_DURATION", "0.3"}}, [] {
        Program program(fake_driver());
        cl_command_queue queue = program.queue();
        for (int i = 0; i < 120; ++i) {  // a second and more
          program.launch(queue);
          std::this_thread::sleep_for(std::chrono::milliseconds{10});
        }
      });
  const auto kernels = files.at(0).records<format::KernelRecord>(format::kKernel);
  CHECK(!kernels.empty() && kernels.size() < 90);
  const auto ends = files.at(0).records<format::EndRecord>(format::kEnd);
  CHECK(ends.size() == 1 && ends[0].reason == format::kEndWindow);
}

void settled_iterations_are_recorded() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"},
                               {"AI_PROF_STEADY", "1"},
                               {"AI_PROF_ITERATIONS", "5"},
                               {"AI_PROF_LEVEL", "api"}},
                              [] {
                                Program program(fake_driver());
                                cl_command_queue queue = program.queue();
                                const auto end = monotonic_ns() + 3'000'000'000;
                                while (monotonic_ns() < end) {
                                  program.launch(queue);
                                  std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                }
                              });
  const auto kernels = files.at(0).records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() >= 5 && kernels.size() < 150);
  CHECK(files.at(0).records<format::CallRecord>(format::kCall).size() < 150);
  CHECK(files.at(0).records<format::EndRecord>(format::kEnd).at(0).reason == format::kEndWindow);
}

void the_budget_is_kept_and_loss_counted() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}, {"AI_PROF_BUFFER_MB", "1"}}, [] {
    Program program(fake_driver());
    cl_command_queue queue = program.queue();
    queue->stuck = true;
    for (int i = 0; i < 10'000; ++i) program.launch(queue);
    CHECK(g_live_events < 10'000);
  });
  const CaptureFile& file = files.at(0);
  CHECK(file.loss(format::kKernel).budget_dropped > 0);
  CHECK(file.loss(format::kKernel).unfinished > 0);
  CHECK(file.records<format::EndRecord>(format::kEnd).size() == 1);
}

// Also of what waits behind the bound, for work that never ends.
void all_that_was_sent_is_accounted_for() {
  constexpr std::uint64_t kSent = 10'000;
  const auto files =
      captured({{"AI_PROF_ENABLE", "1"}, {"AI_PROF_BUFFER_MB", "1"}, {"AI_PROF_LEVEL", "api"}}, [] {
        Program program(fake_driver());
        cl_command_queue queue = program.queue();
        queue->stuck = true;
        for (std::uint64_t i = 0; i < kSent; ++i) program.launch(queue);
      });
  const auto kernels = files.at(0).loss(format::kKernel);
  CHECK(kernels.captured + kernels.budget_dropped + kernels.unfinished == kSent);
  const auto calls = files.at(0).loss(format::kCall);
  CHECK(calls.captured + calls.budget_dropped == kSent);
}

// Also of queues that there was no room for.
void work_on_a_queue_too_many_is_counted() {
  constexpr std::uint64_t kQueues = 2000;
  const auto files = captured({{"AI_PROF_ENABLE", "1"}, {"AI_PROF_LEVEL", "api"}}, [] {
    Program program(fake_driver());
    for (std::uint64_t i = 0; i < kQueues; ++i) program.launch(program.queue());
  });
  const auto kernels = files.at(0).loss(format::kKernel);
  CHECK(kernels.captured > 0 && kernels.captured < kQueues);
  CHECK(kernels.captured + kernels.budget_dropped + kernels.unfinished == kQueues);
}

void a_forked_child_has_its_own_file() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}, {"AI_PROF_LEVEL", "api"}}, [] {
    Program program(fake_driver());
    cl_command_queue queue = program.queue();
    program.launch(queue);
    CHECK(in_child([&] {
            program.launch(queue);  // the parent's queue: not recorded, not fatal
            cl_command_queue own = program.queue();
            program.launch(own);
            program.launch(own);
          }) == 0);
    program.launch(queue);
  });
  CHECK(files.size() == 2);
  for (const CaptureFile& file : files) {
    CHECK(file.records<format::KernelRecord>(format::kKernel).size() == 2);
    CHECK(file.records<format::EndRecord>(format::kEnd).size() == 1);
    // Each has one thread, the first, whose number is the process's.
    for (const auto& call : file.records<format::CallRecord>(format::kCall)) {
      CHECK(file.header.find("\"pid\": " + std::to_string(call.thread) + ",") != std::string::npos);
    }
  }
}

[[maybe_unused]] void a_child_forked_while_another_thread_starts_the_capture_has_its_own() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}}, [] {
    Program program(fake_driver());
    g_hold = true;
    std::thread first([&] { program.launch(program.queue()); });
    while (!g_held.load()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    CHECK(in_child([&] {
            alarm(60);  // where it waits for a thread that it does not have
            g_hold = false;
            cl_command_queue own = program.queue();
            program.launch(own);
            program.launch(own);
          }) == 0);
    g_hold = false;
    first.join();
  });
  CHECK(files.size() == 2);
  std::size_t kernels = 0;
  for (const CaptureFile& file : files) {
    kernels += file.records<format::KernelRecord>(format::kKernel).size();
    CHECK(file.records<format::EndRecord>(format::kEnd).size() == 1);
  }
  CHECK(kernels == 3);
}

void a_kernel_handle_that_comes_back_has_its_new_name() {
  const auto files = captured({{"AI_PROF_ENABLE", "1"}}, [] {
    Program program(fake_driver());
    cl_command_queue queue = program.queue();
    program.launch(queue);
    program.call<kReleaseKernel>()(&program.kernel);
    program.kernel.name = "softmax";
    program.launch(queue);
  });
  const auto kernels = files.at(0).records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() == 2);
  CHECK(files.at(0).name(kernels.at(0).name) == "gemm" && files.at(0).name(kernels.at(1).name) == "softmax");
}

void the_loader_is_answered() {
  cl_uint version = 0;
  std::size_t size = 0;
  CHECK(clGetLayerInfo(kLayerApiVersion, sizeof version, &version, &size) == kSuccess);
  CHECK(version == kLayerApiVersion100 && size == sizeof version);
  char name[16] = {};
  CHECK(clGetLayerInfo(kLayerName, sizeof name, name, nullptr) == kSuccess && std::string(name) == "ai-prof");
  CHECK(clGetLayerInfo(kLayerName, 2, name, nullptr) == kInvalidValue);
  CHECK(clGetLayerInfo(0, sizeof name, name, nullptr) == kInvalidValue);
  CHECK(clInitLayer(1, nullptr, nullptr, nullptr) == kInvalidValue);
}

}  // namespace

int main() {
  everything_is_recorded();
  the_device_clock_is_found();
  a_device_clock_that_is_not_found_is_said();
  a_device_that_works_late_and_little_has_its_clock();
  a_killed_program_leaves_no_times_without_their_clock();
  level_kernel_leaves_calls_out();
  off_changes_nothing();
  the_program_sees_its_own_queues();
  nothing_is_kept_from_the_driver();
  a_device_stays_while_its_clock_is_read();
  the_window_is_kept();
  settled_iterations_are_recorded();
  the_budget_is_kept_and_loss_counted();
  all_that_was_sent_is_accounted_for();
  work_on_a_queue_too_many_is_counted();
  a_forked_child_has_its_own_file();
#ifndef __SANITIZE_THREAD__  // which ends a child that starts a thread where one of its parent's was
  a_child_forked_while_another_thread_starts_the_capture_has_its_own();
#endif
  a_kernel_handle_that_comes_back_has_its_new_name();
  the_loader_is_answered();
  return verdict();
}
