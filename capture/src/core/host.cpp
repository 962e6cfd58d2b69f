#include "core/host.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/clock.h"
#include "core/json.h"

#ifndef AI_PROF_VERSION
#define AI_PROF_VERSION "unknown"
#endif

namespace ai_prof {
namespace {

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string first_line(const char* path) {
  const std::string text = read_file(path);
  return text.substr(0, text.find('\n'));
}

// The rank as torchrun, Open MPI, MPICH or Slurm tell it.
std::string rank_json() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text = value;
    int rank = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error == std::errc{} && end == text.data() + text.size()) return std::to_string(rank);
  }
  return "null";
}

std::string container_id() {
  std::string id = find_container_id(read_file("/proc/self/cgroup"));
  // With a cgroup namespace the path is "/"; the container's own /etc/hostname mount still names it.
  if (id.empty()) id = find_container_id(read_file("/proc/self/mountinfo"));
  return id;
}

std::string note_json(const Config& config) {
  JsonObject note;
  for (const auto& [key, value] : config.note) note.text(key, value);
  return note.str();
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::vector<std::string> command_line() {
  std::vector<std::string> words;
  const std::string text = read_file("/proc/self/cmdline");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::string find_container_id(std::string_view proc_text) {
  constexpr std::size_t kLength = 64;  // docker, containerd, cri-o and podman name containers by a SHA-256
  std::size_t run = 0;
  for (std::size_t i = 0; i <= proc_text.size(); ++i) {
    const char c = i < proc_text.size() ? proc_text[i] : '\n';
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (!hex && run == kLength) return std::string(proc_text.substr(i - kLength, kLength));
    run = hex ? run + 1 : 0;
  }
  return {};
}

std::string make_header(const Config& config, std::string_view source) {
  const std::string container = container_id();
  JsonObject header;
  header.text("capture_id", config.capture_id)
      .text("host", host_name())
      .integer("pid", getpid())
      .integer("ppid", getppid())
      .text("process_name", first_line("/proc/self/comm"))
      .raw("command_line", json_list(command_line()))
      .text("boot_id", first_line("/proc/sys/kernel/random/boot_id"))
      .raw("container_id", container.empty() ? "null" : json_string(container))
      .text("source", source)
      .text("level", config.level == Level::kApi ? "api" : "kernel")
      .text("graphs", config.graphs == Graphs::kGraph ? "graph" : "node")
      .text("library", AI_PROF_VERSION)
      .integer("started_realtime_ns", realtime_ns())
      .integer("started_monotonic_ns", monotonic_ns())
      .raw("note", note_json(config))
      .raw("rank", rank_json());
  return header.str();
}

}  // namespace ai_prof
