// The tests' whole framework: CHECK, temporary folders and child processes.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
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

// Runs `work` in a forked child, which then exits in order; gives its exit status, or -1 after a signal.
template <class Work>
int in_child(Work&& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    work();
    std::exit(verdict());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace ai_prof::test
