// A process that was started with AI_PROF_ENABLE=standby: it waits to be woken, and needs no ptrace then.
#pragma once

namespace ai_prof::agent {

// Makes the control page that an attacher looks for, and the thread that waits at it. Once in a process.
void stand_by() noexcept;

}  // namespace ai_prof::agent
