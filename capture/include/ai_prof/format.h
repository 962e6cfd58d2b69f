// The .aiprof file: what the capture library writes and the reader reads. FORMAT.md tells it in prose.
//
// Every record has a fixed size, a multiple of 8, and fields at their natural alignment without implicit
// padding, so that a reader can map the payload of a block as an array. Times are int64 nanoseconds on
// the clock that the record's kind names. All integers are little-endian.
#pragma once

#include <cstdint>

namespace ai_prof::format {

inline constexpr char kMagic[8] = {'A', 'I', 'P', 'R', 'O', 'F', '\r', '\n'};
inline constexpr std::uint16_t kMajor = 1;
inline constexpr std::uint16_t kMinor = 1;

// The file starts with a Preamble, then `header_bytes` of UTF-8 JSON padded with spaces to a multiple of 8.
struct Preamble {
  char magic[8];
  std::uint16_t major;
  std::uint16_t minor;
  std::uint32_t header_bytes;  // the JSON with its padding
  std::uint32_t header_crc;    // CRC-32C of the JSON with its padding
  std::uint32_t reserved;      // 0
};

// Then blocks follow. The payload (record_size * count bytes) is padded with zeros to a multiple of 8.
struct BlockHeader {
  std::uint32_t type;         // BlockType
  std::uint32_t record_size;  // bytes of a record; 1 for text
  std::uint32_t count;        // records; bytes for text
  std::uint32_t crc;          // CRC-32C of the three fields above and the payload without its padding
};

// Readers skip a type that they do not know.
enum BlockType : std::uint32_t {
  kString = 1,    // text: one or more entries {u32 id, u32 bytes, UTF-8, zeros to a multiple of 4}
  kDevice = 2,    // DeviceRecord
  kKernel = 3,    // KernelRecord
  kMemcpy = 4,    // MemoryRecord
  kMemset = 5,    // MemoryRecord
  kSync = 6,      // SyncRecord
  kCall = 7,      // CallRecord
  kOverhead = 8,  // OverheadRecord
  kRange = 9,     // RangeRecord
  kClock = 10,    // ClockRecord
  kSample = 11,   // SampleRecord
  kLoss = 12,     // LossRecord
  kMeta = 13,     // text: one JSON object; later keys replace earlier ones
  kEnd = 14,      // EndRecord: the capture was closed in order; nothing follows
};

inline constexpr std::uint32_t kNone32 = 0xFFFFFFFFu;  // an absent id, device or reading
inline constexpr std::uint64_t kNone64 = 0xFFFFFFFFFFFFFFFFull;

struct DeviceRecord {
  std::uint32_t device;   // the id that the other records use
  std::uint32_t name;     // string id
  std::uint8_t uuid[16];  // zeros when unknown
  std::uint64_t memory_bytes;
  std::uint32_t kind;   // DeviceKind
  std::uint32_t units;  // multiprocessors or compute units
};

enum DeviceKind : std::uint32_t { kCuda = 1, kOpenCl = 2 };

// Device work. Times are on the clock of `device`.
struct KernelRecord {
  std::int64_t start;
  std::int64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t name;         // string id
  std::uint32_t correlation;  // the call that launched it: CallRecord::correlation; 0 when unknown
  std::uint32_t graph;        // id of the executable graph it ran in; 0 outside graphs
  std::uint64_t graph_node;   // 0 outside graphs
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t registers;     // per thread; 0 when unknown
  std::uint32_t shared_bytes;  // static and dynamic, per block
};

struct MemoryRecord {
  std::int64_t start;
  std::int64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t kind;  // CopyKind
  std::uint32_t correlation;
  std::uint32_t graph;
  std::uint64_t graph_node;
  std::uint64_t bytes;
  std::uint32_t peer;   // the other device of a peer copy, else kNone32
  std::uint32_t flags;  // kAsync, kPageable
};

enum CopyKind : std::uint32_t {
  kCopyUnknown = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kPeerToPeer = 4,
  kHostToHost = 5,
  kSet = 6,  // memset
};

inline constexpr std::uint32_t kAsync = 1u;
inline constexpr std::uint32_t kPageable = 2u;  // the host's side of a copy is known to be

// A host synchronization or a device-side wait. Times are on the host clock of the file.
struct SyncRecord {
  std::int64_t start;
  std::int64_t end;
  std::uint32_t kind;  // SyncKind
  std::uint32_t correlation;
  std::uint32_t device;  // kNone32 when unknown
  std::uint32_t context;
  std::uint32_t stream;  // kNone32 when it is for no one stream
  std::uint32_t thread;  // kNone32 when unknown: see the call with the same correlation
};

enum SyncKind : std::uint32_t {
  kSyncUnknown = 0,
  kEventSynchronize = 1,    // the host waits for an event
  kStreamWaitEvent = 2,     // a stream waits for an event; the host does not
  kStreamSynchronize = 3,   // the host waits for a stream or queue
  kContextSynchronize = 4,  // the host waits for a device
  kBlockingCopy = 5,        // the host waits for a copy that it asked for
};

// A host call. Times are on the host clock of the file.
struct CallRecord {
  std::int64_t start;
  std::int64_t end;
  std::uint32_t name;  // string id: cudaLaunchKernel, clEnqueueNDRangeKernel
  std::uint32_t kind;  // CallKind
  std::uint32_t thread;
  std::uint32_t correlation;
  std::int32_t result;  // the API's own return code; 0 is success
  std::uint32_t reserved;
};

enum CallKind : std::uint32_t {
  kCallOther = 0,
  kCallLaunch = 1,
  kCallCopy = 2,
  kCallSync = 3,
  kCallAlloc = 4,  // device memory
  kCallFree = 5,
  kCallHostAlloc = 6,
  kCallModuleLoad = 7,
  kCallGraphInstantiate = 8,
  kCallGraphLaunch = 9,
  kCallMap = 10,  // virtual memory
};

// Time that the capture itself took, as CUPTI reports it. Host clock.
struct OverheadRecord {
  std::int64_t start;
  std::int64_t end;
  std::uint32_t kind;  // CUpti_ActivityOverheadKind
  std::uint32_t thread;
};

// An NVTX range. Host clock.
struct RangeRecord {
  std::int64_t start;
  std::int64_t end;
  std::uint32_t name;
  std::uint32_t thread;
  std::uint32_t domain;  // string id; kNone32 for the default domain
  std::uint32_t reserved;
};

// One moment read on three clocks. `clock` is kHostClock, or a device id for that device's clock.
struct ClockRecord {
  std::int64_t source;     // on the clock that is calibrated
  std::int64_t monotonic;  // CLOCK_MONOTONIC
  std::int64_t realtime;   // CLOCK_REALTIME
  std::uint32_t clock;
  std::uint32_t uncertainty;  // half the time between the two readings around `source`, ns
};

inline constexpr std::uint32_t kHostClock = 0xFFFFFFFEu;

// One reading of NVML. CLOCK_MONOTONIC. What the card does not support is kNone32 or kNone64.
struct SampleRecord {
  std::int64_t time;
  std::uint32_t device;
  std::uint32_t gpu_utilization;     // percent
  std::uint32_t memory_utilization;  // percent
  std::uint32_t sm_clock;            // MHz
  std::uint32_t memory_clock;        // MHz
  std::uint32_t temperature;         // degrees Celsius
  std::uint32_t power;               // mW
  std::uint32_t other_processes;     // compute processes besides this one
  std::uint64_t throttle_reasons;    // nvmlClocksEventReasons
  std::uint64_t memory_used;         // bytes
  std::uint64_t memory_total;        // bytes
};

// Counts since the start of the file, for one block type; the last one stands.
struct LossRecord {
  std::uint32_t type;        // BlockType
  std::uint32_t unfinished;  // had not ended when the capture did: not written, and no loss; since 1.1
  std::uint64_t captured;
  std::uint64_t cupti_dropped;   // CUPTI had no buffer; it does not say of which kind: counted under kKernel
  std::uint64_t invalid_time;    // start or end 0, or end before start; not written
  std::uint64_t budget_dropped;  // our own bound was reached
};

struct EndRecord {
  std::int64_t monotonic;
  std::uint32_t reason;  // EndReason
  std::uint32_t reserved;
};

enum EndReason : std::uint32_t {
  kEndExit = 1,
  kEndWindow = 2,
  kEndStop = 3,
  kEndFileFull = 4,
  kEndError = 5
};

static_assert(sizeof(Preamble) == 24);
static_assert(sizeof(BlockHeader) == 16);
static_assert(sizeof(DeviceRecord) == 40);
static_assert(sizeof(KernelRecord) == 80);
static_assert(sizeof(MemoryRecord) == 64);
static_assert(sizeof(SyncRecord) == 40);
static_assert(sizeof(CallRecord) == 40);
static_assert(sizeof(OverheadRecord) == 24);
static_assert(sizeof(RangeRecord) == 32);
static_assert(sizeof(ClockRecord) == 32);
static_assert(sizeof(SampleRecord) == 64);
static_assert(sizeof(LossRecord) == 40);
static_assert(sizeof(EndRecord) == 16);

}  // namespace ai_prof::format
