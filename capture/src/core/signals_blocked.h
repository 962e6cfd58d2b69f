// Keeps the program's signals away from the library's threads.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

namespace ai_prof {

// Blocks every signal while it lives, so that a thread started under it never takes one of the program's.
// What an attacher has blocked stays so: pthread_sigmask unblocks that of pthread_cancel whenever it sets a
// mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, kKernelMaskBytes); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  static constexpr std::size_t kKernelMaskBytes = 8;
  sigset_t before_{};
};

}  // namespace ai_prof
