// Prints the layout of every record: a line "RECORD SIZE", then "FIELD OFFSET SIZE" for each field.
#include <cstddef>
#include <cstdio>

#include "ai_prof/format.h"

namespace {

using namespace ai_prof::format;

// NOLINTNEXTLINE: only a macro can name a field and find it
#define FIELD(record, field) \
  std::printf("%s %zu %zu\n", #field, offsetof(record, field), sizeof(record::field));
#define RECORD(record) std::printf("%s %zu\n", #record, sizeof(record));

void print_frame() {
  RECORD(Preamble)
  FIELD(Preamble, magic) FIELD(Preamble, major) FIELD(Preamble, minor) FIELD(Preamble, header_bytes)
  FIELD(Preamble, header_crc) FIELD(Preamble, reserved)
  RECORD(BlockHeader)
  FIELD(BlockHeader, type) FIELD(BlockHeader, record_size) FIELD(BlockHeader, count) FIELD(BlockHeader, crc)
  RECORD(LossRecord)
  FIELD(LossRecord, type) FIELD(LossRecord, reserved) FIELD(LossRecord, captured)
  FIELD(LossRecord, cupti_dropped) FIELD(LossRecord, invalid_time) FIELD(LossRecord, budget_dropped)
  RECORD(EndRecord)
  FIELD(EndRecord, monotonic) FIELD(EndRecord, reason) FIELD(EndRecord, reserved)
}

void print_device_work() {
  RECORD(DeviceRecord)
  FIELD(DeviceRecord, device) FIELD(DeviceRecord, name) FIELD(DeviceRecord, uuid)
  FIELD(DeviceRecord, memory_bytes) FIELD(DeviceRecord, kind) FIELD(DeviceRecord, units)
  RECORD(KernelRecord)
  FIELD(KernelRecord, start) FIELD(KernelRecord, end) FIELD(KernelRecord, device) FIELD(KernelRecord, context)
  FIELD(KernelRecord, stream) FIELD(KernelRecord, name) FIELD(KernelRecord, correlation)
  FIELD(KernelRecord, graph) FIELD(KernelRecord, graph_node) FIELD(KernelRecord, grid)
  FIELD(KernelRecord, block) FIELD(KernelRecord, registers) FIELD(KernelRecord, shared_bytes)
  RECORD(MemoryRecord)
  FIELD(MemoryRecord, start) FIELD(MemoryRecord, end) FIELD(MemoryRecord, device) FIELD(MemoryRecord, context)
  FIELD(MemoryRecord, stream) FIELD(MemoryRecord, kind) FIELD(MemoryRecord, correlation)
  FIELD(MemoryRecord, graph) FIELD(MemoryRecord, graph_node) FIELD(MemoryRecord, bytes)
  FIELD(MemoryRecord, peer) FIELD(MemoryRecord, flags)
}

void print_host_work() {
  RECORD(SyncRecord)
  FIELD(SyncRecord, start) FIELD(SyncRecord, end) FIELD(SyncRecord, kind) FIELD(SyncRecord, correlation)
  FIELD(SyncRecord, device) FIELD(SyncRecord, context) FIELD(SyncRecord, stream) FIELD(SyncRecord, thread)
  RECORD(CallRecord)
  FIELD(CallRecord, start) FIELD(CallRecord, end) FIELD(CallRecord, name) FIELD(CallRecord, kind)
  FIELD(CallRecord, thread) FIELD(CallRecord, correlation) FIELD(CallRecord, result)
  FIELD(CallRecord, reserved)
  RECORD(OverheadRecord)
  FIELD(OverheadRecord, start) FIELD(OverheadRecord, end) FIELD(OverheadRecord, kind)
  FIELD(OverheadRecord, thread)
  RECORD(RangeRecord)
  FIELD(RangeRecord, start) FIELD(RangeRecord, end) FIELD(RangeRecord, name) FIELD(RangeRecord, thread)
  FIELD(RangeRecord, domain) FIELD(RangeRecord, reserved)
}

void print_readings() {
  RECORD(ClockRecord)
  FIELD(ClockRecord, source) FIELD(ClockRecord, monotonic) FIELD(ClockRecord, realtime)
  FIELD(ClockRecord, clock) FIELD(ClockRecord, uncertainty)
  RECORD(SampleRecord)
  FIELD(SampleRecord, time) FIELD(SampleRecord, device) FIELD(SampleRecord, gpu_utilization)
  FIELD(SampleRecord, memory_utilization) FIELD(SampleRecord, sm_clock) FIELD(SampleRecord, memory_clock)
  FIELD(SampleRecord, temperature) FIELD(SampleRecord, power) FIELD(SampleRecord, other_processes)
  FIELD(SampleRecord, throttle_reasons) FIELD(SampleRecord, memory_used) FIELD(SampleRecord, memory_total)
}

}  // namespace

int main() {
  print_frame();
  print_device_work();
  print_host_work();
  print_readings();
  return 0;
}
