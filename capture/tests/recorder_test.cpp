#include "core/recorder.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "check.h"
#include "core/clock.h"
#include "mock/capture_file.h"

namespace {

using namespace ai_prof;
using namespace ai_prof::test;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{30'000};  // with a busy machine; none of it is waited for nothing

format::KernelRecord kernel_at(std::int64_t start, std::int64_t end, std::uint32_t name = 0) {
  format::KernelRecord kernel{};
  kernel.start = start;
  kernel.end = end;
  kernel.name = name;
  return kernel;
}

// Adds what a test wants at the first drain; counts what it is asked for.
class Scripted final : public Source {
 public:
  std::function<void(Recorder&)> first = [](Recorder&) {};
  std::function<void()> ending = [] {};
  std::atomic<int> left{0};
  std::atomic<int> left_for{-1};
  std::atomic<int> drains{0};
  std::atomic<int> forks{0};
  std::atomic<bool> signals_blocked{false};

  milliseconds drain(Recorder& recorder) override {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    signals_blocked = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1;
    if (drains++ == 0) first(recorder);
    return milliseconds{5};
  }
  void calibrate(Recorder& recorder) override {
    recorder.add(format::kClock, read_together(format::kHostClock, monotonic_ns));
  }
  void finish(Recorder&, format::EndReason) override { ending(); }
  void leave(Recorder&, format::EndReason reason) override {
    ++left;
    left_for = static_cast<int>(reason);
  }
  void forked() noexcept override { ++forks; }
};

Config config_for(const Folder& folder) {
  Config config;
  config.mode = Mode::kOn;
  config.output = folder.path;
  config.capture_id = "test";
  return config;
}

CaptureFile only_file(const Folder& folder) {
  const auto files = folder.files();
  CHECK(files.size() == 1);
  return CaptureFile(files.at(0));
}

void records_names_and_losses() {
  const Folder folder;
  auto* source = new Scripted;
  source->first = [](Recorder& recorder) {
    const std::uint32_t name = recorder.intern("gemm");
    CHECK(recorder.intern("gemm") == name);
    recorder.add(format::kKernel, kernel_at(10, 20, name));
    recorder.add(format::kKernel, kernel_at(20, 20, name));  // no length, but valid
    recorder.add(format::kKernel, kernel_at(0, 20));
    recorder.add(format::kKernel, kernel_at(10, 0));
    recorder.add(format::kKernel, kernel_at(30, 20));
    recorder.budget_dropped(format::kMemcpy, 4);
    recorder.cupti_dropped(6);
    recorder.meta("driver_version", "\"1\"");
    recorder.error("one");
    recorder.error("two");
    recorder.error("one");  // as for each buffer or queue that it is true of
  };
  Recorder* recorder = Recorder::start(config_for(folder), *source, "opencl");
  CHECK(recorder != nullptr);
  recorder->stop(format::kEndStop, kPatience);
  CHECK(recorder->closed());
  CHECK(source->signals_blocked);
  const CaptureFile file = only_file(folder);
  const auto kernels = file.records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() == 2 && kernels[1].end == 20 && file.name(kernels[0].name) == "gemm");
  const format::LossRecord loss = file.loss(format::kKernel);
  CHECK(loss.captured == 2 && loss.invalid_time == 3 && loss.cupti_dropped == 6 && loss.budget_dropped == 0);
  CHECK(file.loss(format::kMemcpy).budget_dropped == 4);
  CHECK(file.records<format::ClockRecord>(format::kClock).size() == 2);
  const auto ends = file.records<format::EndRecord>(format::kEnd);
  CHECK(ends.size() == 1 && ends[0].reason == format::kEndStop);
  CHECK(file.says("\"errors\": [\"one\", \"two\"]") && file.says("\"driver_version\": \"1\""));
  CHECK(file.header.find("\"source\": \"opencl\"") != std::string::npos);
}

// As a program that compiles kernels for ever has them.
void new_names_without_end_are_not_all_remembered() {
  const Folder folder;
  auto* source = new Scripted;
  source->first = [](Recorder& recorder) {
    const std::string filling(1000, 'x');
    for (int i = 1; i <= 60'000; ++i) {
      const std::string text = i % 10 == 0 ? "gemm" : filling + std::to_string(i);
      recorder.add(format::kKernel, kernel_at(i, i + 1, recorder.intern(text)));
    }
  };
  Recorder* recorder = Recorder::start(config_for(folder), *source, "cuda");
  recorder->stop(format::kEndStop, kPatience);
  const CaptureFile file = only_file(folder);
  const auto kernels = file.records<format::KernelRecord>(format::kKernel);
  CHECK(kernels.size() == 60'000);
  std::set<std::uint32_t> ids_of_gemm;
  bool all_right = true;
  for (const auto& kernel : kernels) {
    const std::string name = file.name(kernel.name);
    const bool gemm = kernel.start % 10 == 0;
    if (gemm) ids_of_gemm.insert(kernel.name);
    all_right &= gemm ? name == "gemm" : name.ends_with("x" + std::to_string(kernel.start));
  }
  CHECK(all_right);
  CHECK(ids_of_gemm.size() > 1 && ids_of_gemm.size() < 10);  // forgotten now and then
  CHECK(!file.says("\"errors\""));
}

void names_that_cannot_be_written_are_not_kept_for_ever() {
  const Folder folder;
  auto* source = new Scripted;
  source->first = [](Recorder& recorder) {
    const std::string filling(1000, 'x');
    std::uint32_t id = 1;
    int taken = 0;
    for (; taken < 100'000 && id != 0; ++taken) id = recorder.intern(filling + std::to_string(taken));
    CHECK(id == 0 && taken > 1'000);
    recorder.add(format::kKernel, kernel_at(1, 2, id));
  };
  Recorder* recorder = Recorder::start(config_for(folder), *source, "cuda");
  while (source->drains < 2) std::this_thread::sleep_for(milliseconds{5});
  std::uint32_t later = 0;
  while (later == 0) {  // until there is room again
    later = recorder->intern("gemm");
    std::this_thread::sleep_for(milliseconds{5});
  }
  recorder->stop(format::kEndStop, kPatience);
  const CaptureFile file = only_file(folder);
  CHECK(file.records<format::KernelRecord>(format::kKernel).size() == 1);
  CHECK(file.name(later) == "gemm");
  CHECK(file.says("names came faster than they could be written"));
}

void a_killed_program_leaves_what_was_flushed() {
  const Folder folder;
  const int status = in_child([&] {
    auto* source = new Scripted;
    source->first = [](Recorder& recorder) { recorder.add(format::kKernel, kernel_at(1, 2)); };
    Recorder::start(config_for(folder), *source, "cuda");
    while (source->drains < 100) std::this_thread::sleep_for(milliseconds{5});  // half a second of its own
    std::raise(SIGKILL);
  });
  CHECK(status == -1);
  const CaptureFile file = only_file(folder);
  CHECK(file.records<format::KernelRecord>(format::kKernel).size() == 1);
  CHECK(file.records<format::EndRecord>(format::kEnd).empty());
}

// What a block is filled with is written at once, and the program may be killed before the next flush.
void the_clocks_and_devices_of_written_work_are_written() {
  constexpr std::uint32_t kDevice = 3;
  const Folder folder;
  const int status = in_child([&] {
    auto* source = new Scripted;
    source->first = [](Recorder& recorder) {
      format::DeviceRecord device{};
      device.device = kDevice;
      recorder.add(format::kDevice, device);
      recorder.add(format::kClock, read_together(kDevice, realtime_ns));
      for (int i = 0; i < 10'000; ++i) recorder.add(format::kKernel, kernel_at(1, 2));
      std::raise(SIGKILL);
    };
    Recorder::start(config_for(folder), *source, "opencl");
    std::this_thread::sleep_for(kPatience);
  });
  CHECK(status == -1);
  const CaptureFile file = only_file(folder);
  CHECK(!file.records<format::KernelRecord>(format::kKernel).empty());
  const auto clocks = file.records<format::ClockRecord>(format::kClock);
  CHECK(std::ranges::count(clocks, kDevice, &format::ClockRecord::clock) == 1);
  CHECK(file.records<format::DeviceRecord>(format::kDevice).size() == 1);
}

void exit_closes_the_file() {
  const Folder folder;
  const int status = in_child([&] { Recorder::start(config_for(folder), *new Scripted, "cuda"); });
  CHECK(status == 0);
  const auto ends = only_file(folder).records<format::EndRecord>(format::kEnd);
  CHECK(ends.size() == 1 && ends[0].reason == format::kEndExit);
}

void a_stuck_driver_does_not_hold_the_exit() {
  const Folder folder;
  const auto before = std::chrono::steady_clock::now();
  const int status = in_child([&] {
    auto* source = new Scripted;
    source->ending = [] { std::this_thread::sleep_for(std::chrono::hours{1}); };
    Recorder::start(config_for(folder), *source, "cuda");
  });
  CHECK(status == 0);
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds{20});
}

// On a busy machine the last records take their time.
void a_driver_at_work_is_waited_for() {
  const Folder folder;
  const int status = in_child([&] {
    auto* source = new Scripted;
    source->ending = [] {
      for (const auto end = monotonic_ns() + 3'000'000'000; monotonic_ns() < end;) {
      }
    };
    Recorder::start(config_for(folder), *source, "cuda");
  });
  CHECK(status == 0);
  CHECK(only_file(folder).records<format::EndRecord>(format::kEnd).size() == 1);
}

void a_source_that_throws_ends_the_capture_alone() {
  const Folder folder;
  auto* source = new Scripted;
  source->first = [](Recorder& recorder) {
    recorder.add(format::kKernel, kernel_at(1, 2));
    throw std::runtime_error("the driver said no");
  };
  Recorder* recorder = Recorder::start(config_for(folder), *source, "cuda");
  recorder->stop(format::kEndExit, kPatience);
  const CaptureFile file = only_file(folder);
  const auto ends = file.records<format::EndRecord>(format::kEnd);
  CHECK(ends.size() == 1 && ends[0].reason == format::kEndError);
  CHECK(file.records<format::KernelRecord>(format::kKernel).size() == 1);
  CHECK(source->left == 1 && source->left_for == format::kEndError);  // the driver goes on without us
}

void a_forked_child_leaves_the_file_alone() {
  const Folder folder;
  auto* source = new Scripted;
  Recorder* recorder = Recorder::start(config_for(folder), *source, "cuda");
  const int status = in_child([&] {
    CHECK(source->forks == 1);
    CHECK(recorder->closed());
    auto* own = new Scripted;
    own->first = [](Recorder& r) { r.add(format::kKernel, kernel_at(1, 2)); };
    Config config = config_for(folder);
    CHECK(Recorder::start(config, *own, "cuda") != nullptr);
  });
  CHECK(status == 0);
  CHECK(source->forks == 0);
  recorder->stop(format::kEndStop, kPatience);
  CHECK(folder.files().size() == 2);
  int kernels = 0;
  for (const auto& path : folder.files()) {
    const CaptureFile file(path);
    kernels += static_cast<int>(file.records<format::KernelRecord>(format::kKernel).size());
    CHECK(file.records<format::EndRecord>(format::kEnd).size() == 1);
  }
  CHECK(kernels == 1);
}

void a_full_file_is_closed_and_counted() {
  const Folder folder;
  Config config = config_for(folder);
  config.max_file_bytes = 400'000;
  auto* source = new Scripted;
  source->first = [](Recorder& recorder) {
    for (int i = 0; i < 10'000; ++i) recorder.add(format::kKernel, kernel_at(1, 2));
  };
  Recorder* recorder = Recorder::start(config, *source, "cuda");
  for (int i = 0; i < 3000 && !recorder->closed(); ++i) std::this_thread::sleep_for(milliseconds{10});
  recorder->stop(format::kEndExit, kPatience);
  const CaptureFile file = only_file(folder);
  const auto ends = file.records<format::EndRecord>(format::kEnd);
  CHECK(ends.size() == 1 && ends[0].reason == format::kEndFileFull);
  const format::LossRecord loss = file.loss(format::kKernel);
  CHECK(loss.captured == file.records<format::KernelRecord>(format::kKernel).size());
  CHECK(loss.captured + loss.budget_dropped == 10'000 && loss.budget_dropped > 0);
}

// A name that no longer fits takes its records with it, however small they are.
void a_full_file_holds_no_record_without_its_name() {
  const Folder folder;
  Config config = config_for(folder);
  config.max_file_bytes = 400'000;
  auto* source = new Scripted;
  source->first = [](Recorder& recorder) {
    for (int i = 1; i <= 3; ++i) {
      const std::string name(300'000, static_cast<char>('a' + i));
      recorder.add(format::kKernel, kernel_at(i, i + 1, recorder.intern(name)));
    }
  };
  Recorder* recorder = Recorder::start(config, *source, "cuda");
  recorder->stop(format::kEndExit, kPatience);
  const CaptureFile file = only_file(folder);
  for (const auto& kernel : file.records<format::KernelRecord>(format::kKernel)) {
    CHECK(file.name(kernel.name) != "?");
  }
  const format::LossRecord loss = file.loss(format::kKernel);
  CHECK(loss.captured + loss.budget_dropped == 3 && loss.budget_dropped > 0);
}

void no_folder_no_recorder() {
  Config config;
  config.output = "/proc/none";
  CHECK(Recorder::start(config, *new Scripted, "cuda") == nullptr);
}

}  // namespace

int main() {
  records_names_and_losses();
  new_names_without_end_are_not_all_remembered();
  names_that_cannot_be_written_are_not_kept_for_ever();
  a_killed_program_leaves_what_was_flushed();
  the_clocks_and_devices_of_written_work_are_written();
  exit_closes_the_file();
  a_stuck_driver_does_not_hold_the_exit();
  a_driver_at_work_is_waited_for();
  a_source_that_throws_ends_the_capture_alone();
  a_forked_child_leaves_the_file_alone();
  a_full_file_is_closed_and_counted();
  a_full_file_holds_no_record_without_its_name();
  no_folder_no_recorder();
  return verdict();
}
