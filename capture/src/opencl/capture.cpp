#include "opencl/capture.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/explain.h"
#include "core/json.h"
#include "core/say.h"
#include "opencl/driver.h"

namespace ai_prof::opencl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMostQueueBytes = 16u << 20;  // more would only spread over the caches
constexpr std::size_t kBytesPerPending = 1024;      // an item and, roughly, the driver's event that it holds
constexpr milliseconds kIdlePause{50};
constexpr milliseconds kBusyPause{2};

// kNo, kYes, or the process whose thread is starting the capture. Forks reset it, so it is a word and not a
// lock that a child could find held; and while no recorder watches for forks yet, it tells a child that the
// thread is none of its own.
constexpr pid_t kNo = 0;
constexpr pid_t kYes = -1;
std::atomic<pid_t> g_started{kNo};

thread_local std::uint32_t t_thread_id = 0;  // asked for once

std::uint32_t thread_id() noexcept {
  if (t_thread_id == 0) t_thread_id = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return t_thread_id;
}

std::string device_name(cl_device_id device) {
  char name[256] = {};
  const cl_int result = next<kGetDeviceInfo>()(device, kDeviceName, sizeof name - 1, name, nullptr);
  return result == kSuccess ? name : "OpenCL device";
}

std::int64_t profile(cl_event event, cl_uint what) noexcept {
  return static_cast<std::int64_t>(info<kGetEventProfilingInfo, cl_ulong>(event, what, 0));
}

format::BlockType block_of(const Item& item) {
  if (item.what == Item::What::kKernel) return format::kKernel;
  return item.copy_kind == format::kSet ? format::kMemset : format::kMemcpy;
}

}  // namespace

std::atomic<Capture*> Capture::current_{nullptr};
std::atomic<Capture*> Capture::known_{nullptr};

Capture::Capture(const Config& config)
    : config_(config),
      api_(config.level == Level::kApi),
      most_pending_(config.buffer_bytes / 2 / kBytesPerPending),
      items_(std::min<std::size_t>(config.buffer_bytes / 4, kMostQueueBytes)),
      window_(config, steady_clock::now()) {}

void Capture::start_once() noexcept {
  const pid_t self = getpid();
  pid_t seen = g_started.load();
  while (seen != kYes) {
    if (seen == self) {
      std::this_thread::yield();
      seen = g_started.load();
    } else if (g_started.compare_exchange_strong(seen, self)) {
      start();
      g_started.store(kYes);
      return;
    }
  }
}

void Capture::start() noexcept {
  try {
    auto* capture = new Capture(config());  // for ever: threads of the program may be inside it
    capture->recorder_ = Recorder::start(config(), *capture, "opencl");
    if (capture->recorder_ == nullptr) return;
    known_.store(capture, std::memory_order_release);
    if (config().delay_s == 0) current_.store(capture, std::memory_order_release);
  } catch (const std::exception& error) {
    say("the OpenCL capture can't start: " + explain(error));
  }
}

void Capture::forked() noexcept {
  t_thread_id = 0;  // the child's only thread is this one, and has another number
  current_.store(nullptr);
  known_.store(nullptr);
  g_started.store(kNo);
}

// ---- application threads ----

std::uint32_t Capture::kernel_name(cl_kernel kernel) noexcept {
  if (const std::uint32_t known = kernel_names_.find(kernel); known != 0) return known;
  try {
    std::size_t size = 0;
    const auto get = next<kGetKernelInfo>();
    if (get(kernel, kKernelFunctionName, 0, nullptr, &size) != kSuccess || size == 0) return 0;
    std::string name(size, '\0');
    if (get(kernel, kKernelFunctionName, size, name.data(), nullptr) != kSuccess) return 0;
    name.resize(name.find('\0') == std::string::npos ? size : name.find('\0'));
    const std::uint32_t id = recorder_->intern(name);
    kernel_names_.keep(kernel, id);
    return id;
  } catch (const std::exception&) {  // out of memory: a kernel without a name
    return 0;
  }
}

void Capture::add_context(cl_context context) {
  const std::lock_guard lock(mutex_);
  contexts_[context] = contexts_made_++;
}

std::uint32_t Capture::device_id(cl_device_id device) {
  const auto known = std::ranges::find(device_handles_, device);
  const auto id = static_cast<std::uint32_t>(known - device_handles_.begin());
  if (known != device_handles_.end()) return id;
  format::DeviceRecord record{};
  record.device = id;
  record.name = recorder_->intern(device_name(device));
  record.kind = format::kOpenCl;
  record.memory_bytes = info<kGetDeviceInfo, cl_ulong>(device, kDeviceGlobalMemSize, 0);
  record.units = info<kGetDeviceInfo, cl_uint>(device, kDeviceMaxComputeUnits, 0);
  // Part of a device that the program lets go of is gone, and its clock is read until the end.
  if (const auto retain = next<kRetainDevice>()) retain(device);
  device_handles_.push_back(device);
  new_devices_.emplace_back(record, device);
  return id;
}

void Capture::add_queue(cl_command_queue handle, cl_context context, cl_device_id device, QueueView view) {
  const std::lock_guard lock(mutex_);
  auto queue = std::make_unique<Queue>();
  queue->view = std::move(view);
  queue->device = device_id(device);
  const auto [known, added] = contexts_.try_emplace(context, contexts_made_);
  if (added) ++contexts_made_;  // made before the capture began
  queue->context = known->second;
  queue->stream = queues_made_++;
  if (queues_.insert(handle, queue.get())) {
    // The recorder's thread frees it once the program has let go of it and all its commands are done.
    static_cast<void>(queue.release());
  } else {
    queues_left_out_.store(true, std::memory_order_relaxed);
    recorder_->error("too many command queues: the work of those made later is not recorded");
  }
  recorder_->wake();
}

void Capture::retained(cl_command_queue handle) noexcept {
  if (Queue* queue = find(handle)) queue->references.fetch_add(1, std::memory_order_relaxed);
}

void Capture::released(cl_command_queue handle) noexcept {
  Queue* queue = find(handle);
  if (queue == nullptr || queue->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard lock(mutex_);
  queues_.erase(handle);
  Item gone;
  gone.what = Item::What::kQueueGone;
  gone.queue = queue;
  items_.push(gone);  // where there is no room the few bytes of the queue stay
}

void Capture::problem(std::string_view what) noexcept {
  try {
    recorder_->error(what);
  } catch (const std::exception&) {  // out of memory
  }
}

void Capture::submit(Item& item) noexcept {
  item.thread = thread_id();
  if (!items_.push(item)) drop(item);
}

void Capture::drop(const Item& item) noexcept {
  const bool command = item.event != nullptr;
  if (command) next<kReleaseEvent>()(item.event);
  count_dropped(item, command);
}

void Capture::left_out(const Item& command) noexcept {
  if (queues_left_out_.load(std::memory_order_relaxed)) count_dropped(command, true);
}

void Capture::count_dropped(const Item& item, bool command) noexcept {
  if (command) recorder_->budget_dropped(block_of(item));
  if ((command && item.blocking) || item.what == Item::What::kSync) recorder_->budget_dropped(format::kSync);
  if (api_) recorder_->budget_dropped(format::kCall);
}

// ---- the recorder's thread ----

milliseconds Capture::drain(Recorder& recorder) {
  collect(recorder);
  turn_window(recorder);
  for (const auto& clock : clocks_) {
    if (clock->can_choose()) clock->calibrate(recorder);
  }
  return pending_ > 0 ? kBusyPause : kIdlePause;
}

void Capture::collect(Recorder& recorder) {
  for (bool more = true; more;) {
    take_items(recorder, most_pending_);
    take_devices(recorder);  // after the items, whose devices were known before them
    const bool was_full = pending_ >= most_pending_;
    poll_queues(recorder);
    more = was_full && pending_ < most_pending_;
  }
}

void Capture::turn_window(Recorder& recorder) {
  const Window::State state = window_.turn(steady_clock::now());
  if (state == Window::State::kBefore || known() != this) return;  // not yet, or not yet known
  if (state == Window::State::kOver) return recorder.end(format::kEndWindow);
  current_.store(this, std::memory_order_release);
}

void Capture::poll_queues(Recorder& recorder) {
  std::erase_if(busy_, [&](Queue* queue) {
    poll(recorder, *queue);
    queue->busy = !queue->pending.empty();
    if (queue->gone && !queue->busy) {
      delete queue;
      return true;
    }
    return !queue->busy;
  });
}

// What is not taken waits in the queue, and where that is full it is counted as dropped.
void Capture::take_items(Recorder& recorder, std::size_t most_pending) {
  Item item;
  while (pending_ < most_pending && items_.pop(item)) {
    Queue* queue = item.queue;
    if (item.what == Item::What::kQueueGone) {
      queue->gone = true;
    } else {
      add_host_records(recorder, item);
    }
    if (item.event != nullptr) {
      queue->pending.push_back(item);
      ++pending_;
    }
    if (queue != nullptr && !queue->busy && (item.event != nullptr || queue->gone)) {
      queue->busy = true;
      busy_.push_back(queue);
    }
  }
}

void Capture::add_host_records(Recorder& recorder, const Item& item) {
  if (watching()) return;
  if (item.what == Item::What::kSync || (item.event != nullptr && item.blocking)) {
    format::SyncRecord sync{};
    sync.start = item.start;
    sync.end = item.end;
    sync.kind = item.what == Item::What::kSync ? item.sync_kind : std::uint32_t{format::kBlockingCopy};
    sync.correlation = item.correlation;
    // A wait for events names no queue: another thread may release the queue meanwhile.
    sync.device = item.queue != nullptr ? item.queue->device : clocks_.size() == 1 ? 0 : format::kNone32;
    sync.context = item.queue != nullptr ? item.queue->context : format::kNone32;
    sync.stream = item.queue != nullptr ? item.queue->stream : format::kNone32;
    sync.thread = item.thread;
    recorder.add(format::kSync, sync);
  }
  if (!api_) return;
  const auto call = static_cast<std::size_t>(item.call);
  if (call_names_[call] == 0) call_names_[call] = recorder.intern(kCalls[call].name);
  recorder.add(format::kCall, format::CallRecord{item.start, item.end, call_names_[call], kCalls[call].kind,
                                                 item.thread, item.correlation, item.result, 0});
}

// The commands of a queue end in order, or near enough that waiting for the first costs little; finish()
// looks at them all.
void Capture::poll(Recorder& recorder, Queue& queue) {
  while (!queue.pending.empty() && add_if_done(recorder, queue.pending.front())) {
    queue.pending.pop_front();
    --pending_;
  }
}

bool Capture::add_if_done(Recorder& recorder, const Item& item) {
  const cl_int status = info<kGetEventInfo, cl_int>(item.event, kEventCommandExecutionStatus, -1);
  if (status > kComplete) return false;
  if (status == kComplete) {
    add_device_records(recorder, item);
  } else if (!watching()) {
    recorder.invalid_time(block_of(item));  // the command failed: it has no times
  }
  next<kReleaseEvent>()(item.event);
  return true;
}

void Capture::add_device_records(Recorder& recorder, const Item& item) {
  const Queue& queue = *item.queue;
  const std::int64_t start = profile(item.event, kProfilingCommandStart);
  const std::int64_t end = profile(item.event, kProfilingCommandEnd);
  DeviceClock& clock = *clocks_[queue.device];
  if (clock.open()) clock.observe(profile(item.event, kProfilingCommandQueued), item.start, item.end);
  if (clock.must_choose()) clock.calibrate(recorder);
  if (item.what == Item::What::kKernel) {
    format::KernelRecord kernel{};
    kernel.start = start;
    kernel.end = end;
    kernel.device = queue.device;
    kernel.context = queue.context;
    kernel.stream = queue.stream;
    kernel.name = item.name;
    kernel.correlation = item.correlation;
    std::ranges::copy(item.grid, kernel.grid);
    std::ranges::copy(item.block, kernel.block);
    window_.add(kernel);
    if (!watching()) recorder.add(format::kKernel, kernel);
    return;
  }
  format::MemoryRecord memory{};
  memory.start = start;
  memory.end = end;
  memory.device = queue.device;
  memory.context = queue.context;
  memory.stream = queue.stream;
  memory.kind = item.copy_kind;
  memory.correlation = item.correlation;
  memory.bytes = item.bytes;
  memory.peer = format::kNone32;
  memory.flags = item.blocking ? 0 : format::kAsync;
  window_.add(memory);
  if (!watching()) recorder.add(block_of(item), memory);
}

void Capture::take_devices(Recorder& recorder) {
  std::vector<std::pair<format::DeviceRecord, cl_device_id>> devices;
  {
    const std::lock_guard lock(mutex_);
    devices.swap(new_devices_);
  }
  for (const auto& [record, handle] : devices) {
    recorder.add(format::kDevice, record);
    clocks_.push_back(std::make_unique<DeviceClock>(record.device, handle));
    clocks_.back()->calibrate(recorder);
  }
}

void Capture::calibrate(Recorder& recorder) {
  recorder.add(format::kClock, read_together(format::kHostClock, monotonic_ns));
  for (const auto& clock : clocks_) clock->calibrate(recorder);
}

void Capture::finish(Recorder& recorder, format::EndReason) {
  current_.store(nullptr, std::memory_order_release);
  collect(recorder);
  take_items(recorder, std::numeric_limits<std::size_t>::max());  // and what waits behind the bound
  take_devices(recorder);
  for (Queue* queue : busy_) {
    for (const Item& item : queue->pending) {
      if (!add_if_done(recorder, item)) recorder.unfinished(block_of(item));
    }
  }
  for (const auto& clock : clocks_) clock->finish(recorder);
  window_.tell(recorder);
}

}  // namespace ai_prof::opencl
