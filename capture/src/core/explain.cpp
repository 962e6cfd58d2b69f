#include "core/explain.h"

#include <new>
#include <system_error>

namespace ai_prof {

std::string explain(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "a limit of the program's memory leaves the buffers no room (ulimit -v or -d): lower "
           "AI_PROF_BUFFER_MB";
  }
  if (dynamic_cast<const std::system_error*>(&error) != nullptr) {
    return std::string("can't start the capture's threads (ulimit -u or -v): ") + error.what();
  }
  return error.what();
}

}  // namespace ai_prof
