#include "core/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "core/crc32c.h"
#include "core/standard_streams.h"
#include "core/write_signals.h"

namespace ai_prof {
namespace {

constexpr std::size_t kAlignment = 8;
constexpr std::uint64_t kReserve = 8192;  // of a bounded file: room for LOSS, META and END
constexpr int kMostFiles = 100000;        // of one process

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

bool make_directories(const std::string& path, std::string& problem) {
  for (std::size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at);
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
      struct stat found{};
      const int error = errno;
      if (stat(part.c_str(), &found) != 0) {
        problem = "can't make the directory " + part + ": " + reason(error) + "; set AI_PROF_OUTPUT";
        return false;
      }
    }
    if (at != std::string::npos) ++at;
  }
  return true;
}

// A host name may hold nothing that a file name can't.
std::string file_stem(const FileWish& wish) {
  std::string host = wish.host;
  for (char& c : host) {
    if (c == '/' || c == '\0') c = '_';
  }
  return wish.directory + "/" + host + "-" + std::to_string(wish.pid) + "-";
}

std::string padded(std::string header) {
  header.append((kAlignment - header.size() % kAlignment) % kAlignment, ' ');
  return header;
}

bool may_pass_bound(format::BlockType type) {
  return type == format::kLoss || type == format::kMeta || type == format::kEnd;
}

}  // namespace

FileWriter::FileWriter(int descriptor, std::string path, std::uint64_t max_bytes)
    : file_(descriptor), path_(std::move(path)), max_bytes_(max_bytes) {}

std::unique_ptr<FileWriter> FileWriter::open_new(const FileWish& wish, std::string& problem) {
  if (!make_directories(wish.directory, problem)) return nullptr;
  const std::string stem = file_stem(wish);
  int descriptor = -1;
  std::string path;
  for (int n = 0; n < kMostFiles && descriptor < 0; ++n) {
    path = stem + std::to_string(n) + ".aiprof";
    descriptor = off_standard_streams(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor < 0) {
    problem = "can't create " + path + ": " + reason(errno) + "; set AI_PROF_OUTPUT";
    return nullptr;
  }
  return std::unique_ptr<FileWriter>(new FileWriter(descriptor, path, wish.max_bytes));
}

std::unique_ptr<FileWriter> FileWriter::create(const FileWish& wish, std::string& problem) {
  std::unique_ptr<FileWriter> file;
  if (wish.descriptor < 0) {
    file = open_new(wish, problem);
    if (!file) return nullptr;
  } else {
    file.reset(new FileWriter(wish.descriptor, "the capture's file", wish.max_bytes));
  }
  const std::string header = padded(wish.header);
  format::Preamble preamble{};
  std::memcpy(preamble.magic, format::kMagic, sizeof preamble.magic);
  preamble.major = format::kMajor;
  preamble.minor = format::kMinor;
  preamble.header_bytes = static_cast<std::uint32_t>(header.size());
  preamble.header_crc = crc32c(bytes_of(header));
  std::string start(reinterpret_cast<const char*>(&preamble), sizeof preamble);
  start += header;
  if (!file->append(bytes_of(start))) {
    const char* const remedy = wish.descriptor < 0 ? "set AI_PROF_OUTPUT" : "record into another folder";
    problem = "can't write " + file->path() + ": " + reason(errno) + "; " + remedy;
    return nullptr;
  }
  return file;
}

bool FileWriter::append(std::span<const std::byte> bytes) {
  if (!file_.still_ours()) {
    ++write_errors_;
    errno = EBADF;
    return false;
  }
  const NoWriteSignals guard;
  std::uint64_t at = offset_;
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written == 0 ? ENOSPC : errno;
      ++write_errors_;
      // Half a block would hide what follows it. Where this fails too, the next write covers it.
      [[maybe_unused]] const int cut = ftruncate(file_.get(), static_cast<off_t>(offset_));
      errno = error;
      return false;
    }
    at += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  offset_ = at;
  return true;
}

FileWriter::Put FileWriter::block(format::BlockType type, std::uint32_t record_size, std::uint32_t count,
                                  std::span<const std::byte> payload) {
  format::BlockHeader header{type, record_size, count, 0};
  const std::size_t padding = (kAlignment - payload.size() % kAlignment) % kAlignment;
  const std::uint64_t size = sizeof header + payload.size() + padding;
  const bool bounded = max_bytes_ != 0 && !may_pass_bound(type);
  full_ = full_ || (bounded && offset_ + size + kReserve > max_bytes_);
  if (full_ && bounded) return Put::kFull;
  header.crc = crc32c(payload, crc32c(bytes_of(header).first(offsetof(format::BlockHeader, crc))));
  const std::span<const std::byte> head = bytes_of(header);
  scratch_.assign(head.begin(), head.end());
  scratch_.insert(scratch_.end(), payload.begin(), payload.end());
  scratch_.resize(size);
  return append(scratch_) ? Put::kWritten : Put::kFailed;
}

}  // namespace ai_prof
