// The host calls that level `api` records: which there are, what they are called and what they ask for.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ai_prof/format.h"

namespace ai_prof::cupti {

struct CallRow {
  std::uint32_t id;       // CUpti_CallbackId
  std::string_view name;  // as CUPTI spells it: cudaLaunchKernel_ptsz_v7000
  format::CallKind kind;
};

// Ids are small: none is as high.
inline constexpr std::uint32_t kCallIds = 1024;

std::span<const CallRow> runtime_calls();
std::span<const CallRow> driver_calls();

// Null when the table has no such call.
const CallRow* find_call(CUpti_ActivityKind domain, std::uint32_t id);

// The name that the programmer wrote: without the version and the per-thread-stream suffix.
std::string_view plain_name(std::string_view name);

}  // namespace ai_prof::cupti
