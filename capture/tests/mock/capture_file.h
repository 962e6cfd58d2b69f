// A capture file read back by the shortest way, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "ai_prof/format.h"

namespace ai_prof::test {

class CaptureFile {
 public:
  explicit CaptureFile(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
    format::Preamble start{};
    copy(start, 0);
    header = bytes_.substr(sizeof start, start.header_bytes);
    for (std::size_t at = sizeof start + start.header_bytes; at < bytes_.size();) at = block(at);
  }

  template <typename Record>
  std::vector<Record> records(format::BlockType type) const {
    const auto found = payloads_.find(type);
    if (found == payloads_.end()) return {};
    std::vector<Record> all(found->second.size() / sizeof(Record));
    std::memcpy(all.data(), found->second.data(), all.size() * sizeof(Record));
    return all;
  }

  // The last LOSS of a type; zeros when there is none.
  format::LossRecord loss(format::BlockType type) const {
    format::LossRecord last{};
    for (const auto& loss : records<format::LossRecord>(format::kLoss)) {
      if (loss.type == type) last = loss;
    }
    return last;
  }

  std::string name(std::uint32_t id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? "?" : found->second;
  }

  bool says(const std::string& text) const { return meta.find(text) != std::string::npos; }

  std::string header;
  std::string meta;  // every META block, one after the other

 private:
  template <typename Value>
  void copy(Value& value, std::size_t at) const {
    if (at + sizeof value > bytes_.size()) throw std::runtime_error("the file is cut");
    std::memcpy(&value, bytes_.data() + at, sizeof value);
  }

  std::size_t block(std::size_t at) {
    format::BlockHeader header_of{};
    copy(header_of, at);
    const std::size_t size = std::size_t{header_of.record_size} * header_of.count;
    const std::string payload = bytes_.substr(at + sizeof header_of, size);
    if (payload.size() != size) throw std::runtime_error("the file is cut");
    if (header_of.type == format::kMeta) meta += payload + "\n";
    if (header_of.type == format::kString) strings(payload);
    payloads_[header_of.type] += payload;
    return at + sizeof header_of + (size + 7) / 8 * 8;
  }

  void strings(const std::string& payload) {
    for (std::size_t at = 0; at < payload.size();) {
      std::uint32_t id = 0;
      std::uint32_t size = 0;
      std::memcpy(&id, payload.data() + at, sizeof id);
      std::memcpy(&size, payload.data() + at + sizeof id, sizeof size);
      names_[id] = payload.substr(at + 8, size);
      at += 8 + (std::size_t{size} + 3) / 4 * 4;
    }
  }

  std::string bytes_;
  std::map<std::uint32_t, std::string> payloads_;
  std::map<std::uint32_t, std::string> names_;
};

}  // namespace ai_prof::test
