#include "program.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "check.h"

namespace ai_prof::test {
namespace {

namespace fs = std::filesystem;

void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

template <typename Function>
Function find(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function>(found);
}

void play(const Parts& parts, const Program& program, const fs::path& output) {
  const std::string& cupti = program.old_cupti ? parts.old_cupti : parts.cupti;
  setenv("AI_PROF_ENABLE", "1", 1);
  setenv("AI_PROF_OUTPUT", output.c_str(), 1);
  setenv("AI_PROF_CUPTI", cupti.c_str(), 1);
  for (const auto& [name, value] : program.environment) setenv(name.c_str(), value.c_str(), 1);
  open_library(parts.cuda);
  if (program.nvml) open_library(parts.nvml);
  void* mock = open_library(cupti);
  const Mock tools{find<decltype(&::mock_cupti)>(mock, "mock_cupti")(),
                   find<decltype(&::mock_emit)>(mock, "mock_emit"),
                   find<decltype(&::mock_now)>(mock, "mock_now")};
  program.prepare(*tools.control);
  const auto initialize = find<int (*)()>(open_library(parts.library), "InitializeInjection");
  if (initialize() != 1) throw std::runtime_error("InitializeInjection did not return 1");
  program.body(tools);
}

[[noreturn]] void child(const Parts& parts, const Program& program, const fs::path& folder) {
  const std::string errors = (folder / "stderr").string();
  if (std::freopen(errors.c_str(), "w", stderr) == nullptr) _exit(98);
  g_failures = 0;
  try {
    play(parts, program, folder / "capture");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(stderr);
    _exit(99);
  }
  std::exit(verdict());
}

}  // namespace

const CaptureFile& Outcome::only() const {
  if (files.size() != 1) throw std::runtime_error(std::to_string(files.size()) + " files; " + errors);
  return files.front();
}

Outcome run(const Parts& parts, const Program& program) {
  const Folder temporary;
  const fs::path& folder = temporary.path;
  const pid_t process = fork();
  if (process == 0) child(parts, program, folder);
  Outcome outcome;
  waitpid(process, &outcome.status, 0);
  std::ifstream errors(folder / "stderr");
  outcome.errors.assign(std::istreambuf_iterator<char>(errors), {});
  if (fs::exists(folder / "capture")) {
    for (const auto& entry : fs::directory_iterator(folder / "capture"))
      outcome.files.emplace_back(entry.path());
  }
  return outcome;
}

}  // namespace ai_prof::test
