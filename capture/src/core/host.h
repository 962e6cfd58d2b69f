// Facts about this process and machine for a file's header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"

namespace ai_prof {

std::string host_name();
std::vector<std::string> command_line();

// The id of the container in the text of /proc/self/cgroup or /proc/self/mountinfo; empty outside one. Pure.
std::string find_container_id(std::string_view proc_text);

// The header's JSON object.
std::string make_header(const Config& config, std::string_view source);

}  // namespace ai_prof
