#include "core/window.h"

#include "core/say.h"

namespace ai_prof {
namespace {

Window::Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Window::Clock::duration>(std::chrono::duration<double>(count));
}

}  // namespace

Window::Window(const Config& config, Clock::time_point now)
    : config_(config), opens_(now + seconds(config.delay_s)) {
  turn(now);
}

void Window::begun(Clock::time_point now) {
  if (state_ == State::kOpen) closes_ = now + seconds(config_.duration_s);
}

Window::State Window::turn(Clock::time_point now) {
  if (counting() && now >= searches_) {
    iterations_.search();
    searches_ = now + kSearchEvery;
  }
  if (state_ == State::kBefore && now >= opens_) state_ = State::kWatching;
  if (state_ == State::kWatching && (!config_.steady || iterations_.settled())) {
    state_ = State::kOpen;
    closes_ = now + seconds(config_.duration_s);
    passed_before_ = iterations_.passed();
  }
  if (state_ == State::kOpen) {
    const bool late = config_.duration_s > 0 && now >= closes_;
    // One more: the window opens and closes within an iteration.
    const bool enough = config_.iterations != 0 && iterations_.passed() > passed_before_ + config_.iterations;
    if (late || enough) state_ = State::kOver;
  }
  return state_;
}

std::string_view Window::problem() const {
  if (state_ == State::kBefore) return "the program ended within AI_PROF_DELAY: nothing is recorded";
  if (state_ == State::kWatching) {
    return "no iterations settled for AI_PROF_STEADY: nothing is recorded; use AI_PROF_DELAY instead";
  }
  if (config_.iterations != 0 && !iterations_.settled()) {
    return "no iterations settled for AI_PROF_ITERATIONS: all is recorded";
  }
  return {};
}

void Window::tell(Recorder& recorder) const {
  const std::string_view what = problem();
  if (what.empty()) return;
  say(what);
  recorder.error(what);
}

}  // namespace ai_prof
