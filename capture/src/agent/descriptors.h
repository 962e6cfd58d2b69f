// The descriptors that the attacher hands in.
#pragma once

#include "core/own_descriptor.h"

namespace ai_prof::agent {

struct Passed {
  OwnDescriptor output;  // the capture's file
  OwnDescriptor cupti;   // a libcupti for a target that has none; may be absent
};

// Takes what waits in `socket`, and closes that. `output` stays -1 when nothing does.
Passed receive(int socket) noexcept;

}  // namespace ai_prof::agent
