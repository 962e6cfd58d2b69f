#include "core/patience.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace ai_prof {

bool runnable(int thread) noexcept {
  char text[64] = {};
  std::snprintf(text, sizeof text, "/proc/self/task/%d/stat", thread);
  const int file = open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  text[std::max<ssize_t>(size, 0)] = '\0';
  const char* const name_end = std::strrchr(text, ')');
  return name_end != nullptr && std::strncmp(name_end, ") R", 3) == 0;
}

}  // namespace ai_prof
