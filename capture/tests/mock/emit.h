// The activity records that tests emit.
#pragma once

#include <cupti.h>

#include <cstdint>

namespace ai_prof::test {

inline constexpr std::uint32_t kContextId = 1;

inline CUpti_ActivityKernel9 kernel(const char* name, std::uint64_t start, std::uint64_t end,
                                    std::uint32_t correlation) {
  CUpti_ActivityKernel9 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = start;
  record.end = end;
  record.contextId = kContextId;
  record.streamId = 7;
  record.gridX = 11;
  record.gridY = 12;
  record.gridZ = 13;
  record.blockX = 32;
  record.blockY = 2;
  record.blockZ = 1;
  record.registersPerThread = 40;
  record.staticSharedMemory = 1024;
  record.dynamicSharedMemory = 512;
  record.correlationId = correlation;
  record.name = name;
  record.graphId = 5;
  record.graphNodeId = 0x500000001;
  return record;
}

// One of no length.
inline CUpti_ActivityKernel9 kernel(const char* name, std::uint64_t time, std::uint32_t correlation) {
  return kernel(name, time, time, correlation);
}

inline CUpti_ActivityMemcpy5 copy(CUpti_ActivityMemcpyKind kind, std::uint64_t start, std::uint64_t bytes) {
  CUpti_ActivityMemcpy5 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copyKind = static_cast<std::uint8_t>(kind);
  record.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  record.bytes = bytes;
  record.start = start;
  record.end = start + 1000;
  record.contextId = kContextId;
  record.streamId = 7;
  record.correlationId = 21;
  return record;
}

inline CUpti_ActivityMemcpyPtoP4 peer_copy(std::uint64_t start) {
  CUpti_ActivityMemcpyPtoP4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  record.bytes = 4096;
  record.start = start;
  record.end = start + 1000;
  record.contextId = kContextId;
  record.dstDeviceId = 3;
  record.correlationId = 22;
  return record;
}

inline CUpti_ActivityMemset4 set(std::uint64_t start) {
  CUpti_ActivityMemset4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.bytes = 256;
  record.start = start;
  record.end = start + 1000;
  record.contextId = kContextId;
  record.correlationId = 23;
  return record;
}

inline CUpti_ActivitySynchronization synchronization(CUpti_ActivitySynchronizationType type,
                                                     std::uint64_t start) {
  CUpti_ActivitySynchronization record{};
  record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.type = type;
  record.start = start;
  record.end = start + 5000;
  record.correlationId = 24;
  record.contextId = kContextId;
  record.streamId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  return record;
}

inline CUpti_ActivityAPI call(CUpti_ActivityKind domain, std::uint32_t id, std::uint64_t start,
                              std::uint32_t correlation) {
  CUpti_ActivityAPI record{};
  record.kind = domain;
  record.cbid = id;
  record.start = start;
  record.end = start + 2000;
  record.threadId = 4242;
  record.correlationId = correlation;
  return record;
}

inline CUpti_ActivityContext context(std::uint32_t id) {
  CUpti_ActivityContext record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONTEXT;
  record.contextId = id;
  return record;
}

inline CUpti_ActivityMarker2 marker(CUpti_ActivityFlag flag, std::uint64_t time, const char* name) {
  CUpti_ActivityMarker2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MARKER;
  record.flags = flag;
  record.timestamp = time;
  record.id = 9;
  record.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  record.objectId.pt.threadId = 4242;
  record.name = name;
  return record;
}

inline CUpti_ActivityOverhead overhead(std::uint64_t start) {
  CUpti_ActivityOverhead record{};
  record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  record.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
  record.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  record.objectId.pt.threadId = 4242;
  record.start = start;
  record.end = start + 100;
  return record;
}

inline CUpti_ActivityGraphTrace2 graph(std::uint64_t start) {
  CUpti_ActivityGraphTrace2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  record.correlationId = 25;
  record.start = start;
  record.end = start + 9000;
  record.graphId = 6;
  record.contextId = kContextId;
  record.streamId = 7;
  return record;
}

}  // namespace ai_prof::test
