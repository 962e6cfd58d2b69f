#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "check.h"
#include "core/crc32c.h"
#include "core/file_writer.h"
#include "mock/capture_file.h"

namespace {

using namespace ai_prof;
using namespace ai_prof::test;

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

FileWriter::Put put(FileWriter& file, const format::SyncRecord& record) {
  return file.block(format::kSync, sizeof record, 1, std::as_bytes(std::span(&record, 1)));
}

void header_and_blocks_come_back() {
  const Folder folder;
  std::string problem;
  const auto file = FileWriter::create({folder.path / "a/b", "ho/st", 7, "{\"x\": 1}", 0}, problem);
  CHECK(file != nullptr && problem.empty());
  CHECK(file->path() == (folder.path / "a/b/ho_st-7-0.aiprof").string());
  format::SyncRecord record{};
  record.start = 5;
  record.thread = 9;
  CHECK(put(*file, record) == FileWriter::Put::kWritten);
  const std::string text = "{\"k\": 2}x";
  CHECK(file->block(format::kMeta, 1, 9, std::as_bytes(std::span(text))) == FileWriter::Put::kWritten);
  const CaptureFile read(file->path());
  CHECK(read.header == "{\"x\": 1}");
  const auto syncs = read.records<format::SyncRecord>(format::kSync);
  CHECK(syncs.size() == 1 && syncs[0].start == 5 && syncs[0].thread == 9);
  CHECK(read.says(text));
  CHECK(read_bytes(file->path()).size() % 8 == 0);
}

// The checksum, computed here again from what FORMAT.md says.
void checksums_hold() {
  const Folder folder;
  std::string problem;
  const auto file = FileWriter::create({folder.path, "h", 1, "{}", 0}, problem);
  put(*file, {});
  const std::string bytes = read_bytes(file->path());
  format::Preamble preamble{};
  std::memcpy(&preamble, bytes.data(), sizeof preamble);
  CHECK(std::memcmp(preamble.magic, format::kMagic, 8) == 0);
  CHECK(preamble.header_bytes == 8);
  const auto all = std::as_bytes(std::span(bytes));
  CHECK(preamble.header_crc == crc32c_table(all.subspan(24, 8)));
  format::BlockHeader block{};
  std::memcpy(&block, bytes.data() + 32, sizeof block);
  std::string covered = bytes.substr(32, 12) + bytes.substr(48, sizeof(format::SyncRecord));
  CHECK(block.crc == crc32c_table(std::as_bytes(std::span(covered))));
}

void names_are_exclusive() {
  const Folder folder;
  std::string problem;
  const FileWish wish{folder.path, "h", 1, "{}", 0};
  const auto first = FileWriter::create(wish, problem);
  const auto second = FileWriter::create(wish, problem);
  CHECK(first->path().ends_with("h-1-0.aiprof"));
  CHECK(second->path().ends_with("h-1-1.aiprof"));
}

// A program that has closed its standard input gets that number for what it opens next.
void standard_streams_are_left_to_the_program() {
  const Folder folder;
  CHECK(in_child([&] {
          std::string problem;
          close(STDIN_FILENO);
          const auto file = FileWriter::create({folder.path, "h", 1, "{}", 0}, problem);
          CHECK(file != nullptr && put(*file, {}) == FileWriter::Put::kWritten);
          CHECK(open("/dev/null", O_RDONLY) == STDIN_FILENO);
        }) == 0);
}

void a_bad_folder_is_told() {
  std::string problem;
  CHECK(FileWriter::create({"/proc/none/x", "h", 1, "{}", 0}, problem) == nullptr);
  CHECK(problem.find("AI_PROF_OUTPUT") != std::string::npos);
}

void the_bound_leaves_room_for_the_end() {
  const Folder folder;
  std::string problem;
  const auto file = FileWriter::create({folder.path, "h", 1, "{}", 20000}, problem);
  FileWriter::Put last = FileWriter::Put::kWritten;
  while (last == FileWriter::Put::kWritten) last = put(*file, {});
  CHECK(last == FileWriter::Put::kFull);
  const format::EndRecord end{1, format::kEndFileFull, 0};
  CHECK(file->block(format::kEnd, sizeof end, 1, std::as_bytes(std::span(&end, 1))) ==
        FileWriter::Put::kWritten);
  CHECK(std::filesystem::file_size(file->path()) <= 20000);
}

// A program under `ulimit -f` may end by a write of its own, and never by one of ours.
void no_write_of_ours_raises_a_signal() {
  const Folder folder;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{16, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  std::signal(SIGXFSZ, SIG_DFL);
  std::string problem;
  CHECK(FileWriter::create({folder.path, "h", 1, "{}", 0}, problem) == nullptr);
  CHECK(problem.find("File too large") != std::string::npos);
  sigset_t found;
  pthread_sigmask(SIG_BLOCK, nullptr, &found);
  CHECK(sigismember(&found, SIGXFSZ) == 0);
  // The program's own, which waits, still does.
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &own, nullptr);
  raise(SIGXFSZ);
  CHECK(FileWriter::create({folder.path, "h", 1, "{}", 0}, problem) == nullptr);
  sigpending(&found);
  CHECK(sigismember(&found, SIGXFSZ) == 1);
  std::signal(SIGXFSZ, SIG_IGN);  // drops it
  pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  setrlimit(RLIMIT_FSIZE, &before);
}

// A write that fails half-way leaves no half block, and the file goes on when there is room again.
void a_failed_write_is_undone() {
  const Folder folder;
  std::string problem;
  const auto file = FileWriter::create({folder.path, "h", 1, "{}", 0}, problem);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{100, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  CHECK(put(*file, {}) == FileWriter::Put::kWritten);
  CHECK(put(*file, {}) == FileWriter::Put::kFailed);
  CHECK(file->write_errors() == 1);
  CHECK(std::filesystem::file_size(file->path()) == 88);
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(put(*file, {}) == FileWriter::Put::kWritten);
  CHECK(CaptureFile(file->path()).records<format::SyncRecord>(format::kSync).size() == 2);
}

// A daemon closes every descriptor it knows nothing of; the number then names a file of its own.
void a_descriptor_that_the_program_took_is_left_alone() {
  const Folder folder;
  std::string problem;
  const auto next = [] {
    const int lowest = dup(STDERR_FILENO);
    close(lowest);
    return lowest;
  };
  const int ours = next();
  const auto file = FileWriter::create({folder.path, "h", 1, "{}", 0}, problem);
  close(ours);
  const std::string path = folder.path / "theirs";
  CHECK(open(path.c_str(), O_RDWR | O_CREAT, 0666) == ours);
  CHECK(put(*file, {}) == FileWriter::Put::kFailed);
  CHECK(std::filesystem::file_size(path) == 0);
  file->close();
  CHECK(fcntl(ours, F_GETFD) == 0);
  close(ours);
}

}  // namespace

int main() {
  header_and_blocks_come_back();
  checksums_hold();
  names_are_exclusive();
  standard_streams_are_left_to_the_program();
  a_bad_folder_is_told();
  the_bound_leaves_room_for_the_end();
  no_write_of_ours_raises_a_signal();
  a_failed_write_is_undone();
  a_descriptor_that_the_program_took_is_left_alone();
  return verdict();
}
