// What an attacher and the agent inside the target share: one page, a memfd of the target. The attacher opens
// it through /proc/PID/fd, so that the kernel's own check says who may steer a capture.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ai_prof::agent {

// The attacher refuses a block that starts with anything else, and so does the agent.
inline constexpr char kControlMagic[8] = {'A', 'I', 'P', 'C', 'T', 'L', '0', '1'};

// Of the memfd of a process that stands by. An attacher locks it (flock) while it fills the page, and sets
// the state to kPrepared before it wakes; else the page tells of the last capture.
inline constexpr char kStandbyName[] = "ai-prof-standby";

enum Request : std::uint32_t {
  kWait = 0,
  kGo = 1,  // start at go_at_ns
  kStop = 2,
  kWake = 3,  // to one that stands by: the settings are in the page
};

enum State : std::uint32_t {
  kPrepared = 0,    // by the attacher
  kReady = 1,       // the agent waits for kGo
  kAwaitsCuda = 2,  // the target has not initialized CUDA
  kRecording = 3,
  kEnded = 4,   // the file is closed
  kNoCuda = 5,  // the window passed, or kStop came, without CUDA
  kFailed = 6,  // `message` says why
};

struct Control {
  char magic[8];
  std::atomic<std::uint32_t> request;  // written by the attacher; looked at 20 times a second
  std::atomic<std::uint32_t> state;    // written by the agent
  std::atomic<std::int32_t> pid;       // of the target, in its own namespace; written by the agent
  std::uint32_t settings_bytes;
  std::atomic<std::int64_t> go_at_ns;  // CLOCK_MONOTONIC; set before kGo
  char message[480];                   // the last thing that the library had to say, NUL-terminated
  char settings[3584];                 // NAME=VALUE, each NUL-terminated
};

static_assert(sizeof(Control) == 4096);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(offsetof(Control, message) == 32);

}  // namespace ai_prof::agent
