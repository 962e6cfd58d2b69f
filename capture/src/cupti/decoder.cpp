#include "cupti/decoder.h"

#include <algorithm>
#include <utility>

#include "core/give_back.h"
#include "cupti/device_facts.h"

namespace ai_prof::cupti {
namespace {

// More than a program nests; one that never ends its ranges must not make us remember for ever.
constexpr std::size_t kMostOpenRanges = std::size_t{1} << 16;

std::int64_t time(std::uint64_t ns) {
  return static_cast<std::int64_t>(ns);
}

std::uint32_t shared_bytes(const Kernel& record) {
  return static_cast<std::uint32_t>(record.staticSharedMemory) +
         static_cast<std::uint32_t>(record.dynamicSharedMemory);
}

// Arrays lie in device memory.
std::uint32_t copy_kind(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return format::kHostToDevice;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return format::kDeviceToHost;
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return format::kDeviceToDevice;
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return format::kHostToHost;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return format::kPeerToPeer;
    default:
      return format::kCopyUnknown;
  }
}

std::uint32_t sync_kind(CUpti_ActivitySynchronizationType type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return format::kEventSynchronize;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      return format::kStreamWaitEvent;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return format::kStreamSynchronize;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return format::kContextSynchronize;
    default:
      return format::kSyncUnknown;
  }
}

// The fields that copies and memsets have in common.
template <typename Activity>
format::MemoryRecord memory_record(const Activity& record, std::uint32_t kind) {
  format::MemoryRecord memory{};
  memory.start = time(record.start);
  memory.end = time(record.end);
  memory.device = record.deviceId;
  memory.context = record.contextId;
  memory.stream = record.streamId;
  memory.kind = kind;
  memory.correlation = record.correlationId;
  memory.graph = record.graphId;
  memory.graph_node = record.graphNodeId;
  memory.bytes = record.bytes;
  memory.peer = format::kNone32;
  return memory;
}

format::MemoryRecord copy_record(const Memcpy& record) {
  format::MemoryRecord copy = memory_record(record, copy_kind(record.copyKind));
  copy.flags = (record.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0 ? format::kAsync : 0;
  if (record.srcKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ||
      record.dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE) {
    copy.flags |= format::kPageable;
  }
  return copy;
}

// CUPTI keeps its records at multiples of 8.
template <typename Activity>
const Activity& as(const CUpti_Activity& record) {
  return reinterpret_cast<const Activity&>(record);
}

// A call or a synchronize that a thread is still in.
bool host_has_not_ended(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return as<Api>(record).end == 0;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return as<Synchronization>(record).end == 0;
    default:
      return false;
  }
}

}  // namespace

std::uint32_t block_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return format::kKernel;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return format::kMemcpy;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return format::kMemset;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return format::kSync;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return format::kCall;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return format::kOverhead;
    case CUPTI_ACTIVITY_KIND_MARKER:
      return format::kRange;
    default:
      return 0;
  }
}

void Decoder::decode(const CUpti_Activity& record, Recorder& recorder) {
  any_ = true;
  if (ending_ && host_has_not_ended(record)) {
    const bool call = block_of(record.kind) == format::kCall && calls_.wanted().calls;
    return recorder.unfinished(call ? format::kCall : format::kSync);
  }
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return kernel(kernel_record(as<Kernel>(record), recorder), recorder);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return memcpy(as<Memcpy>(record), recorder);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return peer_copy(as<PeerCopy>(record), recorder);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return memset(as<Memset>(record), recorder);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return kernel(graph_record(as<GraphTrace>(record), recorder), recorder);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      // A capture before this one has asked for them.
      if (calls_.wanted().syncs) return;
      return synchronization(as<Synchronization>(record), recorder);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return calls_.add(as<Api>(record), recorder);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return overhead(as<Overhead>(record), recorder);
    case CUPTI_ACTIVITY_KIND_MARKER:
      return marker(as<Marker>(record), recorder);
    case CUPTI_ACTIVITY_KIND_CONTEXT:
      return context(as<Context>(record));
    default:
      return;
  }
}

void Decoder::watch(const CUpti_Activity& record, Recorder& recorder) {
  any_ = true;
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return window_.add(kernel_record(as<Kernel>(record), recorder));
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return window_.add(graph_record(as<GraphTrace>(record), recorder));
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return window_.add(copy_record(as<Memcpy>(record)));
    case CUPTI_ACTIVITY_KIND_CONTEXT:
      return context(as<Context>(record));
    default:
      return;
  }
}

void Decoder::kernel(const format::KernelRecord& kernel, Recorder& recorder) {
  worked(kernel.device, kernel.context, recorder);
  ++kernels_;
  if (kernel.graph == 0 || std::exchange(graph_launch_, kernel.correlation) != kernel.correlation)
    ++answered_;
  window_.add(kernel);
  add_work(format::kKernel, kernel, recorder);
}

template <class Record>
void Decoder::add_work(format::BlockType type, const Record& work, Recorder& recorder) {
  if (ending_ && work.end == 0) return unfinished_.untimed(type, work);
  if (ending_) unfinished_.timed(work);
  recorder.add(type, work);
}

format::KernelRecord Decoder::kernel_record(const Kernel& record, Recorder& recorder) {
  format::KernelRecord kernel{};
  kernel.start = time(record.start);
  kernel.end = time(record.end);
  kernel.device = record.deviceId;
  kernel.context = record.contextId;
  kernel.stream = record.streamId;
  kernel.name = names_.id(record.name, recorder);
  kernel.correlation = record.correlationId;
  kernel.graph = record.graphId;
  kernel.graph_node = record.graphNodeId;
  kernel.grid[0] = static_cast<std::uint32_t>(record.gridX);
  kernel.grid[1] = static_cast<std::uint32_t>(record.gridY);
  kernel.grid[2] = static_cast<std::uint32_t>(record.gridZ);
  kernel.block[0] = static_cast<std::uint32_t>(record.blockX);
  kernel.block[1] = static_cast<std::uint32_t>(record.blockY);
  kernel.block[2] = static_cast<std::uint32_t>(record.blockZ);
  kernel.registers = record.registersPerThread;
  kernel.shared_bytes = shared_bytes(record);
  return kernel;
}

void Decoder::memcpy(const Memcpy& record, Recorder& recorder) {
  worked(record.deviceId, record.contextId, recorder);
  const format::MemoryRecord copy = copy_record(record);
  window_.add(copy);
  add_work(format::kMemcpy, copy, recorder);
}

void Decoder::peer_copy(const PeerCopy& record, Recorder& recorder) {
  worked(record.deviceId, record.contextId, recorder);
  format::MemoryRecord copy = memory_record(record, format::kPeerToPeer);
  copy.peer = record.srcDeviceId == record.deviceId ? record.dstDeviceId : record.srcDeviceId;
  copy.flags = (record.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0 ? format::kAsync : 0;
  add_work(format::kMemcpy, copy, recorder);
}

void Decoder::memset(const Memset& record, Recorder& recorder) {
  worked(record.deviceId, record.contextId, recorder);
  format::MemoryRecord set = memory_record(record, format::kSet);
  set.flags = (record.flags & CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC) != 0 ? format::kAsync : 0;
  add_work(format::kMemset, set, recorder);
}

// One record a launch of a graph, in place of its kernels and copies.
format::KernelRecord Decoder::graph_record(const GraphTrace& record, Recorder& recorder) {
  format::KernelRecord kernel{};
  kernel.start = time(record.start);
  kernel.end = time(record.end);
  kernel.device = record.deviceId;
  kernel.context = record.contextId;
  kernel.stream = record.streamId;
  kernel.name = names_.id("cudaGraph", recorder);
  kernel.correlation = record.correlationId;
  kernel.graph = record.graphId;
  return kernel;
}

void Decoder::synchronization(const Synchronization& record, Recorder& recorder) {
  const auto known = contexts_.find(record.contextId);
  format::SyncRecord sync{};
  sync.start = time(record.start);
  sync.end = time(record.end);
  sync.kind = sync_kind(record.type);
  sync.correlation = record.correlationId;
  sync.device = known != contexts_.end() ? known->second.device : format::kNone32;
  sync.context = record.contextId;
  static_assert(CUPTI_SYNCHRONIZATION_INVALID_VALUE == format::kNone32);
  sync.stream = record.streamId;
  sync.thread = format::kNone32;
  recorder.add(format::kSync, sync);
}

void Decoder::overhead(const Overhead& record, Recorder& recorder) {
  format::OverheadRecord overhead{};
  overhead.start = time(record.start);
  overhead.end = time(record.end);
  overhead.kind = static_cast<std::uint32_t>(record.overheadKind);
  const bool of_thread = record.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD;
  overhead.thread = of_thread ? record.objectId.pt.threadId : format::kNone32;
  recorder.add(format::kOverhead, overhead);
}

// A range comes as two markers with one id; the end carries no name.
void Decoder::marker(const Marker& record, Recorder& recorder) {
  if ((record.flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0) {
    if (ranges_.size() >= kMostOpenRanges) return recorder.budget_dropped(format::kRange);
    OpenRange& open = ranges_[record.id];
    open.start = time(record.timestamp);
    open.name = names_.id(record.name, recorder);
    const bool of_thread = record.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD;
    open.thread = of_thread ? record.objectId.pt.threadId : format::kNone32;
    open.domain = record.domain != nullptr ? names_.id(record.domain, recorder) : format::kNone32;
    return;
  }
  const auto found = ranges_.find(record.id);
  if ((record.flags & CUPTI_ACTIVITY_FLAG_MARKER_END) == 0 || found == ranges_.end()) return;
  const OpenRange& open = found->second;
  recorder.add(format::kRange, format::RangeRecord{open.start, time(record.timestamp), open.name, open.thread,
                                                   open.domain, 0});
  ranges_.erase(found);
}

void Decoder::context(const Context& record) {
  contexts_[record.contextId].device = record.deviceId;
}

void Decoder::worked(std::uint32_t device, std::uint32_t context, Recorder& recorder) {
  if (std::ranges::find(devices_, device, &format::DeviceRecord::device) == devices_.end()) {
    devices_.push_back(describe_device(driver_, device, recorder));
    recorder.add(format::kDevice, devices_.back());
  }
  ContextState& state = contexts_[context];
  state.device = device;
  state.worked = true;
}

void Decoder::forget() {
  names_ = {};
  calls_.forget();
  give_back(devices_);
  give_back(contexts_);
  give_back(ranges_);
  unfinished_ = {};
  ending_ = false;
}

std::uint32_t Decoder::idle_contexts() const {
  const auto idle = [](const auto& entry) { return !entry.second.worked; };
  return static_cast<std::uint32_t>(std::ranges::count_if(contexts_, idle));
}

}  // namespace ai_prof::cupti
