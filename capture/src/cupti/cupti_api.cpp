#include "cupti/cupti_api.h"

#include <dlfcn.h>

#include <climits>
#include <cstdlib>
#include <utility>

namespace ai_prof::cupti {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Null, or the name of the first required function that `library` lacks.
const char* fill(void* library, CuptiApi& api) {
#define AI_PROF_FIND(name) \
  if (!find(library, #name, api.name)) return #name;
  AI_PROF_CUPTI_REQUIRED(AI_PROF_FIND)
#undef AI_PROF_FIND
#define AI_PROF_FIND(name) find(library, #name, api.name);
  AI_PROF_CUPTI_OPTIONAL(AI_PROF_FIND)
#undef AI_PROF_FIND
  return nullptr;
}

std::string file_of(void* function, const std::string& asked) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return asked;
  char resolved[PATH_MAX];
  return realpath(info.dli_fname, resolved) != nullptr ? resolved : info.dli_fname;
}

// The copy that the process has already mapped, else a fresh one.
void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return library != nullptr ? library : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

std::string CuptiApi::describe(CUptiResult result) const {
  const char* text = nullptr;
  if (cuptiGetResultString == nullptr || cuptiGetResultString(result, &text) != CUPTI_SUCCESS ||
      text == nullptr) {
    return "CUPTI error " + std::to_string(static_cast<int>(result));
  }
  return text;
}

int DriverApi::version() const {
  int version = 0;
  return cuDriverGetVersion != nullptr && cuDriverGetVersion(&version) == CUDA_SUCCESS ? version : 0;
}

bool DriverApi::has_context() const {
  int count = 0;
  if (cuDeviceGetCount == nullptr || cuDeviceGet == nullptr || cuDevicePrimaryCtxGetState == nullptr) {
    return false;
  }
  if (cuDeviceGetCount(&count) != CUDA_SUCCESS) return false;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    unsigned flags = 0;
    int active = 0;
    const bool told = cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
                      cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS;
    if (told && active != 0) return true;
  }
  return false;
}

DriverApi load_driver() {
  DriverApi driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return driver;
  find(library, "cuDriverGetVersion", driver.cuDriverGetVersion);
  find(library, "cuDeviceGetCount", driver.cuDeviceGetCount);
  find(library, "cuDevicePrimaryCtxGetState", driver.cuDevicePrimaryCtxGetState);
  find(library, "cuDeviceGet", driver.cuDeviceGet);
  find(library, "cuDeviceGetName", driver.cuDeviceGetName);
  // _v2 gives the identifier of a MIG instance rather than that of its GPU.
  if (!find(library, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)) {
    find(library, "cuDeviceGetUuid", driver.cuDeviceGetUuid);
  }
  find(library, "cuDeviceTotalMem_v2", driver.cuDeviceTotalMem);
  find(library, "cuDeviceGetAttribute", driver.cuDeviceGetAttribute);
  return driver;
}

bool load_cupti(const std::vector<std::string>& candidates, CuptiApi& api, std::string& error) {
  for (const std::string& candidate : candidates) {
    void* library = open_library(candidate);
    if (library == nullptr) {
      // One line only: the loader's reason for the file that was asked for first says most.
      if (error.empty()) {
        const char* reason = dlerror();
        error = reason != nullptr ? reason : candidate;
      }
      continue;
    }
    CuptiApi found;
    if (const char* missing = fill(library, found)) {
      error = candidate + " lacks " + missing;
      dlclose(library);
      continue;
    }
    found.path = file_of(reinterpret_cast<void*>(found.cuptiGetVersion), candidate);
    if (found.cuptiGetVersion(&found.version) != CUPTI_SUCCESS) found.version = 0;
    api = std::move(found);
    return true;
  }
  if (error.empty()) error = "no candidate";
  return false;
}

}  // namespace ai_prof::cupti
