#include "cupti/nvml_api.h"

#include <dlfcn.h>

#include <initializer_list>

namespace ai_prof::cupti::nvml {
namespace {

template <typename Function>
void find(void* library, std::initializer_list<const char*> names, Function& function) {
  for (const char* name : names) {
    if (function == nullptr) function = reinterpret_cast<Function>(dlsym(library, name));
  }
}

}  // namespace

Api Api::load() noexcept {
  Api api;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return api;
  find(library, {"nvmlInit_v2"}, api.init);
  find(library, {"nvmlShutdown"}, api.shutdown);
  find(library, {"nvmlSystemGetDriverVersion"}, api.driver_version);
  find(library, {"nvmlDeviceGetCount_v2"}, api.count);
  find(library, {"nvmlDeviceGetHandleByIndex_v2"}, api.by_index);
  find(library, {"nvmlDeviceGetHandleByUUID"}, api.by_uuid);
  find(library, {"nvmlDeviceGetUUID"}, api.uuid);
  find(library, {"nvmlDeviceGetDeviceHandleFromMigDeviceHandle"}, api.parent);
  find(library, {"nvmlDeviceGetUtilizationRates"}, api.utilization);
  find(library, {"nvmlDeviceGetMemoryInfo"}, api.memory);
  find(library, {"nvmlDeviceGetClockInfo"}, api.clock);
  find(library, {"nvmlDeviceGetTemperature"}, api.temperature);
  find(library, {"nvmlDeviceGetPowerUsage"}, api.power);
  find(library, {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
       api.throttle_reasons);
  // One structure for both.
  find(library, {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"},
       api.processes);
  return api;
}

}  // namespace ai_prof::cupti::nvml
