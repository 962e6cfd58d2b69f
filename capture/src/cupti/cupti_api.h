// CUPTI and the CUDA driver as tables of functions found at run time: the library links neither.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ai_prof::cupti {

// Without these there is no capture.
#define AI_PROF_CUPTI_REQUIRED(X)      \
  X(cuptiGetVersion)                   \
  X(cuptiGetResultString)              \
  X(cuptiSubscribe)                    \
  X(cuptiUnsubscribe)                  \
  X(cuptiGetTimestamp)                 \
  X(cuptiActivityRegisterCallbacks)    \
  X(cuptiActivityEnable)               \
  X(cuptiActivityDisable)              \
  X(cuptiActivitySetAttribute)         \
  X(cuptiActivityGetAttribute)         \
  X(cuptiActivityGetNextRecord)        \
  X(cuptiActivityGetNumDroppedRecords) \
  X(cuptiActivityFlushAll)

// Absent in older releases; null then.
#define AI_PROF_CUPTI_OPTIONAL(X)  \
  X(cuptiSetThreadIdType)          \
  X(cuptiActivityEnableRuntimeApi) \
  X(cuptiActivityEnableDriverApi)

struct CuptiApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name
#define AI_PROF_MEMBER(name) decltype(&::name) name = nullptr;
  AI_PROF_CUPTI_REQUIRED(AI_PROF_MEMBER)
  AI_PROF_CUPTI_OPTIONAL(AI_PROF_MEMBER)
#undef AI_PROF_MEMBER

  std::string path;           // the file that was loaded
  std::uint32_t version = 0;  // cuptiGetVersion

  [[nodiscard]] std::string describe(CUptiResult result) const;
  [[nodiscard]] bool selects_calls() const {
    return cuptiActivityEnableRuntimeApi != nullptr && cuptiActivityEnableDriverApi != nullptr;
  }
};

// The driver's calls that need no context. All null when libcuda is absent.
struct DriverApi {
  decltype(&::cuDriverGetVersion) cuDriverGetVersion = nullptr;
  decltype(&::cuDeviceGetCount) cuDeviceGetCount = nullptr;
  decltype(&::cuDevicePrimaryCtxGetState) cuDevicePrimaryCtxGetState = nullptr;
  decltype(&::cuDeviceGet) cuDeviceGet = nullptr;
  decltype(&::cuDeviceGetName) cuDeviceGetName = nullptr;
  decltype(&::cuDeviceGetUuid) cuDeviceGetUuid = nullptr;
  decltype(&::cuDeviceTotalMem) cuDeviceTotalMem = nullptr;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute = nullptr;

  [[nodiscard]] int version() const;  // 13000 for CUDA 13.0; 0 when unknown
  // A device has its primary context, the one of CUDA's runtime. Not before cuInit.
  [[nodiscard]] bool has_context() const;
};

DriverApi load_driver();

// Opens the first libcupti of `candidates` that has every required function. On failure returns false and
// `error` says what was tried.
bool load_cupti(const std::vector<std::string>& candidates, CuptiApi& api, std::string& error);

}  // namespace ai_prof::cupti
