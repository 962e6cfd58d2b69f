#include "cupti/find_cupti.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace ai_prof::cupti {
namespace {

struct Major {
  const char* soname;
  const char* wheel;  // where the wheel puts it in site-packages
};

constexpr Major kCuda13{"libcupti.so.13", "nvidia/cu13/lib/libcupti.so.13"};
constexpr Major kCuda12{"libcupti.so.12", "nvidia/cuda_cupti/lib/libcupti.so.12"};

void add(std::vector<std::string>& paths, const std::string& path) {
  if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
}

bool any_contains(const std::vector<std::string>& loaded, std::string_view part) {
  return std::any_of(loaded.begin(), loaded.end(),
                     [part](const std::string& path) { return path.find(part) != std::string::npos; });
}

std::array<Major, 2> majors(const std::vector<std::string>& loaded, int driver_version) {
  const bool old_driver = driver_version > 0 && driver_version < 13000;
  const bool old_runtime =
      any_contains(loaded, "/libcudart.so.12") && !any_contains(loaded, "/libcudart.so.13");
  if (old_driver || old_runtime) return {kCuda12, kCuda13};
  return {kCuda13, kCuda12};
}

// Every ".../site-packages/" or ".../dist-packages/" that a loaded file lies in.
std::vector<std::string> package_folders(const std::vector<std::string>& loaded) {
  std::vector<std::string> folders;
  for (const std::string& path : loaded) {
    for (const std::string_view name :
         {std::string_view("/site-packages/"), std::string_view("/dist-packages/")}) {
      const std::size_t at = path.find(name);
      if (at != std::string::npos) add(folders, path.substr(0, at + name.size()));
    }
  }
  return folders;
}

// Those of `loaded` that are a libcupti.
std::vector<std::string> loaded_libcuptis(const std::vector<std::string>& loaded) {
  std::vector<std::string> found;
  std::copy_if(loaded.begin(), loaded.end(), std::back_inserter(found),
               [](const std::string& path) { return path.find("/libcupti.so") != std::string::npos; });
  return found;
}

}  // namespace

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> files;
  const auto take = [](dl_phdr_info* library, std::size_t, void* taken) {
    if (library->dlpi_name != nullptr && library->dlpi_name[0] != '\0') {
      add(*static_cast<std::vector<std::string>*>(taken), library->dlpi_name);
    }
    return 0;
  };
  dl_iterate_phdr(take, &files);
  return files;
}

std::vector<std::string> cupti_candidates(const std::string& asked, const std::vector<std::string>& loaded,
                                          int driver_version) {
  if (!asked.empty()) return {asked};
  std::vector<std::string> paths = loaded_libcuptis(loaded);
  const std::array<Major, 2> order = majors(loaded, driver_version);
  const std::vector<std::string> folders = package_folders(loaded);
  for (const Major& major : order) {
    for (const std::string& folder : folders) add(paths, folder + major.wheel);
  }
  for (const Major& major : order) {
    add(paths, major.soname);
    add(paths, std::string("/usr/local/cuda/extras/CUPTI/lib64/") + major.soname);
    add(paths, std::string("/usr/local/cuda/lib64/") + major.soname);
  }
  return paths;
}

}  // namespace ai_prof::cupti
