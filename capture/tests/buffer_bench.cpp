// What a record costs the thread that writes it into our buffers, against one buffer that is given back
// unread. The writer fills buffers of a BufferPool as CUPTI does, with some work and a lock after each
// record; the reader takes turns as the recorder does. Both keep to a core of their own. Usage: buffer_bench
// [SECONDS], of each measurement. Prints ns a record beyond the work, what the resident memory grew to, and
// how often the reader was called between its turns.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "cupti/buffer_pool.h"

namespace {

using namespace ai_prof::cupti;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kWords = 24;  // of a record
constexpr std::size_t kRecordBytes = kWords * sizeof(std::uint64_t);
constexpr std::size_t kKept = 10;  // words of a record that the reader keeps
constexpr std::size_t kPart = 2000;
constexpr int kWork = 400;
constexpr std::chrono::milliseconds kRound{250};
constexpr std::size_t kPoolBytes = std::size_t{256} << 20;

void keep_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) std::fprintf(stderr, "no core %d: not pinned\n", core);
}

std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  std::size_t size = 0;
  std::size_t resident = 0;
  if (file == nullptr || std::fscanf(file, "%zu %zu", &size, &resident) != 2) std::abort();
  std::fclose(file);
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::atomic<std::uint64_t> g_lock{0};
std::atomic<std::uint64_t> g_sum{0};  // so that nothing is left out as useless

// What a program does between two records; one copy of it, so that all take as long.
[[gnu::noinline]] std::uint64_t work(std::uint64_t x) {
  g_lock.fetch_add(1);
  for (int i = 0; i < kWork; ++i) {
    x = x * 6364136223846793005u + 1;
    asm volatile("" : "+r"(x));
  }
  return x;
}

class Reader {
 public:
  explicit Reader(BufferPool& pool) : pool_(pool), thread_([this] { run(); }) {}
  ~Reader() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void wake() {
    if (woken_.exchange(true)) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  bool flushes() { return flush_.load(std::memory_order_relaxed) && flush_.exchange(false); }
  unsigned calls() const { return calls_; }

 private:
  void run() {
    keep_to(1);
    Clock::time_point next = Clock::now();
    std::unique_lock lock(mutex_);
    while (!over_) {
      lock.unlock();
      turn(next);
      lock.lock();
      changed_.wait_until(lock, next, [this] { return over_ || woken_; });
      if (woken_.exchange(false)) ++calls_;
    }
  }
  void turn(Clock::time_point& next) {
    pool_.warm();
    if (Clock::now() >= next) {
      next += kRound;
      pool_.round();
      flush_ = true;
    }
    Filled filled{};
    for (std::size_t left = pool_.waiting(); left > 0 && pool_.next(filled); --left) {
      read(filled);
      pool_.release(filled.data);
    }
  }
  void read(const Filled& filled) {
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at + kRecordBytes <= filled.bytes; at += kRecordBytes) {
      const auto* record = reinterpret_cast<const std::uint64_t*>(filled.data + at);
      if (kept_at_ + kKept > kept_.size()) kept_at_ = 0;
      for (std::size_t i = 0; i < kKept; ++i) kept_[kept_at_++] = record[2 * i];
      sum += record[kWords - 1];
    }
    g_sum += sum;
  }

  BufferPool& pool_;
  std::vector<std::uint64_t> kept_ = std::vector<std::uint64_t>(32 << 10);
  std::size_t kept_at_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::atomic<bool> woken_{false};
  std::atomic<bool> flush_{false};
  unsigned calls_ = 0;
  std::thread thread_;
};

template <class Body>
double part(Body&& body) {
  const Clock::time_point start = Clock::now();
  for (std::size_t i = 0; i < kPart; ++i) body();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kPart;
}

// What a record costs where `room` says, ns: parts of work with records and without take turns, since a
// shared core is now faster, now slower.
template <class Room>
double writes(double seconds, Room&& room) {
  std::uint64_t x = 1;
  std::vector<double> more;
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (const Clock::time_point end = Clock::now() + length; Clock::now() < end;) {
    const double with = part([&] {
      auto* record = reinterpret_cast<std::uint64_t*>(room());
      for (std::size_t i = 0; i < kWords; ++i) record[i] = x + i;
      x = work(x);
    });
    more.push_back(with - part([&] { x = work(x); }));
  }
  g_sum += x;
  std::sort(more.begin(), more.end());
  return more[more.size() / 2];
}

struct Buffer {
  std::uint8_t* data = nullptr;
  std::size_t bytes = 0;
  std::size_t used = 0;

  std::uint8_t* record() {
    used += kRecordBytes;
    return data + used - kRecordBytes;
  }
};

double floor(double seconds) {
  std::vector<std::uint8_t> memory(std::size_t{1} << 20);
  Buffer buffer{memory.data(), memory.size()};
  return writes(seconds, [&] {
    if (buffer.used + kRecordBytes > buffer.bytes) buffer.used = 0;
    return buffer.record();
  });
}

void touch(BufferPool& pool) {
  std::vector<std::uint8_t*> slots(pool.slots());
  std::size_t bytes = 0;
  for (std::uint8_t*& slot : slots) {
    slot = pool.take(bytes);
    for (std::size_t at = 0; at < bytes; at += 4096) slot[at] = 1;
  }
  for (std::uint8_t* slot : slots) pool.release(slot);
  pool.round();
}

void pooled(double seconds, bool touched, const char* name) {
  const std::size_t before = resident_bytes();
  BufferPool pool(kPoolBytes);
  if (touched) touch(pool);
  Reader reader(pool);
  Buffer buffer;
  const double record_ns = writes(seconds, [&] {
    if (buffer.used + kRecordBytes > buffer.bytes || reader.flushes()) {
      if (buffer.used != 0) pool.put({buffer.data, buffer.used});
      if (pool.crowded()) reader.wake();
      buffer = {};
      buffer.data = pool.take(buffer.bytes);
    }
    return buffer.record();
  });
  const double grown = static_cast<double>(resident_bytes() - before);
  std::printf("%-32s %7.1f %9.1f %6u\n", name, record_ns, grown / 1e6, reader.calls());
}

}  // namespace

int main(int count, char** words) {
  const double seconds = count > 1 ? std::atof(words[1]) : 2;
  keep_to(0);
  std::printf("%-32s %7s %9s %6s\n", "", "ns", "MB", "calls");
  std::printf("%-32s %7.1f\n", "one buffer, unread", floor(seconds));
  pooled(0.25, false, "the pool, a quarter of a second");
  pooled(seconds, false, "the pool");
  pooled(seconds, true, "the pool, all of it touched");
  return 0;
}
