// The way in of an attacher: ai_prof_attach runs on a borrowed thread of the target and does no more there
// than start the agent's own.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <exception>
#include <string_view>
#include <thread>

#include "agent/control.h"
#include "agent/descriptors.h"
#include "agent/serve.h"
#include "core/signals_blocked.h"
#include "core/standard_streams.h"

namespace ai_prof::agent {
namespace {

constexpr std::string_view kImage = "/memfd:ai-prof-library (deleted)";

// On the agent's thread.
void run(Control& control, int control_descriptor, int socket) noexcept {
  const OwnDescriptor page(off_standard_streams(control_descriptor));  // attachers find it by its name
  const Passed passed = receive(socket);
  if (passed.output.get() >= 0) {
    serve_claimed(control, page, passed);
  } else {
    release();
    fail(control, "the attacher passed no file to record into");
  }
  munmap(&control, sizeof control);
}

// close() would act on a pthread_cancel that waits for the borrowed thread: it would unwind out of us.
void close_without_cancelling(int descriptor) noexcept {
  syscall(SYS_close, descriptor);
}

}  // namespace
}  // namespace ai_prof::agent

// Set by the loader once it is done with us: until then an attacher must not call us.
extern "C" {
__attribute__((visibility("default"))) volatile char ai_prof_loaded = 0;
}

namespace {
using namespace ai_prof::agent;

// The memfd that an attacher has us loaded from: to load takes the longest of an attach, and it may be gone
// by the end of it. What has come to stand at that number meanwhile is the program's.
void close_own_image() noexcept {
  constexpr std::string_view kFolder = "/proc/thread-self/fd/";
  Dl_info own{};
  if (dladdr(const_cast<const char*>(&ai_prof_loaded), &own) == 0) return;
  const std::string_view path = own.dli_fname;
  if (!path.starts_with(kFolder)) return;
  char target[64];
  const ssize_t bytes = readlink(own.dli_fname, target, sizeof target);
  if (bytes < 0 || std::string_view(target, static_cast<std::size_t>(bytes)) != kImage) return;
  const std::string_view number = path.substr(kFolder.size());
  int descriptor = -1;
  std::from_chars(number.data(), number.data() + number.size(), descriptor);
  close_without_cancelling(descriptor);
}

__attribute__((constructor)) void loaded() noexcept {
  close_own_image();
  ai_prof_loaded = 1;
}
}  // namespace

// Takes over both descriptors. The answer comes through the control block.
extern "C" __attribute__((visibility("default"))) int ai_prof_attach(int control_descriptor,
                                                                     int socket) noexcept {
  void* page = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, control_descriptor, 0);
  auto* control = static_cast<Control*>(page);
  const bool known =
      page != MAP_FAILED && std::memcmp(control->magic, kControlMagic, sizeof kControlMagic) == 0;
  if (known) control->pid.store(getpid());
  if (known && claim(*control)) {
    try {
      const ai_prof::SignalsBlocked blocked;
      std::thread([=] { run(*control, control_descriptor, socket); }).detach();
      return 0;
    } catch (const std::exception&) {  // no thread; said by the state
      release();
      control->state.store(kFailed);
    }
  }
  if (page != MAP_FAILED) munmap(page, sizeof(Control));
  close_without_cancelling(socket);
  close_without_cancelling(control_descriptor);
  return 1;
}
