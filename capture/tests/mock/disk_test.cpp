// A disk that stops, or is full: what is kept and what is dropped make what was sent, memory stays in its
// bound, and the program ends in time. This program's own pwrite stands before the C library's for the
// library that it loads. Usage: disk_test LIBRARY MOCK OLD_MOCK MOCK_CUDA MOCK_NVML.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "check.h"
#include "emit.h"
#include "program.h"

namespace {

using namespace ai_prof;
using namespace ai_prof::test;

enum class Disk { kWell, kStopped, kFull };
std::atomic<Disk> g_disk{Disk::kWell};
std::atomic<std::size_t> g_written{0};

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t pwrite(int file, const void* bytes,
                                                                 std::size_t count, off_t at) {
  while (g_disk.load() == Disk::kStopped) sleep_ms(5);
  if (g_disk.load() == Disk::kFull) {
    errno = ENOSPC;
    return -1;
  }
  g_written += count;
  return syscall(SYS_pwrite64, file, bytes, count, at);
}

namespace {

constexpr std::uint32_t kSent = 400'000;
constexpr std::uint32_t kFirst = 200;  // fit into the buffers without a turn of the reader
constexpr std::int64_t kBufferKb = 5 << 10;
constexpr std::int64_t kOwnKb = 16 << 10;  // what we may take beside the buffers

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;
#else
constexpr bool kMemoryIsOurs = true;
#endif

// A line of /proc/self/status, in KiB.
std::int64_t memory_kb(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::strtoll(line.c_str() + name.size(), nullptr, 10);
  }
  return 0;
}

void send(const Mock& mock, std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t i = first; i <= last; ++i) {
    const std::uint64_t now = mock.now();
    mock.emit(kernel("k", now, now + 1, i));
  }
}

// And waits until they are in the file.
void send_first(const Mock& mock) {
  send(mock, 1, kFirst);
  while (g_written.load() < kFirst * sizeof(format::KernelRecord)) sleep_ms(5);
}

Program program() {
  Program program;
  program.environment.emplace("AI_PROF_BUFFER_MB", "5");
  return program;
}

void all_is_accounted_for(const Outcome& outcome) {
  CHECK(outcome.status == 0);
  const CaptureFile& file = outcome.only();
  const format::LossRecord loss = file.loss(format::kKernel);
  CHECK(loss.captured + loss.budget_dropped == kSent);
  CHECK(loss.captured > 0 && loss.budget_dropped > 0);
  CHECK(loss.invalid_time == 0 && loss.cupti_dropped == 0 && loss.unfinished == 0);
  CHECK(file.records<format::KernelRecord>(format::kKernel).size() == loss.captured);
  CHECK(file.records<format::EndRecord>(format::kEnd).size() == 1);
}

void a_disk_that_stops_and_goes_on(const Parts& parts) {
  Program stopped = program();
  stopped.body = [](const Mock& mock) {
    send_first(mock);
    const std::int64_t before = memory_kb("VmRSS:");
    g_disk = Disk::kStopped;
    const auto start = std::chrono::steady_clock::now();
    send(mock, kFirst + 1, kSent / 2);
    sleep_ms(600);  // the writer waits by now
    send(mock, kSent / 2 + 1, kSent);
    // Nothing of it waited for the disk.
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
    if (kMemoryIsOurs) CHECK(memory_kb("VmHWM:") - before <= kBufferKb + kOwnKb);
    g_disk = Disk::kWell;
  };
  all_is_accounted_for(run(parts, stopped));
}

void a_full_disk_that_gets_room(const Parts& parts) {
  Program full = program();
  full.body = [](const Mock& mock) {
    send_first(mock);
    g_disk = Disk::kFull;
    for (std::uint32_t sent = kFirst; sent < kSent; sent += kFirst) {
      send(mock, sent + 1, sent + kFirst);
      if (sent % 50'000 == 0) sleep_ms(100);
    }
    sleep_ms(1500);  // the counts, too, can't be written any more, and do not change until the end
    g_disk = Disk::kWell;
  };
  const Outcome outcome = run(parts, full);
  all_is_accounted_for(outcome);
  CHECK(outcome.errors.find("can't write") != std::string::npos);
}

void a_disk_that_is_full_at_the_end(const Parts& parts) {
  Program full = program();
  full.body = [](const Mock& mock) {
    send_first(mock);
    g_disk = Disk::kFull;
    send(mock, kFirst + 1, 2 * kFirst);
    sleep_ms(1000);
    g_disk = Disk::kWell;
    sleep_ms(2500);  // what is lost is counted in the file by now
    g_disk = Disk::kFull;
  };
  const Outcome outcome = run(parts, full);
  const CaptureFile& file = outcome.only();
  CHECK(file.records<format::EndRecord>(format::kEnd).empty());
  CHECK(file.loss(format::kKernel).budget_dropped == kFirst);
  CHECK(file.says("write_errors"));
  CHECK(outcome.errors.find("No space left on device") != std::string::npos);
}

void a_disk_that_stays_stopped_holds_no_exit(const Parts& parts) {
  Program stopped = program();
  stopped.body = [](const Mock& mock) {
    send_first(mock);
    g_disk = Disk::kStopped;
    send(mock, kFirst + 1, 2 * kFirst);
  };
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run(parts, stopped);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  CHECK(outcome.status == 0);
  CHECK(outcome.errors.find("last records may be missing") != std::string::npos);
  CHECK(outcome.only().records<format::KernelRecord>(format::kKernel).size() == kFirst);
}

}  // namespace

int main(int count, char** words) {
  constexpr Case kCases[] = {
      {"a_disk_that_stops_and_goes_on", a_disk_that_stops_and_goes_on},
      {"a_full_disk_that_gets_room", a_full_disk_that_gets_room},
      {"a_disk_that_is_full_at_the_end", a_disk_that_is_full_at_the_end},
      {"a_disk_that_stays_stopped_holds_no_exit", a_disk_that_stays_stopped_holds_no_exit},
  };
  return run_cases(kCases, count, words);
}
