// The AI_PROF_* variables, parsed in one place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ai_prof {

enum class Mode { kOff, kOn, kStandby };
enum class Level { kKernel, kApi };
enum class Graphs { kNode, kGraph };

struct Config {
  Mode mode = Mode::kOff;
  Level level = Level::kKernel;
  Graphs graphs = Graphs::kNode;
  std::string output;        // directory; absolute in config() of a capture that is on
  std::string capture_id;    // never empty in config() of a capture that is on
  std::string cupti;         // path of the libcupti to use; empty: search
  std::string cupti_passed;  // for a process that has none; not a variable
  int descriptor = -1;       // an open file to record into; not a variable. -1: make one in `output`
  bool attached = false;     // the program ran before the capture came; not a variable
  std::uint64_t buffer_bytes = 256ull << 20;  // bound of our own buffers
  std::uint64_t max_file_bytes = 0;           // 0: no bound
  double delay_s = 0;                         // the window; 0: none
  double duration_s = 0;                      // 0: no limit
  std::uint64_t iterations = 0;               // 0: no limit
  bool steady = false;                        // start once iterations have settled
  std::vector<std::pair<std::string, std::string>> note;
};

// Pure. `environment` is NULL-terminated and holds NAME=VALUE. A bad value, or an AI_PROF_* that is not
// known, sets `problem` and gives nullopt. Where AI_PROF_ENABLE is unset or 0, nothing else is looked at.
std::optional<Config> parse_config(const char* const* environment, std::string& problem);

// This process's configuration: parsed at the first call, problems said on stderr. When a capture is on, the
// id and the absolute output directory are drawn where they are missing and exported to the environment.
const Config& config() noexcept;

}  // namespace ai_prof
