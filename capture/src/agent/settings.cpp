#include "agent/settings.h"

#include <vector>

namespace ai_prof::agent {

std::optional<Config> parse_settings(std::string_view text, std::string& problem) {
  std::vector<std::string> settings;
  while (!text.empty()) {
    settings.emplace_back(text.substr(0, text.find('\0')));
    text.remove_prefix(settings.back().size() < text.size() ? settings.back().size() + 1 : text.size());
  }
  std::vector<const char*> environment;
  environment.reserve(settings.size() + 1);
  for (const std::string& setting : settings) environment.push_back(setting.c_str());
  environment.push_back(nullptr);
  std::optional<Config> config = parse_config(environment.data(), problem);
  if (config && config->mode != Mode::kOn) {
    problem = "the attacher's settings do not start a capture";
    return std::nullopt;
  }
  return config;
}

}  // namespace ai_prof::agent
