#include "cupti/session.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/json.h"

namespace ai_prof::cupti {
namespace {

constexpr std::chrono::milliseconds kLook{50};
// CUPTI asks for its first buffer while the context is made.
constexpr std::int64_t kComesUp = 1'000'000'000;  // ns

}  // namespace

std::atomic<Session*> Session::last_{nullptr};

Session* Session::take(const CuptiApi& api, bool up, std::string& error) {
  Session* const last = last_.load();
  State waiting = State::kWaiting;
  if (last != nullptr && last->state_.compare_exchange_strong(waiting, State::kHeld)) {
    if (up) last->was_up_ = true;
    return last;
  }
  if (last != nullptr && last->state_ != State::kLeft) {
    error = "the last capture of this process has not let go of CUPTI: " + last->stuck() +
            "; try again when it has";
    return nullptr;
  }
  auto* session = new Session(api, up);
  session->errands_.start();
  last_ = session;
  return session;
}

void Session::forget() noexcept {
  last_ = nullptr;
}

void Session::ask() noexcept {
  if (!asked()) asked_at_.store(monotonic_ns(), std::memory_order_release);
}

bool Session::up() const noexcept {
  return was_up_ || (asked() && monotonic_ns() - asked_at_ >= kComesUp);
}

std::string Session::stuck() const {
  return "CUPTI's " + errands_.still_out() + ": the device may be stuck in a kernel";
}

bool Session::subscribe(CUpti_BuffersCallbackRequestFunc requested,
                        CUpti_BuffersCallbackCompleteFunc completed, Outcome& outcome) {
  if (subscriber_ != nullptr) return true;  // taken over
  // Subscribing is the only way to learn that another client is there.
  if (!cupti::subscribe(api_, subscriber_, outcome.error)) return false;
  set_attributes(api_, outcome.problems);
  const CUptiResult registered = api_.cuptiActivityRegisterCallbacks(requested, completed);
  if (registered == CUPTI_SUCCESS) return true;
  outcome.error = "CUPTI takes no buffers: " + api_.describe(registered);
  return false;
}

bool Session::enable(const Config& config, Contexts contexts, Outcome& outcome) {
  if (!cupti::enable(api_, config, contexts, outcome.problems, outcome.error)) return false;
  enabled_as_ = config;
  enabled_ = true;
  return true;
}

bool Session::disable() {
  if (!std::exchange(enabled_, false)) return false;
  cupti::disable(api_, enabled_as_);
  return true;
}

void Session::flush(std::uint32_t flag, Recorder& recorder) {
  const CUptiResult result = api_.cuptiActivityFlushAll(flag);
  if (result != CUPTI_SUCCESS) recorder.meta("flush_error", json_string(api_.describe(result)));
  std::size_t dropped = 0;
  if (api_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped != 0) {
    recorder.cupti_dropped(dropped);
  }
}

// It is never finalized: programs that replay CUDA graphs crash of that, and later profilers of the program
// record nothing.
void Session::leave(Outcome& outcome) {
  state_ = State::kWaiting;
  while (enabled_ && !up()) {
    std::this_thread::sleep_for(kLook);
    if (state_ != State::kWaiting || Recorder::exiting()) return;
  }
  State waiting = State::kWaiting;
  if (Recorder::exiting() || !state_.compare_exchange_strong(waiting, State::kHeld)) return;
  if (disable() && asked()) api_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  unsubscribe(outcome);
}

void Session::drop() {
  Outcome nobodys;
  unsubscribe(nobodys);
}

void Session::unsubscribe(Outcome& outcome) {
  const CUptiResult result = subscriber_ != nullptr ? api_.cuptiUnsubscribe(subscriber_) : CUPTI_SUCCESS;
  if (result != CUPTI_SUCCESS) outcome.error = "CUPTI keeps its subscriber: " + api_.describe(result);
  errands_.close();
  state_ = State::kLeft;
}

void Session::widen(Config& config) const {
  if (!enabled_) return;
  config.level = std::max(config.level, enabled_as_.level);
  config.graphs = std::max(config.graphs, enabled_as_.graphs);
}

}  // namespace ai_prof::cupti
