// The descriptors 0 to 2 belong to the program, also where it has closed them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace ai_prof {

// `descriptor`, or in its place one above the standard streams': what the program prints or reads later must
// not come into our files. -1 when it has none left.
inline int off_standard_streams(int descriptor) noexcept {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;  // why it could not be moved, for the caller
  close(descriptor);
  errno = error;
  return moved;
}

}  // namespace ai_prof
