// What NVML says of the GPUs that the program uses: before it does, about twice a second, and at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "core/recorder.h"
#include "cupti/nvml_api.h"

namespace ai_prof::cupti {

// Lives on the recorder's thread; only NVML is loaded where the object is made, so that its exit handlers run
// after the recorder's.
class DeviceSampler {
 public:
  DeviceSampler() : api_(nvml::Api::load()) {}

  // Initializes NVML and reads every GPU of the machine once, before the program has put anything there.
  void begin(Recorder& recorder);

  // Adds a sample of each of `devices`, those in use, if it is time to, or `now`.
  void sample(std::span<const format::DeviceRecord> devices, bool now, Recorder& recorder);

  // Gives back what NVML holds for us in the program: descriptors and memory. No sample comes after.
  void end(Recorder& recorder);

 private:
  struct Handles {
    nvml::Device device = nullptr;  // a MIG instance, or the GPU
    nvml::Device gpu = nullptr;     // the whole GPU: clocks and power are its own
  };

  [[nodiscard]] Handles find(const format::DeviceRecord& device) const;
  [[nodiscard]] format::SampleRecord read(const Handles& handles, bool used) const;

  nvml::Api api_;
  bool ready_ = false;
  std::map<std::string, format::SampleRecord> before_;  // by NVML's name of the GPU
  std::map<std::uint32_t, Handles> known_;              // by our id
  std::chrono::steady_clock::time_point due_;
};

// "GPU-" or "MIG-" and the bytes as NVML and CUDA print them.
std::string uuid_text(const char* prefix, const std::uint8_t (&bytes)[16]);

}  // namespace ai_prof::cupti
