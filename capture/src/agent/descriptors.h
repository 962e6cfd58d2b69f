// The descriptors that the attacher hands in.
#pragma once

namespace ai_prof::agent {

struct Passed {
  int output = -1;  // the capture's file
  int cupti = -1;   // a libcupti for a target that has none; may be absent
  int line = -1;    // the socket that they came by; the attacher holds its other end until it has said go
};

// Takes what waits in `socket`, and the socket. `output` stays -1 when nothing does.
Passed receive(int socket) noexcept;

void close_all(const Passed& passed) noexcept;

// The attacher has let go of its end of `line`, or has ended. False for no line.
bool is_cut(int line) noexcept;

}  // namespace ai_prof::agent
