// Just enough JSON to write a file's header and META.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ai_prof {

// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

std::string json_string(std::string_view text);
std::string json_list(std::span<const std::string> items);

class JsonObject {
 public:
  JsonObject& text(std::string_view key, std::string_view value) { return raw(key, json_string(value)); }
  JsonObject& integer(std::string_view key, std::int64_t value) { return raw(key, std::to_string(value)); }
  JsonObject& raw(std::string_view key, std::string_view json);  // `json` is already JSON
  bool empty() const { return body_.empty(); }
  std::string str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

}  // namespace ai_prof
