// NVML with two GPUs. The second is that of the mock driver: 1 GiB of its memory belongs to a process that
// was there before, and more is used at every later reading. It does not tell its power.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "cupti/nvml_api.h"

using namespace ai_prof::cupti::nvml;

namespace {

constexpr Result kNotSupported = 3;
constexpr Result kNotFound = 6;
constexpr unsigned long long kGiB = 1ull << 30;
constexpr const char* kUuids[] = {"GPU-ffffffff-0000-0000-0000-000000000000",
                                  "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"};
char g_gpus[2];
std::atomic<unsigned> g_memory_readings{0};
std::atomic<int> g_initialized{0};

Device gpu(unsigned index) {
  return reinterpret_cast<Device>(&g_gpus[index]);
}

bool ours(Device device) {
  return device == gpu(1);
}

}  // namespace

extern "C" {

Result nvmlInit_v2() {
  ++g_initialized;
  return kSuccess;
}

Result nvmlShutdown() {
  --g_initialized;
  return kSuccess;
}

// How often it was initialized and not yet shut down.
int mock_nvml_initialized() {
  return g_initialized;
}

Result nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::snprintf(text, bytes, "580.159");
  return kSuccess;
}

Result nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return kSuccess;
}

Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = gpu(index);
  return kSuccess;
}

Result nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  if (std::strcmp(uuid, kUuids[1]) != 0) return kNotFound;
  *device = gpu(1);
  return kSuccess;
}

Result nvmlDeviceGetUUID(Device device, char* uuid, unsigned bytes) {
  std::snprintf(uuid, bytes, "%s", kUuids[ours(device) ? 1 : 0]);
  return kSuccess;
}

Result nvmlDeviceGetUtilizationRates(Device device, Utilization* rates) {
  *rates = ours(device) ? Utilization{97, 12} : Utilization{1, 1};
  return kSuccess;
}

Result nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  const unsigned long long used = kGiB * (ours(device) ? 1 + g_memory_readings++ : 0);
  *memory = {141 * kGiB, 141 * kGiB - used, used};
  return kSuccess;
}

Result nvmlDeviceGetClockInfo(Device, int clock, unsigned* megahertz) {
  *megahertz = clock == kClockSm ? 1980 : 3201;
  return kSuccess;
}

Result nvmlDeviceGetTemperature(Device, int, unsigned* degrees) {
  *degrees = 61;
  return kSuccess;
}

Result nvmlDeviceGetPowerUsage(Device, unsigned*) {
  return kNotSupported;
}

Result nvmlDeviceGetCurrentClocksThrottleReasons(Device, unsigned long long* reasons) {
  *reasons = 0x8;
  return kSuccess;
}

Result nvmlDeviceGetComputeRunningProcesses_v3(Device, unsigned* count, Process* processes) {
  const bool before = g_memory_readings < 2;  // the first reading is of a program that has no context yet
  *count = before ? 1 : 2;
  processes[0] = {1, kGiB, 0, 0};
  if (!before) processes[1] = {static_cast<unsigned>(getpid()), kGiB, 0, 0};
  return kSuccess;
}

}  // extern "C"
