// What an exception means to who can do something about it.
#pragma once

#include <exception>
#include <string>

namespace ai_prof {

std::string explain(const std::exception& error);

}  // namespace ai_prof
