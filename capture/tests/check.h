// The tests' whole framework: CHECK, temporary folders and child processes.
#pragma once

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ai_prof::test {

inline int g_failures = 0;

// NOLINTNEXTLINE: a macro knows the line and the words of the condition
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++ai_prof::test::g_failures;                                         \
    }                                                                      \
  } while (false)

inline int verdict() {
  return g_failures == 0 ? 0 : 1;
}

// A folder that goes with the object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ai-prof-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(path)) found.push_back(entry.path());
    return found;
  }

  std::filesystem::path path;
};

// Whether every other thread of this process sleeps.
inline bool others_sleep() {
  const std::string own = std::to_string(syscall(SYS_gettid));
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == own) continue;
    std::string state;  // none when the thread has ended meanwhile
    std::getline(std::ifstream(task.path() / "stat"), state);
    if (!state.empty() && state.find(") S") == std::string::npos) return false;
  }
  return true;
}

// A fork when the other threads have come to rest: what one of them holds of a sanitizer's allocator stays
// locked in the child.
inline pid_t fork_at_rest() {
  std::fflush(nullptr);
  while (!others_sleep()) usleep(1000);
  return fork();
}

// Runs `work` in a forked child, which then exits in order; gives its exit status, or -1 after a signal.
template <class Work>
int in_child(Work&& work) {
  const pid_t child = fork_at_rest();
  if (child == 0) {
    work();
    std::exit(verdict());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace ai_prof::test
