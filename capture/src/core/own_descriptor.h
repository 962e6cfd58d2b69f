// A descriptor of ours in the program's table. One that the program closed under us, as daemons do, may be a
// file of its own by now, and is left alone.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace ai_prof {

class OwnDescriptor {
 public:
  OwnDescriptor() = default;  // none
  // Takes over `descriptor`.
  explicit OwnDescriptor(int descriptor) noexcept : descriptor_(descriptor) {
    struct stat found{};
    if (descriptor_ < 0 || fstat(descriptor_, &found) != 0) return;
    device_ = found.st_dev;
    inode_ = found.st_ino;
  }
  OwnDescriptor(OwnDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), device_(other.device_), inode_(other.inode_) {}
  OwnDescriptor& operator=(OwnDescriptor&&) = delete;
  ~OwnDescriptor() { close(); }

  int get() const noexcept { return descriptor_; }

  bool still_ours() const noexcept {
    struct stat found{};
    const bool open = descriptor_ >= 0 && fstat(descriptor_, &found) == 0;
    return open && found.st_dev == device_ && found.st_ino == inode_;
  }

  void close() noexcept {
    if (still_ours()) ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_ = -1;
  dev_t device_ = 0;  // with inode_, the file that it was opened for
  ino_t inode_ = 0;
};

}  // namespace ai_prof
