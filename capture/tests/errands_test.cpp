// A thread for calls that may not return, and how long those who give it one wait.
#include "core/errands.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "check.h"

namespace {

using namespace ai_prof;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{30'000};  // with a busy machine; none of it is waited for nothing

void what_returns_is_waited_for() {
  auto* errands = new Errands;
  errands->start();
  int done = 0;
  for (int i = 1; i <= 3; ++i) {
    milliseconds patience = kPatience;
    CHECK(errands->run("sum", [&] { done += i; }, patience));
    CHECK(!errands->out());
  }
  CHECK(done == 6);
  milliseconds patience = kPatience;
  CHECK(errands->run("fault", [] { throw std::runtime_error("the driver said no"); }, patience));
  errands->close();
}

// It is told, what was given after it follows once it has returned, and then the thread ends.
void what_does_not_return_is_left_alone() {
  auto* errands = new Errands;
  errands->start();
  static std::atomic<bool> stuck{true};
  static std::atomic<bool> followed{false};
  milliseconds patience{200};
  const auto stand = [] {
    while (stuck) std::this_thread::sleep_for(milliseconds{5});
  };
  CHECK(!errands->run("flush", stand, patience));
  CHECK(patience == milliseconds{0});
  CHECK(errands->out());
  CHECK(errands->still_out().starts_with("flush has not returned for"));
  CHECK(!errands->run("end", [] { followed = true; }, patience));
  errands->close();
  CHECK(!followed);
  stuck = false;
  for (int i = 0; i < 3000 && errands->out(); ++i) std::this_thread::sleep_for(milliseconds{10});
  CHECK(followed && !errands->out());
}

}  // namespace

int main() {
  what_returns_is_waited_for();
  what_does_not_return_is_left_alone();
  return test::verdict();
}
