// The CUDA source of a capture: CUPTI fills buffers on the program's threads, the recorder's thread reads
// them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "core/config.h"
#include "core/recorder.h"
#include "core/window.h"
#include "cupti/buffer_pool.h"
#include "cupti/cupti_api.h"
#include "cupti/decoder.h"
#include "cupti/device_sampler.h"
#include "cupti/host_clock.h"
#include "cupti/session.h"

namespace ai_prof::cupti {

class CudaSource final : public Source {
 public:
  // Loads CUPTI and begins to record, then opens the file: the exit handlers of what was loaded last run
  // first, and the recorder's must run before CUPTI's. Whatever fails is said and kept in the file's META.
  // One at a time in a process; the source lives for ever.
  // Null when there is no file to write to, and in an attached process when nothing can be captured or CUPTI
  // does not return.
  static Recorder* start(const Config& config);

  // A capture is under way in this process.
  static bool recording() noexcept;

  std::chrono::milliseconds drain(Recorder& recorder) override;
  void calibrate(Recorder& recorder) override;
  void finish(Recorder& recorder, format::EndReason reason) override;
  void leave(Recorder& recorder, format::EndReason reason) override;
  void forked() noexcept override;

 private:
  explicit CudaSource(const Config& config);

  // On the thread that initializes CUDA, or the agent's. False, and why in `error`, when nothing can be
  // captured.
  bool load(std::string& error);
  bool begin(std::string& error);
  void set_up();
  // The program may have one by the time that recording starts.
  [[nodiscard]] Contexts contexts() const;
  // Lets go of CUPTI, and waits for that; false where it has not come about by then.
  bool let_go();
  void describe(Recorder& recorder, const std::string& error);

  // CUPTI's callbacks, on any thread.
  static void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* bytes,
                                 std::size_t* most_records) noexcept;
  static void CUPTIAPI completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                 std::size_t bytes, std::size_t valid) noexcept;
  void keep(std::uint8_t* buffer, std::size_t valid) noexcept;
  void count_discarded(std::uint8_t* buffer, std::size_t valid) noexcept;

  // On the recorder's thread. Where one of these gives false CUPTI has not returned, and is left alone.
  bool run(const char* what, std::function<void()> task, std::chrono::milliseconds& patience,
           Recorder& recorder);
  bool flush(std::uint32_t flag, std::chrono::milliseconds& patience, Recorder& recorder);
  bool read_last(Recorder& recorder, bool leaving);
  bool let_end(Recorder& recorder);
  void read_buffers(Recorder& recorder);
  void read(const Filled& filled, Recorder& recorder);
  void turn_window(Recorder& recorder);
  void begin_late(Recorder& recorder);
  void fail(const std::string& error, Recorder& recorder);
  void judge(Recorder& recorder);
  void tell_stuck(Recorder& recorder);
  // Gives back the memory of what is read: nothing is any more.
  void forget();

  Config config_;
  CuptiApi api_;
  DriverApi driver_;
  BufferPool& pool_;
  Window window_;
  Decoder decoder_;
  HostClock clock_;
  DeviceSampler sampler_;
  Session* session_ = nullptr;
  Session::Outcome outcome_;  // of the start; the session's while that has not returned
  Session::Outcome left_;     // of the end, likewise
  Problems warnings_;

  bool begun_ = false;    // and not left
  bool enabled_ = false;  // CUPTI records
  bool worked_ = false;   // the program has used CUDA since
  std::chrono::steady_clock::time_point flushed_;
  std::chrono::milliseconds patience_;  // with CUPTI at the end
  bool settled_in_ = false;

  std::atomic<Recorder*> recorder_{nullptr};
  std::atomic<bool> inert_{false};
  std::array<std::atomic<std::uint64_t>, format::kEnd + 1> discarded_{};  // records, by block type
};

}  // namespace ai_prof::cupti
