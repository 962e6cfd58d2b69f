// How many records a second reach the disk. The mock emits kernels and their launches, half each, evenly in
// time. Usage: throughput LIBRARY MOCK MOCK_CUDA [RECORDS_A_SECOND [SECONDS]]; 2,000,000 and 10 where not
// said. Prints what was sent, kept and lost; exits with 1 when anything was lost or is not accounted for.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "check.h"
#include "emit.h"
#include "program.h"

namespace {

using namespace ai_prof;
using namespace ai_prof::test;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBurst = 1000;  // pairs

void send(const Mock& mock, std::uint64_t pairs, double rate) {
  const Clock::time_point start = Clock::now();
  std::uint32_t correlation = 0;
  for (std::uint64_t sent = 0; sent < pairs; sent += kBurst) {
    const std::uint64_t now = mock.now();
    for (std::uint32_t i = 0; i < kBurst; ++i) {
      ++correlation;
      mock.emit(call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, now + i,
                     correlation));
      mock.emit(kernel("k", now + i, now + i + 1, correlation));
    }
    std::this_thread::sleep_until(start +
                                  std::chrono::duration<double>(2.0 * static_cast<double>(sent) / rate));
  }
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("sent %llu records in %.2f s: %.2f million a second\n",
              static_cast<unsigned long long>(2 * pairs), took, 2e-6 * static_cast<double>(pairs) / took);
  std::fflush(stdout);
}

// The last LOSS block, found without reading what lies between: the file is large.
std::vector<format::LossRecord> losses(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  format::Preamble begin{};
  file.read(reinterpret_cast<char*>(&begin), sizeof begin);
  file.seekg(begin.header_bytes, std::ios::cur);
  std::vector<format::LossRecord> last;
  for (format::BlockHeader block{}; file.read(reinterpret_cast<char*>(&block), sizeof block);) {
    const std::size_t bytes = std::size_t{block.record_size} * block.count;
    const std::streampos next = file.tellg() + static_cast<std::streamoff>((bytes + 7) / 8 * 8);
    if (block.type == format::kLoss) {
      last.resize(block.count);
      file.read(reinterpret_cast<char*>(last.data()), static_cast<std::streamsize>(bytes));
    }
    file.seekg(next);
  }
  return last;
}

int measure(const Parts& parts, double rate, double seconds) {
  const Folder folder;
  const std::uint64_t pairs = static_cast<std::uint64_t>(rate * seconds / 2) / kBurst * kBurst;
  Program program;
  program.environment = {{"AI_PROF_LEVEL", "api"}, {"AI_PROF_OUTPUT", folder.path}};
  program.body = [&](const Mock& mock) { send(mock, pairs, rate); };
  const Outcome outcome = run(parts, program);
  std::fputs(outcome.errors.c_str(), stderr);
  if (outcome.status != 0 || folder.files().size() != 1) return 1;
  std::uint64_t kept = 0;
  std::uint64_t lost = 0;
  for (const format::LossRecord& loss : losses(folder.files().front())) {
    if (loss.type != format::kKernel && loss.type != format::kCall) continue;
    kept += loss.captured;
    lost += loss.cupti_dropped + loss.invalid_time + loss.budget_dropped + loss.unfinished;
  }
  std::printf("kept %llu, lost %llu, not accounted for %lld\n", static_cast<unsigned long long>(kept),
              static_cast<unsigned long long>(lost), static_cast<long long>(2 * pairs - kept - lost));
  return lost == 0 && kept == 2 * pairs ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  const Parts parts{words[1], words[2], "", words[3], ""};
  try {
    return measure(parts, count > 4 ? std::atof(words[4]) : 2e6, count > 5 ? std::atof(words[5]) : 10);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
