#include "agent/standby.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <thread>

#include "agent/control.h"
#include "agent/serve.h"
#include "core/say.h"
#include "core/signals_blocked.h"
#include "core/standard_streams.h"
#include "core/write_signals.h"

namespace ai_prof::agent {
namespace {

constexpr std::chrono::milliseconds kLook{250};  // a process may stand by for weeks

Control* new_page(int descriptor) noexcept {
  const NoWriteSignals guard;
  if (descriptor < 0 || ftruncate(descriptor, sizeof(Control)) != 0) return nullptr;
  void* page = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (page == MAP_FAILED) return nullptr;
  auto* control = new (page) Control{};
  control->pid.store(getpid());
  std::memcpy(control->magic, kControlMagic, sizeof kControlMagic);
  return control;
}

[[noreturn]] void wait_at(Control& control, int descriptor) noexcept {
  pthread_setname_np(pthread_self(), "ai-prof-standby");
  const OwnDescriptor page(descriptor);
  for (;;) {
    std::this_thread::sleep_for(kLook);
    std::uint32_t woken = kWake;
    if (!control.request.compare_exchange_strong(woken, kWait)) continue;
    if (claim(control)) serve_claimed(control, page, {});
  }
}

}  // namespace

void stand_by() noexcept {
  // Stays open: attachers find it.
  const int descriptor = off_standard_streams(memfd_create(kStandbyName, MFD_CLOEXEC));
  Control* control = new_page(descriptor);
  if (control == nullptr) return say("can't stand by: this process takes no memfd");
  try {
    const SignalsBlocked blocked;
    std::thread([=] { wait_at(*control, descriptor); }).detach();
  } catch (const std::exception& error) {
    say(error.what());
  }
}

}  // namespace ai_prof::agent
