// The settings of a capture as an attacher writes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/config.h"

namespace ai_prof::agent {

// Pure. `text` is NAME=VALUE, each NUL-terminated, the AI_PROF_* variables. Nullopt, and why in `problem`.
std::optional<Config> parse_settings(std::string_view text, std::string& problem);

}  // namespace ai_prof::agent
