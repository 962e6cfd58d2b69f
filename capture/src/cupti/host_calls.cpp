#include "cupti/host_calls.h"

#include "core/give_back.h"

namespace ai_prof::cupti {
namespace {

// More calls than a program makes in two rounds.
constexpr std::size_t kRuntimeSlots = std::size_t{1} << 18;

format::SyncKind sync_kind(std::string_view name) {
  if (name.find("Stream") != std::string_view::npos) return format::kStreamSynchronize;
  if (name.find("Event") != std::string_view::npos) return format::kEventSynchronize;
  return format::kContextSynchronize;
}

// CUPTI does not say of which context, stream or event a call was.
format::SyncRecord sync_record(const CallRow& row, const format::CallRecord& call) {
  format::SyncRecord sync{};
  sync.start = call.start;
  sync.end = call.end;
  sync.kind = sync_kind(row.name);
  sync.correlation = call.correlation;
  sync.device = format::kNone32;
  sync.context = format::kNone32;
  sync.stream = format::kNone32;
  sync.thread = call.thread;
  return sync;
}

}  // namespace

HostCalls::HostCalls() : runtime_(kRuntimeSlots, 0) {}

// Interned once a call, not once a record.
std::uint32_t HostCalls::name_of(const CallRow* row, Recorder& recorder) {
  const auto [found, added] = names_.try_emplace(row, 0);
  if (added) found->second = recorder.intern(plain_name(row->name));
  return found->second;
}

format::CallRecord HostCalls::call_record(const Api& record, const CallRow& row, Recorder& recorder) {
  format::CallRecord call{};
  call.start = static_cast<std::int64_t>(record.start);
  call.end = static_cast<std::int64_t>(record.end);
  call.name = name_of(&row, recorder);
  call.kind = row.kind;
  call.thread = record.threadId;
  call.correlation = record.correlationId;
  call.result = static_cast<std::int32_t>(record.returnValue);
  return call;
}

std::uint32_t& HostCalls::runtime_slot(std::uint32_t correlation) {
  return runtime_[correlation % kRuntimeSlots];
}

void HostCalls::add(const Api& record, Recorder& recorder) {
  // Others come while they are being switched off.
  const CallRow* row = find_call(record.kind, record.cbid);
  if (row == nullptr) return;
  const Call call{row, call_record(record, *row, recorder)};
  if (record.kind == CUPTI_ACTIVITY_KIND_RUNTIME) {
    runtime_slot(record.correlationId) = record.correlationId;
    write(call, recorder);
  } else {
    fresh_.push_back(call);
  }
}

void HostCalls::round(Recorder& recorder) {
  write_outermost(waiting_, recorder);
  waiting_.swap(fresh_);
}

void HostCalls::forget() {
  give_back(runtime_);
  give_back(fresh_);
  give_back(waiting_);
  give_back(names_);
}

void HostCalls::finish(Recorder& recorder) {
  write_outermost(waiting_, recorder);
  write_outermost(fresh_, recorder);
}

void HostCalls::write(const Call& call, Recorder& recorder) {
  const std::uint32_t kind = call.row->kind;
  if (wanted_.syncs && kind == format::kCallSync) {
    recorder.add(format::kSync, sync_record(*call.row, call.record));
  }
  if (!wanted_.calls) return;
  if (kind == format::kCallLaunch || kind == format::kCallGraphLaunch) ++launches_;
  recorder.add(format::kCall, call.record);
}

void HostCalls::write_outermost(MappedVector<Call>& calls, Recorder& recorder) {
  for (const Call& call : calls) {
    const std::uint32_t correlation = call.record.correlation;
    if (runtime_slot(correlation) != correlation) write(call, recorder);
  }
  calls.clear();
}

}  // namespace ai_prof::cupti
