// The little of NVML that a sample needs, found at run time. Declared here: no package that the build uses
// has its header, and NVIDIA keeps these functions as they are by giving changed ones another name.
#pragma once

#include <cstdint>

namespace ai_prof::cupti::nvml {

using Device = struct DeviceHandle*;
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInsufficientSize = 7;

inline constexpr int kClockSm = 1;
inline constexpr int kClockMemory = 2;
inline constexpr int kTemperatureGpu = 0;
inline constexpr unsigned kUuidBytes = 96;

struct Utilization {
  unsigned gpu;
  unsigned memory;
};

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct Api {
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;  // of one init: NVML goes with the last of the process
  Result (*driver_version)(char*, unsigned) = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*by_index)(unsigned, Device*) = nullptr;
  Result (*by_uuid)(const char*, Device*) = nullptr;
  Result (*uuid)(Device, char*, unsigned) = nullptr;
  Result (*parent)(Device, Device*) = nullptr;  // the GPU of a MIG instance
  Result (*utilization)(Device, Utilization*) = nullptr;
  Result (*memory)(Device, Memory*) = nullptr;
  Result (*clock)(Device, int, unsigned*) = nullptr;
  Result (*temperature)(Device, int, unsigned*) = nullptr;
  Result (*power)(Device, unsigned*) = nullptr;
  Result (*throttle_reasons)(Device, unsigned long long*) = nullptr;
  Result (*processes)(Device, unsigned*, Process*) = nullptr;

  // Loaded, but not initialized. Null members where NVML, or the function, is absent.
  static Api load() noexcept;
};

}  // namespace ai_prof::cupti::nvml
