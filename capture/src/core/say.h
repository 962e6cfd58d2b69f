// The library's only words on stderr: one line a problem.
#pragma once

#include <string_view>

namespace ai_prof {

void say(std::string_view problem) noexcept;

// From now on `listener` gets them instead: stderr of a program that was attached to is not ours.
void say_to(void (*listener)(std::string_view) noexcept) noexcept;

}  // namespace ai_prof
