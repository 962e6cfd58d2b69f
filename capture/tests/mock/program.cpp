#include "program.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

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

Mock tools_of(void* mock) {
  return {find<decltype(&::mock_cupti)>(mock, "mock_cupti")(),
          find<decltype(&::mock_emit)>(mock, "mock_emit"), find<decltype(&::mock_now)>(mock, "mock_now"),
          find<decltype(&::mock_calls)>(mock, "mock_calls")};
}

void play(const Parts& parts, const Program& program, const fs::path& output) {
  const std::string& cupti = program.old_cupti ? parts.old_cupti : parts.cupti;
  setenv("AI_PROF_ENABLE", "1", 1);
  setenv("AI_PROF_OUTPUT", output.c_str(), 1);
  setenv("AI_PROF_CUPTI", cupti.c_str(), 1);
  for (const auto& [name, value] : program.environment) setenv(name.c_str(), value.c_str(), 1);
  open_library(parts.cuda);
  if (program.nvml) open_library(parts.nvml);
  if (program.own_cupti) program.prepare(*tools_of(open_library(cupti)).control);
  const auto initialize = find<int (*)()>(open_library(parts.library), "InitializeInjection");
  if (initialize() != 1) throw std::runtime_error("InitializeInjection did not return 1");
  program.body(tools_of(open_library(cupti)));
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

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

bool ended(const Outcome& outcome, format::EndReason reason) {
  if (outcome.status != 0) std::fprintf(stderr, "status %d: %s\n", outcome.status, outcome.errors.c_str());
  const auto ends = outcome.only().records<format::EndRecord>(format::kEnd);
  return outcome.status == 0 && ends.size() == 1 && ends[0].reason == reason;
}

int run_cases(std::span<const Case> cases, int count, char** words) {
  if (count < 6) return 2;
  const Parts parts{words[1], words[2], words[3], words[4], words[5]};
  const std::vector<std::string_view> wanted(words + 6, words + count);
  for (const Case& one : cases) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), one.name) == wanted.end()) continue;
    std::printf("%.*s\n", static_cast<int>(one.name.size()), one.name.data());
    std::fflush(stdout);
    try {
      one.run(parts);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(one.name.size()), one.name.data(), error.what());
      ++g_failures;
    }
  }
  return verdict();
}

}  // namespace ai_prof::test
