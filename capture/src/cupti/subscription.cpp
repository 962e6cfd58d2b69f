#include "cupti/subscription.h"

#include <cstdlib>
#include <initializer_list>
#include <span>

#include "cupti/calls.h"

namespace ai_prof::cupti {
namespace {

// The default; 100,000 operations that the device has not finished.
constexpr std::size_t kDeviceBufferBytes = 3'200'000;
// 6.4 million operations in flight in 200 MB, a quarter of what CUPTI would take by itself.
constexpr std::size_t kDeviceBuffers = 64;

constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_MEMCPY,   CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,  CUPTI_ACTIVITY_KIND_OVERHEAD, CUPTI_ACTIVITY_KIND_MARKER,
};

void CUPTIAPI ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

template <typename Value>
void set(const CuptiApi& api, CUpti_ActivityAttribute attribute, const char* name, Value value,
         Problems& problems) {
  std::size_t bytes = sizeof value;
  const CUptiResult result = api.cuptiActivitySetAttribute(attribute, &bytes, &value);
  if (result != CUPTI_SUCCESS) problems.push_back(std::string(name) + " not set: " + api.describe(result));
}

std::uint64_t get(const CuptiApi& api, CUpti_ActivityAttribute attribute) {
  std::size_t value = 0;
  std::size_t bytes = sizeof value;
  return api.cuptiActivityGetAttribute(attribute, &bytes, &value) == CUPTI_SUCCESS ? value : 0;
}

using EnableCall = decltype(&::cuptiActivityEnableRuntimeApi);

// The calls that `level` needs: at `kernel`, those that synchronize. An older CUPTI does not know the newest,
// nor can a program on it make them: false only where it knows none.
bool enable_calls(EnableCall enable_call, std::span<const CallRow> rows, Level level) {
  bool any = false;
  for (const CallRow& row : rows) {
    if (level == Level::kKernel && row.kind != format::kCallSync) continue;
    any |= enable_call(row.id, 1) == CUPTI_SUCCESS;
  }
  return any;
}

// All calls of `domain` but those that are not ours.
bool enable_whole(const CuptiApi& api, EnableCall enable_call, CUpti_ActivityKind domain) {
  if (api.cuptiActivityEnable(domain) != CUPTI_SUCCESS) return false;
  for (std::uint32_t id = 1; id < kCallIds; ++id) {
    if (find_call(domain, id) == nullptr) enable_call(id, 0);
  }
  return true;
}

// Once a context exists, a call that is switched on by itself is not recorded: only the whole kind is, less
// the calls that are switched off after it.
void enable_calls(const CuptiApi& api, Level level, Contexts contexts, Problems& problems) {
  if (!api.selects_calls()) {
    problems.emplace_back(
        "host calls are not recorded: this CUPTI can't select single calls; use one of CUDA 12.8 or later");
    return;
  }
  if (contexts == Contexts::kPerhaps) {
    const bool runtime = enable_whole(api, api.cuptiActivityEnableRuntimeApi, CUPTI_ACTIVITY_KIND_RUNTIME);
    const bool driver = enable_whole(api, api.cuptiActivityEnableDriverApi, CUPTI_ACTIVITY_KIND_DRIVER);
    if (!runtime || !driver) problems.emplace_back("not all host calls are recorded: CUPTI refused them");
    return;
  }
  const bool runtime = enable_calls(api.cuptiActivityEnableRuntimeApi, runtime_calls(), level);
  const bool driver = enable_calls(api.cuptiActivityEnableDriverApi, driver_calls(), level);
  if (!runtime || !driver) {
    const std::string what = level == Level::kApi ? "host calls" : "synchronizes";
    problems.push_back(what + " are not recorded: CUPTI refused all of them");
  }
}

}  // namespace

bool subscribe(const CuptiApi& api, CUpti_SubscriberHandle& subscriber, std::string& error) {
  const CUptiResult result = api.cuptiSubscribe(&subscriber, ignore, nullptr);
  if (result == CUPTI_SUCCESS) return true;
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    error =
        "another tool holds CUPTI in this process (torch.profiler, Nsight Systems, Nsight Compute, cuda-gdb, "
        "compute-sanitizer or a second profiler): run without it";
  } else {
    error = "can't subscribe to CUPTI: " + api.describe(result);
  }
  return false;
}

void set_attributes(const CuptiApi& api, Problems& problems) {
  set(api, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, "device buffer size", kDeviceBufferBytes, problems);
  set(api, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, "device buffer limit", kDeviceBuffers, problems);
  // A buffer a thread would hold that thread's records back until it had filled it.
  set(api, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, "one buffer for all threads", std::uint8_t{0},
      problems);
  if (api.cuptiSetThreadIdType == nullptr) {
    problems.emplace_back("thread ids are pthread's: this CUPTI has no cuptiSetThreadIdType");
    return;
  }
  const CUptiResult result = api.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  if (result != CUPTI_SUCCESS) problems.push_back("thread ids are pthread's: " + api.describe(result));
}

void lead_nvtx_to(const CuptiApi& api) {
  setenv("NVTX_INJECTION64_PATH", api.path.c_str(), 0);
}

std::uint64_t device_memory_bound(const CuptiApi& api) {
  return get(api, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE) *
         get(api, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT);
}

bool syncs_by_calls(const CuptiApi& api, const Config& config, Contexts contexts) {
  // All calls but a few would have to be switched off once a context exists: too many at level `kernel`.
  return api.selects_calls() && (config.level == Level::kApi || contexts == Contexts::kNone);
}

bool enable(const CuptiApi& api, const Config& config, Contexts contexts, Problems& problems,
            std::string& error) {
  // Kernels first: with CONCURRENT_KERNEL refused the rest says nothing.
  const CUptiResult kernels = api.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (kernels != CUPTI_SUCCESS) {
    error = "CUPTI does not record kernels: " + api.describe(kernels);
    return false;
  }
  const auto enable_kind = [&](CUpti_ActivityKind kind) {
    const CUptiResult result = api.cuptiActivityEnable(kind);
    if (result == CUPTI_SUCCESS) return;
    problems.push_back("activity kind " + std::to_string(static_cast<int>(kind)) +
                       " is not recorded: " + api.describe(result));
  };
  for (const CUpti_ActivityKind kind : kKinds) enable_kind(kind);
  if (config.graphs == Graphs::kGraph) enable_kind(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  const bool by_calls = syncs_by_calls(api, config, contexts);
  if (!by_calls) enable_kind(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  if (by_calls || config.level == Level::kApi) enable_calls(api, config.level, contexts, problems);
  return true;
}

// Not call by call: CUPTI takes its hooks out of launches and CUDA graphs, and gives the calls that its next
// client sees numbers of their own, only where a kind of calls is switched off in which none was switched off
// by itself. A kind that is switched on forgets those.
void disable(const CuptiApi& api, const Config& config) {
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER}) {
    api.cuptiActivityDisable(kind);
    api.cuptiActivityEnable(kind);
    api.cuptiActivityDisable(kind);
  }
  // What was not enabled refuses, and that is all right.
  api.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  if (config.graphs == Graphs::kGraph) api.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  for (const CUpti_ActivityKind kind : kKinds) api.cuptiActivityDisable(kind);
  api.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
}

}  // namespace ai_prof::cupti
