#include "core/config.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <new>
#include <string_view>

#include "core/say.h"

namespace ai_prof {
namespace {

constexpr std::string_view kPrefix = "AI_PROF_";
constexpr double kLongestWindow_s = 1e9;

std::optional<std::string_view> lookup(const char* const* environment, std::string_view name) {
  for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=') {
      return text.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

template <class Number>
bool parse_number(std::string_view text, Number most, Number& out) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  if (!(value >= Number{0} && value <= most)) return false;  // refuses NaN as well
  out = value;
  return true;
}

bool parse_megabytes(std::string_view text, std::uint64_t least, std::uint64_t& bytes) {
  std::uint64_t megabytes = 0;
  if (!parse_number(text, std::uint64_t{1} << 30, megabytes) || megabytes < least) return false;
  bytes = megabytes << 20;
  return true;
}

template <class Choice>
bool parse_choice(std::string_view text, std::string_view first, Choice if_first, std::string_view second,
                  Choice if_second, Choice& out) {
  if (text != first && text != second) return false;
  out = text == first ? if_first : if_second;
  return true;
}

bool parse_mode(std::string_view text, Mode& mode) {
  if (text == "standby") {
    mode = Mode::kStandby;
    return true;
  }
  return parse_choice(text, "0", Mode::kOff, "1", Mode::kOn, mode);
}

bool parse_note(std::string_view text, std::vector<std::pair<std::string, std::string>>& note) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    const std::size_t equals = item.find('=');
    if (equals == 0 || equals == std::string_view::npos) return false;
    note.emplace_back(item.substr(0, equals), item.substr(equals + 1));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
  }
  return true;
}

bool parse_id(std::string_view text, std::string& id) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  if (text.size() > 64 || !std::all_of(text.begin(), text.end(), plain)) return false;
  id = text;
  return true;
}

struct Variable {
  std::string_view name;  // without the prefix
  std::string_view wants;
  bool (*parse)(std::string_view, Config&);
};

constexpr Variable kVariables[] = {
    {"ENABLE", "0, 1 or standby", [](std::string_view v, Config& c) { return parse_mode(v, c.mode); }},
    {"OUTPUT", "a directory",
     [](std::string_view v, Config& c) {
       c.output = v;
       return true;
     }},
    {"LEVEL", "kernel or api",
     [](std::string_view v, Config& c) {
       return parse_choice(v, "kernel", Level::kKernel, "api", Level::kApi, c.level);
     }},
    {"BUFFER_MB", "a whole number from 1",
     [](std::string_view v, Config& c) { return parse_megabytes(v, 1, c.buffer_bytes); }},
    {"GRAPHS", "node or graph",
     [](std::string_view v, Config& c) {
       return parse_choice(v, "node", Graphs::kNode, "graph", Graphs::kGraph, c.graphs);
     }},
    {"MAX_FILE_MB", "a whole number, 0 for no bound",
     [](std::string_view v, Config& c) { return parse_megabytes(v, 0, c.max_file_bytes); }},
    {"DELAY", "seconds",
     [](std::string_view v, Config& c) { return parse_number(v, kLongestWindow_s, c.delay_s); }},
    {"DURATION", "seconds, 0 for no limit",
     [](std::string_view v, Config& c) { return parse_number(v, kLongestWindow_s, c.duration_s); }},
    {"ITERATIONS", "a whole number, 0 for no limit",
     [](std::string_view v, Config& c) { return parse_number(v, std::uint64_t{1} << 62, c.iterations); }},
    {"STEADY", "0 or 1",
     [](std::string_view v, Config& c) { return parse_choice(v, "0", false, "1", true, c.steady); }},
    {"NOTE", "key=value,...", [](std::string_view v, Config& c) { return parse_note(v, c.note); }},
    {"CUPTI", "the path of a libcupti",
     [](std::string_view v, Config& c) {
       c.cupti = v;
       return true;
     }},
    {"CAPTURE_ID", "up to 64 letters, digits, '-', '_' and '.'",
     [](std::string_view v, Config& c) { return parse_id(v, c.capture_id); }},
};

bool parse_variable(std::string_view name, std::string_view value, Config& config, std::string& problem) {
  const auto known = std::find_if(std::begin(kVariables), std::end(kVariables),
                                  [&](const Variable& v) { return name.substr(kPrefix.size()) == v.name; });
  if (known == std::end(kVariables)) {
    problem = std::string(name) + " is not a variable of ai-prof; unset it. Capture stays off.";
    return false;
  }
  if (value.empty() || known->parse(value, config)) return true;  // empty is unset
  problem = std::string(name) + "=" + std::string(value) + " is not valid: it takes " +
            std::string(known->wants) + ". Capture stays off.";
  return false;
}

std::string draw_id() {
  unsigned char bytes[8] = {};
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    return std::to_string(getpid());
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (const unsigned char byte : bytes) id += {kDigits[byte >> 4], kDigits[byte & 15]};
  return id;
}

std::string default_output() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64] = {};
  std::strftime(text, sizeof text, "ai-prof-%Y%m%dT%H%M%SZ", &utc);
  return text;
}

std::string absolute(const std::string& path) {
  char here[PATH_MAX] = {};
  if (path.starts_with('/') || getcwd(here, sizeof here) == nullptr) return path;
  return std::string(here) + "/" + path;
}

// So that children and ranks write into the same capture.
void share(Config& config) {
  if (config.capture_id.empty()) config.capture_id = draw_id();
  config.output = absolute(config.output.empty() ? default_output() : config.output);
  setenv("AI_PROF_CAPTURE_ID", config.capture_id.c_str(), 1);
  setenv("AI_PROF_OUTPUT", config.output.c_str(), 1);
}

Config load() noexcept {
  try {
    std::string problem;
    std::optional<Config> parsed = parse_config(environ, problem);
    if (!parsed) {
      say(problem);
      return {};
    }
    if (parsed->mode == Mode::kOn) share(*parsed);  // who wakes it from standby says where to
    return *std::move(parsed);
  } catch (const std::exception& error) {
    say(error.what());
    return {};
  }
}

}  // namespace

std::optional<Config> parse_config(const char* const* environment, std::string& problem) {
  Config config;
  const std::string_view enable = lookup(environment, "AI_PROF_ENABLE").value_or("");
  if (enable.empty() || enable == "0") return config;
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    if (!parse_variable(text.substr(0, equals), text.substr(equals + 1), config, problem))
      return std::nullopt;
  }
  return config;
}

const Config& config() noexcept {
  static const Config* const parsed = new (std::nothrow) Config(load());  // outlives every thread
  static const Config off;
  return parsed != nullptr ? *parsed : off;
}

}  // namespace ai_prof
