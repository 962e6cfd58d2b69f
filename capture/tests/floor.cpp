// The least that a capture can cost: a CUPTI client that asks for the same records as ours, with the same
// attributes and the same flushes, and gives every buffer back unread. An injection library for the overhead
// bench. FLOOR_CUPTI names the libcupti, FLOOR_LEVEL and FLOOR_GRAPHS are as AI_PROF_LEVEL and
// AI_PROF_GRAPHS; FLOOR_KINDS names the kinds of record that are left out, as MEMSET,MARKER; FLOOR_SYNCS=kind
// asks for CUPTI's own records of synchronizes as well; FLOOR_DURATION is as AI_PROF_DURATION: it leaves
// CUPTI then as ours does.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
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
std::mutex g_flushing;
bool g_over = false;
Config g_config;
CUpti_SubscriberHandle g_subscriber = nullptr;

struct Kind {
  std::string_view name;
  CUpti_ActivityKind kind;
  bool left_out = false;
};
Kind g_kinds[] = {
    {"CONTEXT", CUPTI_ACTIVITY_KIND_CONTEXT},   {"MEMCPY", CUPTI_ACTIVITY_KIND_MEMCPY},
    {"MEMCPY2", CUPTI_ACTIVITY_KIND_MEMCPY2},   {"MEMSET", CUPTI_ACTIVITY_KIND_MEMSET},
    {"OVERHEAD", CUPTI_ACTIVITY_KIND_OVERHEAD}, {"MARKER", CUPTI_ACTIVITY_KIND_MARKER},
};

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

void leave() {
  cupti::disable(g_api, g_config);
  const CUptiResult flushed = g_api.cuptiActivityFlushAll(1);
  const CUptiResult left = g_api.cuptiUnsubscribe(g_subscriber);
  if (flushed == CUPTI_SUCCESS && left == CUPTI_SUCCESS) return;
  std::fprintf(stderr, "floor: leaving CUPTI failed with %d and %d\n", flushed, left);
  std::_Exit(1);
}

void flush_now_and_then(std::chrono::steady_clock::time_point until) {
  for (;;) {
    std::this_thread::sleep_for(kFlushEvery);
    const std::lock_guard lock(g_flushing);
    if (g_over) return;
    if (std::chrono::steady_clock::now() >= until) return leave();
    if (g_alive.load(std::memory_order_acquire)) g_api.cuptiActivityFlushAll(0);
  }
}

// CUPTI goes with the program: no flush may be under way then.
void end() {
  const std::lock_guard lock(g_flushing);
  g_over = true;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool leave_out(std::string_view names, std::string& error) {
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    Kind* const found = std::ranges::find(g_kinds, name, &Kind::name);
    if (found == std::end(g_kinds)) {
      error = "FLOOR_KINDS has " + std::string(name) + ", which it can't leave out";
      return false;
    }
    found->left_out = true;
  }
  return true;
}

CUptiResult CUPTIAPI enable_if_wanted(CUpti_ActivityKind kind) {
  const Kind* const found = std::ranges::find(g_kinds, kind, &Kind::kind);
  const bool left_out = found != std::end(g_kinds) && found->left_out;
  return left_out ? CUPTI_SUCCESS : g_api.cuptiActivityEnable(kind);
}

bool begin(std::string& error) {
  Config& config = g_config;
  config.level = variable("FLOOR_LEVEL") == "api" ? Level::kApi : Level::kKernel;
  config.graphs = variable("FLOOR_GRAPHS") == "graph" ? Graphs::kGraph : Graphs::kNode;
  std::vector<std::string> problems;
  if (!leave_out(variable("FLOOR_KINDS"), error)) return false;
  if (!cupti::load_cupti({variable("FLOOR_CUPTI")}, g_api, error)) return false;
  if (!cupti::subscribe(g_api, g_subscriber, error)) return false;
  cupti::set_attributes(g_api, problems);
  if (g_api.cuptiActivityRegisterCallbacks(requested, completed) != CUPTI_SUCCESS) {
    error = "CUPTI takes no buffers";
    return false;
  }
  cupti::CuptiApi wanted = g_api;
  wanted.cuptiActivityEnable = enable_if_wanted;
  if (!cupti::enable(wanted, config, cupti::Contexts::kNone, problems, error)) return false;
  const bool by_kind = variable("FLOOR_SYNCS") == "kind";
  if (by_kind && g_api.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) != CUPTI_SUCCESS) {
    error = "CUPTI has no records of synchronizes";
    return false;
  }
  const std::string seconds = variable("FLOOR_DURATION");
  auto until = std::chrono::steady_clock::time_point::max();
  if (!seconds.empty()) {
    until =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(std::lround(1e3 * std::stod(seconds)));
  }
  std::thread(flush_now_and_then, until).detach();
  std::atexit(end);
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
