// Prints the layout of every record: a line "RECORD SIZE", then "FIELD OFFSET SIZE" for each field. Fails
// where the fields do not fill a record.
#include <cstddef>
#include <cstdio>
#include <initializer_list>

#include "ai_prof/format.h"

namespace {

using namespace ai_prof::format;

struct Field {
  const char* name;
  std::size_t offset;
  std::size_t size;
};

bool g_whole = true;

void print(const char* record, std::size_t size, std::initializer_list<Field> fields) {
  std::printf("%s %zu\n", record, size);
  std::size_t filled = 0;
  for (const Field& field : fields) {
    std::printf("%s %zu %zu\n", field.name, field.offset, field.size);
    g_whole = g_whole && field.offset == filled;
    filled += field.size;
  }
  g_whole = g_whole && filled == size;
}

// Only a macro can name a field and find it.
#define FIELD(field)                                       \
  Field {                                                  \
    #field, offsetof(Record, field), sizeof(Record::field) \
  }
#define RECORD(record, ...)                        \
  do {                                             \
    using Record = record;                         \
    print(#record, sizeof(Record), {__VA_ARGS__}); \
  } while (false)

void print_frame() {
  RECORD(Preamble, FIELD(magic), FIELD(major), FIELD(minor), FIELD(header_bytes), FIELD(header_crc),
         FIELD(reserved));
  RECORD(BlockHeader, FIELD(type), FIELD(record_size), FIELD(count), FIELD(crc));
  RECORD(LossRecord, FIELD(type), FIELD(unfinished), FIELD(captured), FIELD(cupti_dropped),
         FIELD(invalid_time), FIELD(budget_dropped));
  RECORD(EndRecord, FIELD(monotonic), FIELD(reason), FIELD(reserved));
}

void print_device_work() {
  RECORD(DeviceRecord, FIELD(device), FIELD(name), FIELD(uuid), FIELD(memory_bytes), FIELD(kind),
         FIELD(units));
  RECORD(KernelRecord, FIELD(start), FIELD(end), FIELD(device), FIELD(context), FIELD(stream), FIELD(name),
         FIELD(correlation), FIELD(graph), FIELD(graph_node), FIELD(grid), FIELD(block), FIELD(registers),
         FIELD(shared_bytes));
  RECORD(MemoryRecord, FIELD(start), FIELD(end), FIELD(device), FIELD(context), FIELD(stream), FIELD(kind),
         FIELD(correlation), FIELD(graph), FIELD(graph_node), FIELD(bytes), FIELD(peer), FIELD(flags));
}

void print_host_work() {
  RECORD(SyncRecord, FIELD(start), FIELD(end), FIELD(kind), FIELD(correlation), FIELD(device), FIELD(context),
         FIELD(stream), FIELD(thread));
  RECORD(CallRecord, FIELD(start), FIELD(end), FIELD(name), FIELD(kind), FIELD(thread), FIELD(correlation),
         FIELD(result), FIELD(reserved));
  RECORD(OverheadRecord, FIELD(start), FIELD(end), FIELD(kind), FIELD(thread));
  RECORD(RangeRecord, FIELD(start), FIELD(end), FIELD(name), FIELD(thread), FIELD(domain), FIELD(reserved));
}

void print_readings() {
  RECORD(ClockRecord, FIELD(source), FIELD(monotonic), FIELD(realtime), FIELD(clock), FIELD(uncertainty));
  RECORD(SampleRecord, FIELD(time), FIELD(device), FIELD(gpu_utilization), FIELD(memory_utilization),
         FIELD(sm_clock), FIELD(memory_clock), FIELD(temperature), FIELD(power), FIELD(other_processes),
         FIELD(throttle_reasons), FIELD(memory_used), FIELD(memory_total));
}

}  // namespace

int main() {
  print_frame();
  print_device_work();
  print_host_work();
  print_readings();
  return g_whole ? 0 : 1;
}
