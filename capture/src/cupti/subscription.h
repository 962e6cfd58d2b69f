// CUPTI set up and torn down: who subscribes, what is recorded. Every step's return code is looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "cupti/cupti_api.h"

namespace ai_prof::cupti {

// Problems that do not stop a capture, for META.
using Problems = std::vector<std::string>;

// Takes CUPTI for this library. False, with the reason in `error`, when another client holds it.
bool subscribe(const CuptiApi& api, CUpti_SubscriberHandle& subscriber, std::string& error);

// Memory and threads; before the buffers' callbacks are registered.
void set_attributes(const CuptiApi& api, Problems& problems);

// NVTX loads what NVTX_INJECTION64_PATH names when the program first calls it; without it no range reaches
// CUPTI. Another tool's choice stays.
void lead_nvtx_to(const CuptiApi& api);

// Bytes of device memory that CUPTI may use in a context; 0 when it does not tell.
std::uint64_t device_memory_bound(const CuptiApi& api);

// Whether the program may have made a CUDA context: it decides how single calls are selected.
enum class Contexts { kNone, kPerhaps };

// Whether synchronizes are told by their calls: their own kind of record costs each launch of a program more
// than all others together, and does not say which thread waits.
bool syncs_by_calls(const CuptiApi& api, const Config& config, Contexts contexts);

// Starts recording at `config`'s level. False, with the reason in `error`, when kernels can't be recorded.
bool enable(const CuptiApi& api, const Config& config, Contexts contexts, Problems& problems,
            std::string& error);
void disable(const CuptiApi& api, const Config& config);

}  // namespace ai_prof::cupti
