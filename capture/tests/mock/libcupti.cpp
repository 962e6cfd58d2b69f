// A libcupti that has no GPU: it replays what a test emits, through buffers asked for and given back as the
// real one does.
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "mock_cupti.h"

namespace {

constexpr std::int64_t kClockOrigin =
    1'700'000'000'000'000'000;  // the mock's clock is CLOCK_MONOTONIC plus this

MockCupti g_mock;
std::mutex g_mutex;
struct CallsHeard {
  std::mutex mutex;
  std::string all;
  std::string last;
};

// For ever: a thread may be in here while the program ends.
CallsHeard& heard() {
  static auto* heard = new CallsHeard;
  return *heard;
}

std::atomic<bool> g_stands{false};

// A flush that does not return. In a program of its own a file says so.
void stand_while_stuck() {
  const char* const while_there = std::getenv("MOCK_CUPTI_FLUSH_IS_STUCK_WHILE");
  while (g_mock.flush_stuck || (while_there != nullptr && access(while_there, F_OK) == 0)) {
    g_stands = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  g_stands = false;
}

void leaving() {
  if (!g_mock.context_made) ++g_mock.left_too_early;
}

// At the head of each function that the real one makes itself ready for.
void called(const char* name) {
  if (g_stands) ++g_mock.called_while_stuck;
  const std::lock_guard lock(heard().mutex);
  if (heard().last != name) heard().all += std::string(name) + " ";
  heard().last = name;
}

// Likewise for ever.
auto& g_kinds = *new std::set<CUpti_ActivityKind>;
// Calls switched on and off one by one. As on a real device: what was on when the context was made decides
// whether single switches do anything, and a kind that is switched on forgets them.
struct Calls {
  std::set<std::uint32_t> on;
  std::set<std::uint32_t> off;
  bool armed = false;  // some were on, or the kind, before the context was made or the kind since then
  bool hooked =
      false;  // CUPTI's hooks stay where a kind is switched off in which calls are off by themselves
};
auto& g_runtime = *new Calls;
auto& g_driver = *new Calls;
CUpti_BuffersCallbackRequestFunc g_requested = nullptr;
CUpti_BuffersCallbackCompleteFunc g_completed = nullptr;

struct Buffer {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
  std::size_t used = 0;
};
Buffer g_buffer;

bool wanted(const CUpti_Activity& record) {
  const auto& api = reinterpret_cast<const CUpti_ActivityAPI&>(record);
  const bool whole = g_kinds.count(record.kind) != 0;
  if (record.kind != CUPTI_ACTIVITY_KIND_RUNTIME && record.kind != CUPTI_ACTIVITY_KIND_DRIVER) return whole;
  const Calls& calls = record.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? g_runtime : g_driver;
  if (whole) return calls.off.count(api.cbid) == 0;
  return calls.armed && calls.on.count(api.cbid) != 0;
}

void give_back() {
  const Buffer full = g_buffer;
  g_buffer = {};
  if (full.data != nullptr) g_completed(nullptr, 0, full.data, full.size, full.used);
}

void make_room(std::size_t bytes) {
  if (g_buffer.data != nullptr && g_buffer.size - g_buffer.used >= bytes) return;
  give_back();
  std::size_t most_records = 1;
  g_requested(&g_buffer.data, &g_buffer.size, &most_records);
}

std::size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel9);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy5);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(CUpti_ActivitySynchronization);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return sizeof(CUpti_ActivityOverhead);
    case CUPTI_ACTIVITY_KIND_MARKER:
      return sizeof(CUpti_ActivityMarker2);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return sizeof(CUpti_ActivityGraphTrace2);
    case CUPTI_ACTIVITY_KIND_CONTEXT:
      return sizeof(CUpti_ActivityContext);
    default:
      return 0;
  }
}

// Records lie at multiples of 8.
std::size_t room_of(CUpti_ActivityKind kind) {
  return (size_of(kind) + g_mock.record_growth + 7) / 8 * 8;
}

std::int64_t monotonic() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

CUptiResult switch_call(Calls& calls, std::uint32_t id, std::uint8_t on) {
  const std::lock_guard lock(g_mutex);
  if (!g_mock.context_made) calls.armed = true;
  (on != 0 ? calls.on : calls.off).insert(id);
  (on != 0 ? calls.off : calls.on).erase(id);
  calls.hooked = true;
  return CUPTI_SUCCESS;
}

void switch_kind(CUpti_ActivityKind kind, bool on) {
  if (kind != CUPTI_ACTIVITY_KIND_RUNTIME && kind != CUPTI_ACTIVITY_KIND_DRIVER) return;
  Calls& calls = kind == CUPTI_ACTIVITY_KIND_RUNTIME ? g_runtime : g_driver;
  if (on) {
    calls = {{}, {}, true, true};
  } else {
    calls = {{}, calls.off, false, calls.hooked && !calls.off.empty()};
  }
}

}  // namespace

extern "C" {

MockCupti* mock_cupti() {
  return &g_mock;
}

void mock_calls(std::string* calls) {
  const std::lock_guard lock(heard().mutex);
  *calls = heard().all;
}

std::uint64_t mock_now() {
  return static_cast<std::uint64_t>(monotonic() + kClockOrigin + g_mock.clock_jump);
}

void mock_emit(const void* record, std::size_t bytes) {
  const std::lock_guard lock(g_mutex);
  const auto& activity = *static_cast<const CUpti_Activity*>(record);
  if (activity.kind != CUPTI_ACTIVITY_KIND_MARKER) g_mock.context_made = true;
  if (g_requested == nullptr || !wanted(activity)) return;
  const std::size_t room = room_of(activity.kind);
  make_room(room);
  std::uint8_t* at = g_buffer.data + g_buffer.used;
  std::memset(at, 0xA5, room);
  std::memcpy(at, record, bytes);
  g_buffer.used += room;
}

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = g_mock.version;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR_OF_THE_MOCK";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  called("subscribe");
  if (g_mock.subscribe_result != CUPTI_SUCCESS) return g_mock.subscribe_result;
  const char* takes_ms = std::getenv("MOCK_CUPTI_SUBSCRIBES_IN_MS");
  if (takes_ms != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(takes_ms)));
  if (std::getenv("MOCK_CUPTI_IS_HELD") != nullptr) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&g_mock);
  g_mock.subscribed = true;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  called("unsubscribe");
  leaving();
  if (g_runtime.hooked || g_driver.hooked) ++g_mock.left_hooked;
  std::this_thread::sleep_for(std::chrono::milliseconds(g_mock.unsubscribe_takes_ms));
  g_mock.subscribed = false;
  return CUPTI_SUCCESS;
}

// Crashes programs that replay graphs: nobody must call it.
CUptiResult cuptiFinalize() {
  ++g_mock.finalized;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(std::uint64_t* now) {
  called("timestamp");
  *now = mock_now();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  called("register");
  const std::lock_guard lock(g_mutex);
  g_requested = requested;
  g_completed = completed;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  called("enable");
  const std::lock_guard lock(g_mutex);
  const bool kernel = kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  if (kernel && g_mock.enable_kernel_result != CUPTI_SUCCESS) return g_mock.enable_kernel_result;
  g_kinds.insert(kind);
  switch_kind(kind, true);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  called("disable");
  leaving();
  const std::lock_guard lock(g_mutex);
  g_kinds.erase(kind);
  switch_kind(kind, false);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, std::size_t*, void*) {
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute, std::size_t* bytes, void* value) {
  std::memset(value, 0, *bytes);
  *static_cast<std::uint8_t*>(value) = 64;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  std::this_thread::sleep_for(std::chrono::milliseconds(g_mock.next_record_takes_ms));
  std::uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<std::uint8_t*>(*record) + room_of((*record)->kind);
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return size_of((*record)->kind) != 0 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  called("dropped");
  const std::lock_guard lock(g_mutex);
  *dropped = g_mock.dropped;
  g_mock.dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(std::uint32_t flag) {
  const bool forced = (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0;
  called(forced ? "force" : "flush");
  const unsigned takes_ms = forced ? g_mock.forced_flush_takes_ms : g_mock.flush_takes_ms;
  std::this_thread::sleep_for(std::chrono::milliseconds(takes_ms));
  stand_while_stuck();
  const std::lock_guard lock(g_mutex);
  if (!forced) ++g_mock.flushes;
  if (forced && g_mock.last_record_runs) ++g_mock.kept;
  if (forced || !g_mock.last_record_runs) give_back();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType) {
  return CUPTI_SUCCESS;
}

#ifndef MOCK_OLD  // releases before 12.8 have neither
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, std::uint8_t on) {
  return switch_call(g_runtime, id, on);
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, std::uint8_t on) {
  return switch_call(g_driver, id, on);
}
#endif

}  // extern "C"
