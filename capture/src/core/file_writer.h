// Writes one .aiprof file: preamble, header, blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ai_prof/format.h"
#include "core/give_back.h"
#include "core/mapped_vector.h"
#include "core/own_descriptor.h"

namespace ai_prof {

struct FileWish {
  std::string directory;  // made when missing
  std::string host;
  std::int64_t pid = 0;
  std::string header;           // JSON
  std::uint64_t max_bytes = 0;  // 0: no bound
  int descriptor = -1;          // an open, empty file to use instead of a new one
};

class FileWriter {
 public:
  enum class Put { kWritten, kFull, kFailed };

  // Creates HOST-PID-N.aiprof with the first N that is free, unless a descriptor is given; takes that over.
  // Null, and why in `problem`, when it can't.
  static std::unique_ptr<FileWriter> create(const FileWish& wish, std::string& problem);

  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Appends a block, all of it or nothing. LOSS, META and END may pass the bound.
  Put block(format::BlockType type, std::uint32_t record_size, std::uint32_t count,
            std::span<const std::byte> payload);

  // Closes the descriptor. In a forked child this is the whole of letting go: nothing is buffered here.
  void close() noexcept { file_.close(); }
  // Gives back its memory; nothing is written any more.
  void forget() noexcept { give_back(scratch_); }

  const std::string& path() const { return path_; }
  std::uint64_t write_errors() const { return write_errors_; }

 private:
  FileWriter(int descriptor, std::string path, std::uint64_t max_bytes);
  static std::unique_ptr<FileWriter> open_new(const FileWish& wish, std::string& problem);
  bool append(std::span<const std::byte> bytes);

  OwnDescriptor file_;
  std::string path_;
  std::uint64_t max_bytes_;
  std::uint64_t offset_ = 0;
  std::uint64_t write_errors_ = 0;
  bool full_ = false;  // then nothing bounded is written any more: what follows may need what was refused
  MappedVector<std::byte> scratch_;  // the block at hand
};

}  // namespace ai_prof
