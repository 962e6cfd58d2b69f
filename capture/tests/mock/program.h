// A program under capture, played by a child process: it loads the library as the driver does, emits records
// and exits.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture_file.h"
#include "mock_cupti.h"

namespace ai_prof::test {

// Paths of what was built.
struct Parts {
  std::string library;  // libai_prof.so
  std::string cupti;    // the mock
  std::string old_cupti;
  std::string cuda;
  std::string nvml;
};

// What the child can do with the mock.
struct Mock {
  MockCupti* control = nullptr;
  decltype(&::mock_emit) emit_bytes = nullptr;
  decltype(&::mock_now) now = nullptr;
  decltype(&::mock_calls) write_calls = nullptr;

  template <typename Record>
  void emit(const Record& record) const {
    emit_bytes(&record, sizeof record);
  }

  std::string calls() const {
    std::string text;
    write_calls(&text);
    return text;
  }
};

struct Program {
  std::map<std::string, std::string> environment;
  bool old_cupti = false;
  bool nvml = false;
  bool own_cupti = true;  // the mock is there before the library, which else brings it
  // Before the library is loaded; not where that brings the mock.
  std::function<void(MockCupti&)> prepare = [](MockCupti&) {};
  std::function<void(const Mock&)> body = [](const Mock&) {};
};

struct Outcome {
  int status = -1;     // as waitpid tells it; not 0 when a check in the program failed
  std::string errors;  // what the program wrote to stderr
  std::vector<CaptureFile> files;

  const CaptureFile& only() const;
};

Outcome run(const Parts& parts, const Program& program);

void sleep_ms(int ms);

// The program ended well, and its one file for that reason.
bool ended(const Outcome& outcome, format::EndReason reason);

struct Case {
  std::string_view name;
  void (*run)(const Parts&);
};

// A test's main: LIBRARY MOCK OLD_MOCK MOCK_CUDA MOCK_NVML [CASE...]; without a case, all of them.
int run_cases(std::span<const Case> cases, int count, char** words);

}  // namespace ai_prof::test
