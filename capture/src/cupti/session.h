// CUPTI as this library holds it: from the subscription until CUPTI is left. What may stand in the driver, as
// a flush does behind a kernel that does not end, is done by a thread of the session's own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "core/config.h"
#include "core/errands.h"
#include "core/recorder.h"
#include "cupti/cupti_api.h"
#include "cupti/subscription.h"

namespace ai_prof::cupti {

// Lives for ever: CUPTI's callbacks may be inside it.
class Session {
 public:
  // What calls into CUPTI have to say.
  struct Outcome {
    bool ok = false;
    std::string error;  // why not
    Problems problems;  // that do not stop a capture
  };

  // The next capture's: the last one's where that still waits for CUDA, else a new one. `up`: the program has
  // a context. Null, and why in `error`, where the last one has not left CUPTI. Throws std::system_error.
  static Session* take(const CuptiApi& api, bool up, std::string& error);
  // In a forked child, where CUDA can't be used.
  static void forget() noexcept;

  // ---- CUPTI's callbacks, on any thread ----
  // It asks for a buffer: CUDA is there, and CUPTI may be flushed.
  void ask() noexcept;

  // ---- any thread ----
  [[nodiscard]] bool asked() const noexcept { return asked_at_.load(std::memory_order_acquire) != 0; }
  // The program had a context before us.
  [[nodiscard]] bool was_up() const noexcept { return was_up_; }
  // CUDA has come up in the program, and CUPTI may be left. While it comes up it must not be: a later
  // profiler of the program would record nothing.
  [[nodiscard]] bool up() const noexcept;
  // Of what has not returned, for people.
  [[nodiscard]] std::string stuck() const;
  Errands& errands() { return errands_; }

  // ---- errands; at the start of a program, on the thread that initializes CUDA ----
  bool subscribe(CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed,
                 Outcome& outcome);
  // On top of what is enabled already.
  bool enable(const Config& config, Contexts contexts, Outcome& outcome);
  // False where nothing was enabled.
  bool disable();
  void flush(std::uint32_t flag, Recorder& recorder);
  // Once CUDA is up; until then the next capture may take the session over. Not while the program ends:
  // letting go of CUPTI while the driver goes has deadlocked.
  void leave(Outcome& outcome);
  // At once, where nothing could be enabled.
  void drop();

  // What of `config` is enabled as well, as a capture before wanted it; none of it could be disabled.
  void widen(Config& config) const;

 private:
  enum class State { kHeld, kWaiting, kLeft };

  Session(CuptiApi api, bool up) : api_(std::move(api)), was_up_(up) {}
  void unsubscribe(Outcome& outcome);

  static std::atomic<Session*> last_;

  const CuptiApi api_;
  Errands errands_;
  std::atomic<State> state_{State::kHeld};
  std::atomic<bool> was_up_;
  std::atomic<std::int64_t> asked_at_{0};  // CLOCK_MONOTONIC, ns

  CUpti_SubscriberHandle subscriber_ = nullptr;
  Config enabled_as_;
  bool enabled_ = false;
};

}  // namespace ai_prof::cupti
