// CUPTI's activity records turned into the file's.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/recorder.h"
#include "core/window.h"
#include "cupti/cupti_api.h"
#include "cupti/host_calls.h"
#include "cupti/layouts.h"
#include "cupti/names.h"
#include "cupti/unfinished.h"

namespace ai_prof::cupti {

// The block that records of `kind` go to; 0 for those that are not written.
std::uint32_t block_of(CUpti_ActivityKind kind);

// Lives on the recorder's thread.
class Decoder {
 public:
  Decoder(const DriverApi& driver, Window& window) : driver_(driver), window_(window) {}

  // What is written of host calls, before the first record.
  void want(HostCalls::Wanted wanted) { calls_.want(wanted); }
  void decode(const CUpti_Activity& record, Recorder& recorder);
  // Before the window opens: only what must be known then, and the order of kernels. Writes nothing.
  void watch(const CUpti_Activity& record, Recorder& recorder);
  // Between two flushes of CUPTI.
  void round(Recorder& recorder) { calls_.round(recorder); }
  // What follows comes from the driver's last flush, which gives out work that is still in flight as well.
  void ending() { ending_ = true; }
  void finish(Recorder& recorder) {
    calls_.finish(recorder);
    unfinished_.count(recorder);
  }

  // Those with work so far.
  [[nodiscard]] std::span<const format::DeviceRecord> devices() const { return devices_; }
  // Any record at all has come.
  [[nodiscard]] bool any() const { return any_; }
  [[nodiscard]] std::uint64_t kernels() const { return kernels_; }
  [[nodiscard]] std::uint64_t launches() const { return calls_.launches(); }
  // Of these, those of which no kernel has come; 0 where launches are not recorded.
  [[nodiscard]] std::uint64_t launches_without_kernels() const {
    return launches() > answered_ ? launches() - answered_ : 0;
  }
  // Contexts that were created and of which no device work was seen.
  [[nodiscard]] std::uint32_t idle_contexts() const;
  // Gives back its memory; nothing is decoded any more.
  void forget();

 private:
  struct ContextState {
    std::uint32_t device = format::kNone32;
    bool worked = false;
  };
  struct OpenRange {
    std::int64_t start = 0;
    std::uint32_t name = 0;
    std::uint32_t thread = 0;
    std::uint32_t domain = 0;
  };

  format::KernelRecord kernel_record(const Kernel& record, Recorder& recorder);
  format::KernelRecord graph_record(const GraphTrace& record, Recorder& recorder);
  void memcpy(const Memcpy& record, Recorder& recorder);
  void peer_copy(const PeerCopy& record, Recorder& recorder);
  void memset(const Memset& record, Recorder& recorder);
  void kernel(const format::KernelRecord& kernel, Recorder& recorder);
  void synchronization(const Synchronization& record, Recorder& recorder);
  void overhead(const Overhead& record, Recorder& recorder);
  void marker(const Marker& record, Recorder& recorder);
  void context(const Context& record);
  template <class Record>
  void add_work(format::BlockType type, const Record& work, Recorder& recorder);
  void worked(std::uint32_t device, std::uint32_t context, Recorder& recorder);

  const DriverApi& driver_;
  Window& window_;
  Names names_;
  HostCalls calls_;
  std::vector<format::DeviceRecord> devices_;  // few
  std::unordered_map<std::uint32_t, ContextState> contexts_;
  std::unordered_map<std::uint32_t, OpenRange> ranges_;
  std::uint64_t kernels_ = 0;
  std::uint64_t answered_ = 0;      // launches of which a kernel has come
  std::uint32_t graph_launch_ = 0;  // the correlation of the last graph's kernel: those of a graph share it
  Unfinished unfinished_;
  bool any_ = false;
  bool ending_ = false;
};

}  // namespace ai_prof::cupti
