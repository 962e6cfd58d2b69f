#include "cupti/find_cupti.h"

#include <algorithm>
#include <array>
#include <fstream>
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

bool any_contains(const std::vector<std::string>& mapped, std::string_view part) {
  return std::any_of(mapped.begin(), mapped.end(),
                     [part](const std::string& path) { return path.find(part) != std::string::npos; });
}

std::array<Major, 2> majors(const std::vector<std::string>& mapped, int driver_version) {
  const bool old_driver = driver_version > 0 && driver_version < 13000;
  const bool old_runtime =
      any_contains(mapped, "/libcudart.so.12") && !any_contains(mapped, "/libcudart.so.13");
  if (old_driver || old_runtime) return {kCuda12, kCuda13};
  return {kCuda13, kCuda12};
}

// Every ".../site-packages/" or ".../dist-packages/" that a mapped file lies in.
std::vector<std::string> package_folders(const std::vector<std::string>& mapped) {
  std::vector<std::string> folders;
  for (const std::string& path : mapped) {
    for (const std::string_view name :
         {std::string_view("/site-packages/"), std::string_view("/dist-packages/")}) {
      const std::size_t at = path.find(name);
      if (at != std::string::npos) add(folders, path.substr(0, at + name.size()));
    }
  }
  return folders;
}

// Those of `mapped` that are a libcupti.
std::vector<std::string> mapped_libcuptis(const std::vector<std::string>& mapped) {
  std::vector<std::string> found;
  std::copy_if(mapped.begin(), mapped.end(), std::back_inserter(found),
               [](const std::string& path) { return path.find("/libcupti.so") != std::string::npos; });
  return found;
}

}  // namespace

std::vector<std::string> mapped_files() {
  std::vector<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const std::string path = line.substr(at);
    if (files.empty() || files.back() != path) add(files, path);
  }
  return files;
}

std::vector<std::string> cupti_candidates(const std::string& asked, const std::vector<std::string>& mapped,
                                          int driver_version) {
  if (!asked.empty()) return {asked};
  std::vector<std::string> paths = mapped_libcuptis(mapped);
  const std::array<Major, 2> order = majors(mapped, driver_version);
  const std::vector<std::string> folders = package_folders(mapped);
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
