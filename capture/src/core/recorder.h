// One source's way into its file: interning, counting, batching, and the thread that does the writing.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ai_prof/format.h"
#include "core/condition.h"
#include "core/config.h"
#include "core/file_writer.h"
#include "core/mapped_vector.h"

namespace ai_prof {

class Recorder;

// What CUDA or OpenCL does on the recorder's thread. Any of it may throw; the capture then ends with
// kEndError.
class Source {
 public:
  virtual ~Source() = default;

  // Turns what has come in into records. Returns when it wants to be called again, at the latest.
  virtual std::chrono::milliseconds drain(Recorder& recorder) = 0;

  // Adds ClockRecords: at the start, every second and at the end.
  virtual void calibrate(Recorder& recorder) = 0;

  // Stop the driver's recording and add what there still is.
  virtual void finish(Recorder& recorder, format::EndReason reason) = 0;

  // The last call before the file is closed, also after one of the others threw: let go of the driver. All
  // records are in the file by now, so that a driver that never returns costs none.
  virtual void leave(Recorder& recorder, format::EndReason reason) = 0;

  // In a forked child, where neither the thread nor the file is ours: forget the recorder
  // (call nothing of it again) and touch no lock.
  virtual void forked() noexcept = 0;
};

// Lives for ever once started: threads of the program may be inside it until the process is gone.
class Recorder {
 public:
  // Opens the file, starts the thread, and arranges for the end at exit and for forks. Null, and said on
  // stderr, when the file can't be made. `name` is the header's "source".
  static Recorder* start(const Config& config, Source& source, std::string_view name) noexcept;

  // ---- any thread ----
  // The text's id in the file. A program that makes new names for ever makes us remember so much, not more:
  // a text may have several ids. 0, no name, and said in META, where the file takes no more of them.
  std::uint32_t intern(std::string_view text);

  // Records that were lost because a buffer of ours was full, or because CUPTI had none.
  void budget_dropped(format::BlockType type, std::uint64_t count = 1) noexcept;
  void cupti_dropped(std::uint64_t count) noexcept;

  // Adds a key to META; `json` is JSON. Later values replace earlier ones.
  void meta(std::string_view key, std::string json);
  // Adds to META's "errors", what is there already but once.
  void error(std::string_view what);

  // Calls drain() soon.
  void wake() noexcept;

  // The program is about to end: its exit handlers run.
  static bool exiting() noexcept;

  // True when nothing is recorded any more.
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

  // Ends the capture after the drain at hand, without waiting. Idempotent; the recorder's thread may call it.
  void end(format::EndReason reason) noexcept;

  // Ends the capture and waits for the file: `patience` with what holds the recorder's thread, more while it
  // is at work. False when that was too short. Idempotent; not from the recorder's thread.
  bool stop(format::EndReason reason, std::chrono::milliseconds patience) noexcept;

  // ---- the recorder's thread only (drain, calibrate, finish) ----
  // Counts the record as captured, or as invalid when its times are.
  template <class Record>
  void add(format::BlockType type, const Record& record) {
    if constexpr (requires { record.start; }) {
      if (record.start <= 0 || record.end <= 0 || record.end < record.start) {
        invalid_time(type);
        return;
      }
    }
    append(type, std::as_bytes(std::span(&record, 1)));
  }
  void invalid_time(format::BlockType type, std::uint64_t count = 1) noexcept;
  // Work that had not ended when the capture did: it lies outside of the window, and is no loss.
  void unfinished(format::BlockType type, std::uint32_t count = 1) noexcept {
    counts_[type].unfinished += count;
  }
  // Another reason for the end than the one that was given: something went wrong at it.
  void set_reason(format::EndReason reason);
  // While this thread waits for another of ours, `thread` is the one at whose work stop() looks. Gives the
  // one before it.
  int works_on(int thread) noexcept { return thread_.exchange(thread); }

 private:
  static constexpr std::size_t kTypes = format::kEnd + 1;

  struct Counts {
    std::uint64_t captured = 0;
    std::uint64_t invalid_time = 0;
    std::uint32_t unfinished = 0;
    std::atomic<std::uint64_t> budget_dropped{0};
    std::atomic<std::uint64_t> cupti_dropped{0};
  };
  struct Batch {
    MappedVector<std::byte> bytes;
    std::uint32_t record_size = 0;
    std::uint32_t count = 0;
  };

  Recorder(Source& source, std::unique_ptr<FileWriter> file);
  ~Recorder() = default;

  static void install_process_hooks();
  static void stop_all() noexcept;
  static void forget_all_in_child() noexcept;

  // As stop(); takes from `patience` what it has used of it.
  bool stop_within(format::EndReason reason, std::chrono::milliseconds& patience) noexcept;
  bool give_up() noexcept;
  bool start_thread();
  void run() noexcept;
  void work();
  bool wait(std::chrono::milliseconds pause);
  // Why it ends. From here on a stop() only waits: it came too late to be the reason.
  format::EndReason decided();
  void add_error(std::string_view what);  // under text_mutex_
  void append(format::BlockType type, std::span<const std::byte> record);
  void write_batch(format::BlockType type);  // and what it refers to
  void write_records(format::BlockType type);
  bool write(format::BlockType type, std::uint32_t record_size, std::uint32_t count,
             std::span<const std::byte> payload);
  void write_pending_text();
  void write_losses();
  void flush();
  void close_file();

  Source& source_;
  std::unique_ptr<FileWriter> file_;
  Recorder* next_ = nullptr;  // the list of those that live in this process
  int process_;               // the one that started it
  std::atomic<int> thread_{0};

  std::array<Counts, kTypes> counts_;
  std::array<Batch, kTypes> batches_;
  std::vector<std::byte> losses_written_;  // the last LOSS block
  bool full_ = false;

  std::mutex text_mutex_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::size_t ids_bytes_ = 0;
  std::uint32_t next_id_ = 1;
  std::string pending_strings_;
  std::map<std::string, std::string> pending_meta_;
  std::vector<std::string> errors_;

  std::mutex mutex_;
  Condition changed_;
  std::atomic<bool> woken_{false};
  bool stopping_ = false;
  bool done_ = false;
  format::EndReason reason_ = format::kEndExit;
  std::atomic<bool> closed_{false};
};

}  // namespace ai_prof
