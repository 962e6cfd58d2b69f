// The least that a capture can cost: a CUPTI client that asks for the same records as ours, with the same
// attributes and the same flushes, and gives every buffer back unread. An injection library for the overhead
// bench. FLOOR_CUPTI names the libcupti, FLOOR_LEVEL and FLOOR_GRAPHS are as AI_PROF_LEVEL and
// AI_PROF_GRAPHS.
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cupti/cupti_api.h"
#include "cupti/subscription.h"

namespace {

using namespace ai_prof;

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::size_t kBuffers = 64;
constexpr std::chrono::milliseconds kFlushEvery{250};

cupti::CuptiApi g_api;
alignas(4096) std::uint8_t g_memory[kBuffers * kBytes];
std::atomic<std::uint64_t> g_free{~std::uint64_t{0}};
std::atomic<bool> g_alive{false};
std::atomic<bool> g_over{false};

void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  std::uint64_t free = g_free.load(std::memory_order_relaxed);
  while (free != 0 && !g_free.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire)) {
  }
  if (free == 0) std::abort();  // a floor that drops records is none
  *buffer = g_memory + static_cast<std::size_t>(std::countr_zero(free)) * kBytes;
  *bytes = kBytes;
  *most_records = 0;
  g_alive.store(true, std::memory_order_release);
}

void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) {
  const auto place = static_cast<std::size_t>(buffer - g_memory) / kBytes;
  g_free.fetch_or(std::uint64_t{1} << place, std::memory_order_release);
}

void flush_now_and_then() {
  while (!g_over.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(kFlushEvery);
    if (g_alive.load(std::memory_order_acquire)) g_api.cuptiActivityFlushAll(0);
  }
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool begin(std::string& error) {
  Config config;
  config.level = variable("FLOOR_LEVEL") == "api" ? Level::kApi : Level::kKernel;
  config.graphs = variable("FLOOR_GRAPHS") == "graph" ? Graphs::kGraph : Graphs::kNode;
  std::vector<std::string> problems;
  CUpti_SubscriberHandle subscriber = nullptr;
  if (!cupti::load_cupti({variable("FLOOR_CUPTI")}, g_api, error)) return false;
  if (!cupti::subscribe(g_api, subscriber, error)) return false;
  cupti::set_attributes(g_api, problems);
  if (g_api.cuptiActivityRegisterCallbacks(requested, completed) != CUPTI_SUCCESS) {
    error = "CUPTI takes no buffers";
    return false;
  }
  if (!cupti::enable(g_api, config, cupti::Contexts::kNone, problems, error)) return false;
  std::thread(flush_now_and_then).detach();
  std::atexit([] { g_over.store(true); });
  return true;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  std::string error;
  if (!begin(error)) {
    std::fprintf(stderr, "floor: %s\n", error.c_str());
    std::exit(1);
  }
  return 1;
}
