#include "core/errands.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>

#include "core/patience.h"
#include "core/say.h"
#include "core/signals_blocked.h"

namespace ai_prof {

using std::chrono::steady_clock;

void Errands::start() {
  const SignalsBlocked blocked;
  std::thread worker([this] {
    thread_ = static_cast<int>(syscall(SYS_gettid));
    work();
  });
  pthread_setname_np(worker.native_handle(), "ai-prof-driver");
  worker.detach();
}

void Errands::work() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || closing_; });
    if (waiting_.empty()) return;
    Errand& errand = waiting_.front();
    errand.since = steady_clock::now();
    lock.unlock();
    try {
      errand.task();
    } catch (const std::exception& error) {
      say(error.what());
    }
    lock.lock();
    waiting_.pop_front();
    ++returned_;
    changed_.notify_all();
  }
}

bool Errands::run(const char* what, std::function<void()> task, std::chrono::milliseconds& patience) {
  std::unique_lock lock(mutex_);
  waiting_.push_back({what, std::move(task), steady_clock::now()});
  const std::uint64_t own = ++given_;
  changed_.notify_all();
  if (wait_patiently(changed_, lock, thread_, patience, [&] { return returned_ >= own; })) return true;
  late_ = {waiting_.front().what, {}, waiting_.front().since};
  return false;
}

bool Errands::out() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

std::string Errands::still_out() const {
  const std::lock_guard lock(mutex_);
  const Errand& late = waiting_.empty() ? late_ : waiting_.front();
  const auto seconds = std::chrono::round<std::chrono::seconds>(steady_clock::now() - late.since);
  return std::string(late.what) + " has not returned for " + std::to_string(seconds.count()) + " s";
}

void Errands::close() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  changed_.notify_all();
}

}  // namespace ai_prof
