// One capture of a process that runs, steered by a control page.
#pragma once

#include <string_view>

#include "agent/control.h"
#include "agent/descriptors.h"

namespace ai_prof::agent {

// One capture at a time: false, and said in the page, when another is under way. Who claims either serves or
// releases.
bool claim(Control& control) noexcept;
void release() noexcept;

// No capture comes of it, and why.
void fail(Control& control, std::string_view why) noexcept;

// Waits for the attacher's go and for CUDA, records, and leaves how it ended in the page's state. `page` is
// the descriptor of `control`. Without a passed output the capture makes its own file where the settings say.
// The page must stay mapped until then.
void serve_claimed(Control& control, const OwnDescriptor& page, const Passed& passed) noexcept;

}  // namespace ai_prof::agent
