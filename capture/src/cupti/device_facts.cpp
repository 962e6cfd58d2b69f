#include "cupti/device_facts.h"

#include <cstring>
#include <string>

namespace ai_prof::cupti {

format::DeviceRecord describe_device(const DriverApi& driver, std::uint32_t device, Recorder& recorder) {
  format::DeviceRecord record{};
  record.device = device;
  record.kind = format::kCuda;
  std::string name = "CUDA device " + std::to_string(device);
  CUdevice handle = 0;
  if (driver.cuDeviceGet != nullptr &&
      driver.cuDeviceGet(&handle, static_cast<int>(device)) == CUDA_SUCCESS) {
    char text[256] = {};
    if (driver.cuDeviceGetName != nullptr &&
        driver.cuDeviceGetName(text, sizeof text - 1, handle) == CUDA_SUCCESS) {
      name = text;
    }
    CUuuid uuid{};
    if (driver.cuDeviceGetUuid != nullptr && driver.cuDeviceGetUuid(&uuid, handle) == CUDA_SUCCESS) {
      static_assert(sizeof uuid.bytes == sizeof record.uuid);
      std::memcpy(record.uuid, uuid.bytes, sizeof record.uuid);
    }
    std::size_t memory = 0;
    if (driver.cuDeviceTotalMem != nullptr && driver.cuDeviceTotalMem(&memory, handle) == CUDA_SUCCESS) {
      record.memory_bytes = memory;
    }
    int units = 0;
    if (driver.cuDeviceGetAttribute != nullptr &&
        driver.cuDeviceGetAttribute(&units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle) ==
            CUDA_SUCCESS) {
      record.units = static_cast<std::uint32_t>(units);
    }
  }
  record.name = recorder.intern(name);
  return record;
}

}  // namespace ai_prof::cupti
