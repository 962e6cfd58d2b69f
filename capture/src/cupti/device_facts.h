// What the driver says of a device.
#pragma once

#include <cstdint>

#include "core/recorder.h"
#include "cupti/cupti_api.h"

namespace ai_prof::cupti {

// The record of CUDA device `device`; what the driver does not tell stays 0, and an unknown name is "CUDA
// device N". Only once CUDA is up. Needs no context.
format::DeviceRecord describe_device(const DriverApi& driver, std::uint32_t device, Recorder& recorder);

}  // namespace ai_prof::cupti
