// The two functions by which the OpenCL loader takes the layer in (OPENCL_LAYERS).
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "core/config.h"
#include "opencl/driver.h"
#include "opencl/hooks.h"

namespace {

using namespace ai_prof::opencl;

constexpr char kName[] = "ai-prof";

// The whole table of the loader, however long, with our hooks over the driver's functions.
void** make_table(std::span<void* const> target) noexcept {
  std::copy_n(target.begin(), std::min<std::size_t>(target.size(), kSlots), g_next.begin());
  void** const table = new (std::nothrow) void*[target.size()];  // the loader keeps it for ever
  if (table == nullptr) return nullptr;
  std::copy(target.begin(), target.end(), table);
  if (ai_prof::config().mode != ai_prof::Mode::kOn) return table;
  std::array<void*, kSlots> hooks{};
  put_object_hooks(hooks);
  put_command_hooks(hooks);
  put_wait_hooks(hooks);
  for (std::size_t i = 0; i < std::min<std::size_t>(target.size(), kSlots); ++i) {
    if (hooks[i] != nullptr && target[i] != nullptr) table[i] = hooks[i];
  }
  return table;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) cl_int clGetLayerInfo(cl_uint what, std::size_t size, void* value,
                                                             std::size_t* size_needed) noexcept {
  const cl_uint version = kLayerApiVersion100;
  const std::span<const std::byte> answer = what == kLayerApiVersion ? std::as_bytes(std::span(&version, 1))
                                            : what == kLayerName     ? std::as_bytes(std::span(kName))
                                                                     : std::span<const std::byte>{};
  if (answer.empty() || (value != nullptr && size < answer.size())) return kInvalidValue;
  if (value != nullptr) std::memcpy(value, answer.data(), answer.size());
  if (size_needed != nullptr) *size_needed = answer.size();
  return kSuccess;
}

__attribute__((visibility("default"))) cl_int clInitLayer(cl_uint count, void* const* target,
                                                          cl_uint* count_given,
                                                          void* const** table_given) noexcept {
  if (target == nullptr || count_given == nullptr || table_given == nullptr) return kInvalidValue;
  *table_given = make_table(std::span(target, count));
  *count_given = count;
  return *table_given != nullptr ? kSuccess : kInvalidValue;
}

}  // extern "C"
