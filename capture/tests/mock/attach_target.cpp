// A program to attach to: one thread waits in the call that WAIT names, again and again, and checks what
// comes of it; others compute, allocate and launch kernels on the mock driver. It knows nothing of ai_prof.
// Usage: attach_target WAIT COUNTERS CUDA CUPTI LAUNCHES ALLOCATORS
//   WAIT        poll, epoll, sleep, condition, semaphore, forever (poll without a time limit), jump (the
//               same, and SIGUSR1 jumps out of it), cancel (the same, in a thread that is cancelled when
//               asked), apart (poll in a thread with descriptors of its own) or none (compute only)
//   COUNTERS    a file of at least a page, mapped: see Counters
//   CUDA CUPTI  the mocks; "-" loads none (CUPTI "-": it is loaded late, by ai_prof)
//   LAUNCHES    a thread that launches so many kernels every ms; 0: none
//   ALLOCATORS  threads that do nothing but malloc and free
// Loads what CUDA_INJECTION64_PATH names, as the driver does. Ends when the counter `quit` is set.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "emit.h"
#include "mock_cupti.h"

namespace {

using std::chrono::milliseconds;

struct Counters {
  std::atomic<std::uint64_t> quit;
  std::atomic<std::uint64_t> waits;        // that ended as they should
  std::atomic<std::uint64_t> interrupted;  // that ended with EINTR
  std::atomic<std::uint64_t> wrong;        // that ended in another way, early, or with registers changed
  std::atomic<std::uint64_t> computed;     // by the computing thread
  std::atomic<std::uint64_t> launched;
  std::atomic<std::uint64_t> signals;     // SIGUSR1, handled
  std::atomic<std::uint64_t> subscribed;  // what the mock CUPTI says now
  std::atomic<std::uint64_t> finalized;
  std::atomic<std::uint64_t> asked;  // to cancel or to post, as often
  std::atomic<std::uint64_t> answered;
};

Counters* g_counters = nullptr;
constexpr int kWaitMs = 15;

bool going() {
  return g_counters->quit.load() == 0;
}

// Signal delivery may end a wait; nothing else may end it early.
void judge(int result, int expected, std::chrono::steady_clock::time_point began, int least_ms) {
  const auto took = std::chrono::steady_clock::now() - began;
  if (result < 0 && errno == EINTR) {
    ++g_counters->interrupted;
  } else if (result != expected || took < milliseconds(least_ms)) {
    ++g_counters->wrong;
    std::fprintf(stderr, "wait gave %d (errno %d)\n", result, result < 0 ? errno : 0);
  } else {
    ++g_counters->waits;
  }
}

// Vector registers and the stack must come through the wait unharmed: the call is made here, inline.
long raw_call(long number, long a, long b, long c, long d) {
  long result = number;
  register long r10 asm("r10") = d;
  double kept = 42.5;
  asm volatile(
      "movsd %[kept], %%xmm9\n\t"
      "syscall\n\t"
      "movsd %%xmm9, %[kept]"
      : "+a"(result), [kept] "+m"(kept)
      : "D"(a), "S"(b), "d"(c), "r"(r10)
      : "rcx", "r11", "memory", "xmm9");
  if (kept != 42.5) ++g_counters->wrong;
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

sigjmp_buf g_out;
sem_t g_semaphore;

void* wait_to_be_cancelled(void*) {
  for (;;) poll(nullptr, 0, -1);
}

void cancel_once() {
  pthread_t waiter{};
  if (pthread_create(&waiter, nullptr, wait_to_be_cancelled, nullptr) != 0) return;
  while (going() && g_counters->asked == g_counters->answered) std::this_thread::yield();
  pthread_cancel(waiter);
  ++g_counters->answered;
  pthread_join(waiter, nullptr);
  if (void* library = dlopen("libanl.so.1", RTLD_NOW)) dlclose(library);  // the loader is as it was
  ++g_counters->waits;
}

void wait_once(std::string_view how, int epoll) {
  static std::mutex mutex;
  static std::condition_variable never;
  const auto began = std::chrono::steady_clock::now();
  if (how == "poll") {
    judge(static_cast<int>(raw_call(7, 0, 0, kWaitMs, 0)), 0, began, kWaitMs);
  } else if (how == "epoll") {
    epoll_event event{};
    judge(epoll_wait(epoll, &event, 1, kWaitMs), 0, began, kWaitMs - 1);
  } else if (how == "sleep") {
    const timespec pause{0, kWaitMs * 1'000'000};
    judge(nanosleep(&pause, nullptr), 0, began, kWaitMs);
  } else if (how == "condition") {
    std::unique_lock lock(mutex);
    never.wait_for(lock, milliseconds(kWaitMs));
    judge(0, 0, began, 0);
  } else if (how == "forever") {
    judge(poll(nullptr, 0, -1), 0, began, 0);  // only a signal ends it
  } else if (how == "semaphore") {
    judge(sem_wait(&g_semaphore), 0, began, 0);
  } else if (how == "jump") {
    if (sigsetjmp(g_out, 1) == 0) poll(nullptr, 0, -1);
    ++g_counters->waits;
  } else if (how == "cancel") {
    cancel_once();
  } else if (how == "apart") {
    std::atomic<bool> apart = false;
    std::thread waiter([&] {
      unshare(CLONE_FILES);
      apart = true;
      while (going()) wait_once("poll", epoll);
    });
    while (!apart) std::this_thread::yield();
    for (int i = 0; i < 8; ++i) dup(2);  // a file at each number that is free in the thread
    while (going()) std::this_thread::yield();
    waiter.join();
  }
}

void post() {
  while (going()) {
    if (g_counters->asked != g_counters->answered) {
      sem_post(&g_semaphore);
      ++g_counters->answered;
    }
    std::this_thread::yield();
  }
  sem_post(&g_semaphore);
}

void compute() {
  double x = 1.0;
  while (going()) {
    const double before = x;
    for (int i = 0; i < 1000; ++i) x = x * 1.0000001 + 1e-9;
    if (!(x > before)) ++g_counters->wrong;
    if (x > 1e6) x = 1.0;
    ++g_counters->computed;
    if (g_counters->computed % 64 == 0) std::this_thread::yield();
  }
}

void allocate() {
  while (going()) {
    std::vector<void*> blocks;
    for (std::size_t i = 1; i < 200; ++i) blocks.push_back(std::malloc(i * 37));
    for (void* block : blocks) std::free(block);
  }
}

bool inject() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return true;
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return false;
  return reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))() == 1;
}

void launch(const char* cupti, int at_once) {
  void* mock = nullptr;
  std::uint32_t correlation = 0;
  for (; going(); std::this_thread::sleep_for(milliseconds(1))) {
    ++g_counters->launched;
    // Late, a libcupti is there only once ai_prof has brought it.
    if (mock == nullptr) mock = dlopen(cupti, RTLD_NOW | RTLD_NOLOAD);
    if (mock == nullptr) continue;
    const auto emit = reinterpret_cast<decltype(&::mock_emit)>(dlsym(mock, "mock_emit"));
    auto now = reinterpret_cast<decltype(&::mock_now)>(dlsym(mock, "mock_now"))();
    const auto control = reinterpret_cast<decltype(&::mock_cupti)>(dlsym(mock, "mock_cupti"))();
    control->context_made = true;  // long before
    for (int i = 0; i < at_once; ++i, ++now) {
      const auto call =
          ai_prof::test::call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
                              now - 3000, ++correlation);
      const auto record = ai_prof::test::kernel("step", now, now + 1000, correlation);
      emit(&call, sizeof call);
      emit(&record, sizeof record);
    }
    g_counters->subscribed = control->subscribed ? 1 : 0;
    g_counters->finalized = control->finalized;
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 7) return 2;
  const int file = open(words[2], O_RDWR);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return 2;
  g_counters = static_cast<Counters*>(page);
  std::signal(SIGUSR1, [](int) { ++g_counters->signals; });
  if (std::strcmp(words[1], "jump") == 0) std::signal(SIGUSR1, [](int) { siglongjmp(g_out, 1); });
  if (std::strcmp(words[3], "-") != 0 && dlopen(words[3], RTLD_NOW) == nullptr) return 3;
  if (words[4][0] == '/' && dlopen(words[4], RTLD_NOW) == nullptr) return 3;
  if (!inject()) return 3;
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::thread> threads;
  threads.emplace_back(compute);
  if (const int at_once = std::atoi(words[5]); at_once > 0)
    threads.emplace_back(launch, words[4][0] == '+' ? words[4] + 1 : words[4], at_once);
  for (int i = std::atoi(words[6]); i > 0; --i) threads.emplace_back(allocate);
  const std::string_view how = words[1];
  if (how == "semaphore") threads.emplace_back(post);
  while (going()) {
    if (how == "none") {
      std::this_thread::yield();
    } else {
      wait_once(how, epoll);
    }
  }
  for (std::thread& thread : threads) thread.join();
  return 7;  // its own code, for the test to see
}
