#include "core/say.h"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <span>
#include <string>

#include "core/write_signals.h"

namespace ai_prof {
namespace {

std::atomic<void (*)(std::string_view) noexcept> g_listener{nullptr};

}  // namespace

void say_to(void (*listener)(std::string_view) noexcept) noexcept {
  g_listener.store(listener);
}

void say(std::string_view problem) noexcept {
  if (const auto listener = g_listener.load(); listener != nullptr) {
    listener(problem);
    return;
  }
  try {
    std::string line = "ai-prof: ";
    line.append(problem).push_back('\n');
    for (char& c : std::span(line).first(line.size() - 1)) {
      if (c == '\n' || c == '\r') c = ' ';
    }
    const NoWriteSignals guard;
    // One write, so that lines of several processes don't mix. Nothing can be done where stderr is closed.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  } catch (const std::exception&) {  // no memory for a message
  }
}

}  // namespace ai_prof
