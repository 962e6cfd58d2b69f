// The prefixes of CUPTI's records that the decoder reads.
//
// NVIDIA only ever appends fields, so a record of any later version is read through the oldest layout that
// has the fields we want. The offsets below were the same in every release from 12.4 to 13.5; a header in
// which one moved must not compile. Records are walked with cuptiActivityGetNextRecord, never by sizeof.
#pragma once

#include <cupti.h>

#include <cstddef>

namespace ai_prof::cupti {

using Kernel = CUpti_ActivityKernel9;
using Memcpy = CUpti_ActivityMemcpy5;
using PeerCopy = CUpti_ActivityMemcpyPtoP4;
using Memset = CUpti_ActivityMemset4;
using Synchronization = CUpti_ActivitySynchronization;
using Api = CUpti_ActivityAPI;
using GraphTrace = CUpti_ActivityGraphTrace;
using Overhead = CUpti_ActivityOverhead;
using Marker = CUpti_ActivityMarker2;
using Context = CUpti_ActivityContext;

static_assert(sizeof(void*) == 8, "the layouts are those of a 64-bit CUPTI");

static_assert(offsetof(Kernel, registersPerThread) == 6);
static_assert(offsetof(Kernel, start) == 16);
static_assert(offsetof(Kernel, end) == 24);
static_assert(offsetof(Kernel, deviceId) == 40);
static_assert(offsetof(Kernel, contextId) == 44);
static_assert(offsetof(Kernel, streamId) == 48);
static_assert(offsetof(Kernel, gridX) == 52);
static_assert(offsetof(Kernel, blockX) == 64);
static_assert(offsetof(Kernel, staticSharedMemory) == 76);
static_assert(offsetof(Kernel, dynamicSharedMemory) == 80);
static_assert(offsetof(Kernel, correlationId) == 92);
static_assert(offsetof(Kernel, name) == 104);
static_assert(offsetof(Kernel, graphNodeId) == 144);
static_assert(offsetof(Kernel, graphId) == 156);

static_assert(offsetof(Memcpy, copyKind) == 4);
static_assert(offsetof(Memcpy, srcKind) == 5);
static_assert(offsetof(Memcpy, dstKind) == 6);
static_assert(offsetof(Memcpy, flags) == 7);
static_assert(offsetof(Memcpy, bytes) == 8);
static_assert(offsetof(Memcpy, start) == 16);
static_assert(offsetof(Memcpy, end) == 24);
static_assert(offsetof(Memcpy, deviceId) == 32);
static_assert(offsetof(Memcpy, contextId) == 36);
static_assert(offsetof(Memcpy, streamId) == 40);
static_assert(offsetof(Memcpy, correlationId) == 44);
static_assert(offsetof(Memcpy, graphNodeId) == 64);
static_assert(offsetof(Memcpy, graphId) == 72);

static_assert(offsetof(PeerCopy, bytes) == 8);
static_assert(offsetof(PeerCopy, start) == 16);
static_assert(offsetof(PeerCopy, end) == 24);
static_assert(offsetof(PeerCopy, deviceId) == 32);
static_assert(offsetof(PeerCopy, contextId) == 36);
static_assert(offsetof(PeerCopy, streamId) == 40);
static_assert(offsetof(PeerCopy, srcDeviceId) == 44);
static_assert(offsetof(PeerCopy, dstDeviceId) == 52);
static_assert(offsetof(PeerCopy, correlationId) == 60);
static_assert(offsetof(PeerCopy, graphNodeId) == 72);
static_assert(offsetof(PeerCopy, graphId) == 80);

static_assert(offsetof(Memset, bytes) == 8);
static_assert(offsetof(Memset, start) == 16);
static_assert(offsetof(Memset, end) == 24);
static_assert(offsetof(Memset, deviceId) == 32);
static_assert(offsetof(Memset, contextId) == 36);
static_assert(offsetof(Memset, streamId) == 40);
static_assert(offsetof(Memset, correlationId) == 44);
static_assert(offsetof(Memset, flags) == 48);
static_assert(offsetof(Memset, graphNodeId) == 64);
static_assert(offsetof(Memset, graphId) == 72);

static_assert(offsetof(Synchronization, type) == 4);
static_assert(offsetof(Synchronization, start) == 8);
static_assert(offsetof(Synchronization, end) == 16);
static_assert(offsetof(Synchronization, correlationId) == 24);
static_assert(offsetof(Synchronization, contextId) == 28);
static_assert(offsetof(Synchronization, streamId) == 32);

static_assert(offsetof(Api, cbid) == 4);
static_assert(offsetof(Api, start) == 8);
static_assert(offsetof(Api, end) == 16);
static_assert(offsetof(Api, threadId) == 28);
static_assert(offsetof(Api, correlationId) == 32);
static_assert(offsetof(Api, returnValue) == 36);

static_assert(offsetof(GraphTrace, correlationId) == 4);
static_assert(offsetof(GraphTrace, start) == 8);
static_assert(offsetof(GraphTrace, end) == 16);
static_assert(offsetof(GraphTrace, deviceId) == 24);
static_assert(offsetof(GraphTrace, graphId) == 28);
static_assert(offsetof(GraphTrace, contextId) == 32);
static_assert(offsetof(GraphTrace, streamId) == 36);

static_assert(offsetof(Overhead, overheadKind) == 4);
static_assert(offsetof(Overhead, objectKind) == 8);
static_assert(offsetof(Overhead, objectId) == 12);
static_assert(offsetof(Overhead, start) == 24);
static_assert(offsetof(Overhead, end) == 32);

static_assert(offsetof(Marker, flags) == 4);
static_assert(offsetof(Marker, timestamp) == 8);
static_assert(offsetof(Marker, id) == 16);
static_assert(offsetof(Marker, objectKind) == 20);
static_assert(offsetof(Marker, objectId) == 24);
static_assert(offsetof(Marker, name) == 40);
static_assert(offsetof(Marker, domain) == 48);

static_assert(offsetof(Context, contextId) == 4);
static_assert(offsetof(Context, deviceId) == 8);

}  // namespace ai_prof::cupti
