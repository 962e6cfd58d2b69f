// The descriptors that the attacher hands in.
#pragma once

namespace ai_prof::agent {

struct Passed {
  int output = -1;  // the capture's file
  int cupti = -1;   // a libcupti for a target that has none; may be absent
};

// Takes what waits in `socket`. `output` stays -1 when nothing does.
Passed receive(int socket) noexcept;

}  // namespace ai_prof::agent
