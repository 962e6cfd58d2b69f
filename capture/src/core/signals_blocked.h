// Keeps the program's signals away from the library's threads.
#pragma once

#include <pthread.h>

#include <csignal>

namespace ai_prof {

// Blocks every signal while it lives, so that a thread started under it never takes one of the program's.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace ai_prof
