// What the layer keeps while it records, and the recorder's source that turns it into records.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/bounded_queue.h"
#include "core/config.h"
#include "core/recorder.h"
#include "core/window.h"
#include "opencl/cl_abi.h"
#include "opencl/device_clock.h"
#include "opencl/item.h"
#include "opencl/kernel_names.h"
#include "opencl/queues.h"

namespace ai_prof::opencl {

class Capture final : public Source {
 public:
  // The capture that records or watches now; null before its delay is over, after its end, and when there is
  // none.
  static Capture* current() noexcept { return current_.load(std::memory_order_acquire); }

  // The process's capture, recording or not: for what comes and goes, and what queues were made with.
  static Capture* known() noexcept { return known_.load(std::memory_order_acquire); }

  // Called when the program makes a context: the first one starts the capture. Never throws.
  static void start_once() noexcept;

  // ---- application threads ----
  Queue* find(cl_command_queue queue) const noexcept { return queues_.find(queue); }
  std::uint32_t kernel_name(cl_kernel kernel) noexcept;
  void released(cl_kernel kernel) noexcept { kernel_names_.forget(kernel); }
  void add_context(cl_context context);
  void add_queue(cl_command_queue handle, cl_context context, cl_device_id device, QueueView view);
  void retained(cl_command_queue handle) noexcept;
  void released(cl_command_queue handle) noexcept;
  void problem(std::string_view what) noexcept;

  bool api() const noexcept { return api_; }
  // Hands `item` over with this thread's id; counts it as dropped when there is no room.
  void submit(Item& item) noexcept;
  // Counts a command on a queue that is not known as dropped, where some had no room.
  void left_out(const Item& command) noexcept;
  std::uint32_t next_correlation() noexcept { return correlation_.fetch_add(1, std::memory_order_relaxed); }

  // ---- the recorder's thread ----
  std::chrono::milliseconds drain(Recorder& recorder) override;
  void calibrate(Recorder& recorder) override;
  void finish(Recorder& recorder, format::EndReason reason) override;
  void leave(Recorder&, format::EndReason) override { current_.store(nullptr, std::memory_order_release); }
  void forked() noexcept override;

 private:
  explicit Capture(const Config& config);
  static void start() noexcept;

  std::uint32_t device_id(cl_device_id device);
  void turn_window(Recorder& recorder);
  [[nodiscard]] bool watching() const { return window_.state() == Window::State::kWatching; }
  void collect(Recorder& recorder);
  void take_items(Recorder& recorder, std::size_t most_pending);
  void take_devices(Recorder& recorder);
  void add_host_records(Recorder& recorder, const Item& item);
  void poll_queues(Recorder& recorder);
  void poll(Recorder& recorder, Queue& queue);
  bool add_if_done(Recorder& recorder, const Item& item);
  void add_device_records(Recorder& recorder, const Item& item);
  void drop(const Item& item) noexcept;
  void count_dropped(const Item& item, bool command) noexcept;

  static std::atomic<Capture*> current_;
  static std::atomic<Capture*> known_;

  const Config& config_;
  const bool api_;
  const std::size_t most_pending_;
  Recorder* recorder_ = nullptr;
  BoundedQueue<Item> items_;
  std::atomic<std::uint32_t> correlation_{1};
  KernelNames kernel_names_;
  QueueTable queues_;
  std::atomic<bool> queues_left_out_{false};

  std::mutex mutex_;  // of what follows; taken where contexts, devices and queues come and go
  std::unordered_map<cl_context, std::uint32_t> contexts_;
  std::vector<cl_device_id> device_handles_;
  std::vector<std::pair<format::DeviceRecord, cl_device_id>> new_devices_;
  std::uint32_t queues_made_ = 0;
  std::uint32_t contexts_made_ = 0;

  // The recorder's thread alone:
  std::vector<std::unique_ptr<DeviceClock>> clocks_;
  std::array<std::uint32_t, kCallCount> call_names_{};
  std::vector<Queue*> busy_;
  std::size_t pending_ = 0;
  Window window_;
};

}  // namespace ai_prof::opencl
