// CRC-32C, JSON and the facts for the header.
#include <cstring>
#include <numeric>
#include <string>

#include "check.h"
#include "core/crc32c.h"
#include "core/host.h"
#include "core/json.h"

namespace {

using namespace ai_prof;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

void crc_known_answers() {
  // RFC 3720, B.4
  const std::string zeros(32, '\0');
  const std::string ones(32, '\xFF');
  std::string rising(32, '\0');
  std::iota(rising.begin(), rising.end(), '\0');
  for (const auto& crc : {crc32c, crc32c_table}) {
    CHECK(crc(bytes_of(zeros), 0) == 0x8A9136AAu);
    CHECK(crc(bytes_of(ones), 0) == 0x62A8AB43u);
    CHECK(crc(bytes_of(rising), 0) == 0x46DD794Eu);
    CHECK(crc(bytes_of("123456789"), 0) == 0xE3069283u);
    CHECK(crc({}, 0) == 0);
  }
}

void crc_paths_agree_and_continue() {
  std::string text(1000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i + i / 7);
  for (std::size_t length = 0; length < 80; ++length) {
    const auto part = bytes_of(text).subspan(length, 3 * length + length % 11);
    CHECK(crc32c(part) == crc32c_table(part));
    const auto head = part.first(length);
    CHECK(crc32c(part.subspan(length), crc32c(head)) == crc32c(part));
  }
}

void json_escapes() {
  CHECK(json_string("a\"b\\c\n\x01") == "\"a\\\"b\\\\c\\u000a\\u0001\"");
  CHECK(json_string("\xC3\xA9") == "\"\xC3\xA9\"");
  const std::vector<std::string> words = {"x", "y z"};
  CHECK(json_list(words) == "[\"x\", \"y z\"]");
  CHECK(JsonObject().str() == "{}");
  CHECK(JsonObject().text("a", "b").integer("n", -3).raw("o", "{}").str() ==
        "{\"a\": \"b\", \"n\": -3, \"o\": {}}");
}

void invalid_utf8_is_replaced() {
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(valid_utf8("\xFF") == bad);
  CHECK(valid_utf8("a\xC3") == "a" + bad);                         // cut
  CHECK(valid_utf8("\xC0\xAF") == bad + bad);                      // overlong
  CHECK(valid_utf8("\xED\xA0\x80") == bad + bad + bad);            // surrogate
  CHECK(valid_utf8("\xF4\x90\x80\x80") == bad + bad + bad + bad);  // beyond Unicode
  CHECK(valid_utf8("\xF0\x9F\x98\x80") == "\xF0\x9F\x98\x80");
}

void container_ids() {
  const std::string id(64, 'a');
  CHECK(find_container_id("0::/\n").empty());
  CHECK(find_container_id("12:cpu:/docker/" + id + "\n") == id);
  CHECK(find_container_id("0::/kubepods.slice/cri-containerd-" + id + ".scope\n") == id);
  CHECK(find_container_id("0::/" + id + "a\n").empty());  // 65 digits
  CHECK(find_container_id("/var/lib/docker/containers/" + id + "/hostname") == id);
}

}  // namespace

int main() {
  crc_known_answers();
  crc_paths_agree_and_continue();
  json_escapes();
  invalid_utf8_is_replaced();
  container_ids();
  return ai_prof::test::verdict();
}
