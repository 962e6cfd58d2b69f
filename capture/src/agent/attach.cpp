// The way in of an attacher: ai_prof_attach runs on a borrowed thread of the target and does no more there
// than start the agent's own.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <thread>

#include "agent/control.h"
#include "agent/descriptors.h"
#include "agent/serve.h"
#include "core/signals_blocked.h"
#include "core/standard_streams.h"

namespace ai_prof::agent {
namespace {

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
__attribute__((constructor)) void loaded() noexcept {
  ai_prof_loaded = 1;
}
}  // namespace

// Takes over all three descriptors. The answer comes through the control block. `library` is what this
// library was loaded from, -1 when it was there already.
extern "C" __attribute__((visibility("default"))) int ai_prof_attach(int control_descriptor, int socket,
                                                                     int library) noexcept {
  using namespace ai_prof::agent;
  if (library >= 0) close_without_cancelling(library);
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
