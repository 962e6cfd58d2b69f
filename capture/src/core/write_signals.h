// A write beyond `ulimit -f` or to a pipe that nobody reads fails, and raises a signal that ends a program.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>

namespace ai_prof {

// While it lives, writes of this thread fail and do no more. Without the C library's calls where those act on
// a pthread_cancel.
class NoWriteSignals {
 public:
  NoWriteSignals() noexcept {
    sigset_t pending;
    sigpending(&pending);
    sigemptyset(&ours_);
    for (const int number : {SIGXFSZ, SIGPIPE}) {
      if (sigismember(&pending, number) == 0) sigaddset(&ours_, number);  // else it is the program's
    }
    pthread_sigmask(SIG_BLOCK, &ours_, &before_);
  }
  ~NoWriteSignals() {
    const int error = errno;  // of the write, for the caller
    const timespec now{};
    while (syscall(SYS_rt_sigtimedwait, &ours_, nullptr, &now, kKernelMaskBytes) > 0) {
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, kKernelMaskBytes);
    errno = error;
  }
  NoWriteSignals(const NoWriteSignals&) = delete;
  NoWriteSignals& operator=(const NoWriteSignals&) = delete;

 private:
  static constexpr std::size_t kKernelMaskBytes = 8;
  sigset_t ours_{};
  sigset_t before_{};
};

}  // namespace ai_prof
