#include "cupti/device_sampler.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/clock.h"
#include "core/json.h"

namespace ai_prof::cupti {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kEvery{500};
constexpr int kMostOfOurTime = 20;  // one part in

// NVML's answer, or `none` where it has no such function or the card no such reading.
template <typename Value, typename Function, typename... Arguments>
Value ask(Function function, Value none, nvml::Device device, Arguments... arguments) {
  Value value{};
  const bool told =
      function != nullptr && device != nullptr && function(device, arguments..., &value) == nvml::kSuccess;
  return told ? value : none;
}

// In a container the driver may number processes otherwise than we do: where the program uses the device and
// none of the numbers is ours, one of them is.
std::uint32_t other_processes(const nvml::Api& api, nvml::Device device, bool used) {
  std::array<nvml::Process, 64> processes{};
  auto count = static_cast<unsigned>(processes.size());
  if (api.processes == nullptr || device == nullptr) return format::kNone32;
  const nvml::Result result = api.processes(device, &count, processes.data());
  if (result != nvml::kSuccess && result != nvml::kInsufficientSize) return format::kNone32;
  const auto known = std::span(processes).first(result == nvml::kSuccess ? count : 0);
  const auto own = static_cast<unsigned>(getpid());
  const bool named = std::ranges::any_of(known, [own](const nvml::Process& each) { return each.pid == own; });
  return named || (used && count != 0) ? count - 1 : count;
}

}  // namespace

std::string uuid_text(const char* prefix, const std::uint8_t (&bytes)[16]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = prefix;
  for (std::size_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  }
  return text;
}

void DeviceSampler::begin(Recorder& recorder) {
  ready_ = api_.init != nullptr && api_.init() == nvml::kSuccess;
  char version[96] = {};
  const bool told = ready_ && api_.driver_version != nullptr &&
                    api_.driver_version(version, sizeof version) == nvml::kSuccess;
  recorder.meta("nvidia_driver", told ? json_string(version) : "null");
  unsigned count = 0;
  if (!ready_ || api_.count == nullptr || api_.by_index == nullptr || api_.uuid == nullptr) return;
  if (api_.count(&count) != nvml::kSuccess) return;
  for (unsigned index = 0; index < count; ++index) {
    nvml::Device gpu = nullptr;
    char uuid[nvml::kUuidBytes] = {};
    if (api_.by_index(index, &gpu) != nvml::kSuccess) continue;  // not ours to see
    if (api_.uuid(gpu, uuid, sizeof uuid) == nvml::kSuccess) before_[uuid] = read({gpu, gpu}, false);
  }
}

DeviceSampler::Handles DeviceSampler::find(const format::DeviceRecord& device) const {
  Handles handles;
  if (api_.by_uuid == nullptr) return handles;
  if (api_.by_uuid(uuid_text("GPU-", device.uuid).c_str(), &handles.gpu) == nvml::kSuccess) {
    handles.device = handles.gpu;
  } else if (api_.by_uuid(uuid_text("MIG-", device.uuid).c_str(), &handles.device) == nvml::kSuccess) {
    handles.gpu = ask<nvml::Device>(api_.parent, nullptr, handles.device);
  } else {
    handles = {};
  }
  return handles;
}

format::SampleRecord DeviceSampler::read(const Handles& handles, bool used) const {
  constexpr unsigned kNone = format::kNone32;
  constexpr unsigned long long kNoneLong = format::kNone64;
  const auto rates = ask(api_.utilization, nvml::Utilization{kNone, kNone}, handles.device);
  const auto memory = ask(api_.memory, nvml::Memory{kNoneLong, kNoneLong, kNoneLong}, handles.device);
  format::SampleRecord sample{};
  sample.time = monotonic_ns();
  sample.gpu_utilization = rates.gpu;
  sample.memory_utilization = rates.memory;
  sample.sm_clock = ask(api_.clock, kNone, handles.gpu, nvml::kClockSm);
  sample.memory_clock = ask(api_.clock, kNone, handles.gpu, nvml::kClockMemory);
  sample.temperature = ask(api_.temperature, kNone, handles.gpu, nvml::kTemperatureGpu);
  sample.power = ask(api_.power, kNone, handles.gpu);
  sample.other_processes = other_processes(api_, handles.device, used);
  sample.throttle_reasons = ask(api_.throttle_reasons, kNoneLong, handles.gpu);
  sample.memory_used = memory.used;
  sample.memory_total = memory.total;
  return sample;
}

void DeviceSampler::sample(std::span<const format::DeviceRecord> devices, bool now, Recorder& recorder) {
  const auto started = steady_clock::now();
  if (!ready_ || (!now && started < due_)) return;
  for (const format::DeviceRecord& device : devices) {
    const auto add = [&](format::SampleRecord sample) {
      sample.device = device.device;
      recorder.add(format::kSample, sample);
    };
    const auto [known, added] = known_.try_emplace(device.device);
    if (added) {
      known->second = find(device);
      const auto before = before_.find(uuid_text("GPU-", device.uuid));
      if (before != before_.end()) add(before->second);
    }
    if (known->second.device != nullptr) add(read(known->second, true));
  }
  // A slow driver must not keep this thread from the records.
  due_ = started + std::max<steady_clock::duration>(kEvery, kMostOfOurTime * (steady_clock::now() - started));
}

void DeviceSampler::end(Recorder& recorder) {
  if (!std::exchange(ready_, false) || api_.shutdown == nullptr) return;
  const nvml::Result result = api_.shutdown();
  if (result != nvml::kSuccess) recorder.meta("nvml_error", std::to_string(result));
}

}  // namespace ai_prof::cupti
