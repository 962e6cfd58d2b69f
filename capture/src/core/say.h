// The library's only words on stderr: one line a problem.
#pragma once

#include <string_view>

namespace ai_prof {

void say(std::string_view problem) noexcept;

}  // namespace ai_prof
