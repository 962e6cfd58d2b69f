#include "core/recorder.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/give_back.h"
#include "core/host.h"
#include "core/json.h"
#include "core/patience.h"
#include "core/say.h"
#include "core/signals_blocked.h"

namespace ai_prof {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFlushEvery{250};
constexpr milliseconds kCalibrateEvery{1000};
constexpr milliseconds kExitPatience{2000};
constexpr std::size_t kBatchBytes = 256 << 10;
constexpr std::size_t kMostTextBytes = 8 << 20;  // of names, remembered and yet to be written, of each

// Every recorder that this process started and that may still have to be ended.
std::atomic<Recorder*> g_first{nullptr};
std::atomic<bool> g_exiting{false};

std::string string_entry(std::uint32_t id, const std::string& text) {
  const auto bytes = static_cast<std::uint32_t>(text.size());
  std::string entry(reinterpret_cast<const char*>(&id), sizeof id);
  entry.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(text);
  entry.append((4 - entry.size() % 4) % 4, '\0');
  return entry;
}

}  // namespace

Recorder::Recorder(Source& source, std::unique_ptr<FileWriter> file)
    : source_(source), file_(std::move(file)), process_(getpid()) {}

Recorder* Recorder::start(const Config& config, Source& source, std::string_view name) noexcept {
  try {
    const FileWish wish{config.output,         host_name(),      getpid(), make_header(config, name),
                        config.max_file_bytes, config.descriptor};
    std::string problem;
    std::unique_ptr<FileWriter> file = FileWriter::create(wish, problem);
    if (!file) {
      say(problem);
      return nullptr;
    }
    auto* recorder = new Recorder(source, std::move(file));
    install_process_hooks();
    if (!recorder->start_thread()) return nullptr;
    recorder->next_ = g_first.load();
    while (!g_first.compare_exchange_weak(recorder->next_, recorder)) {
    }
    return recorder;
  } catch (const std::exception& error) {
    say(std::string("capture can't start: ") + error.what());
    return nullptr;
  }
}

// At every start anew: what is registered last runs first, before the drivers that were loaded until now go.
// Forks are watched twice where a thread or a fork comes between, which does no harm: a static's lock would
// stay held in a child that is forked meanwhile.
void Recorder::install_process_hooks() {
  std::atexit([] { stop_all(); });
  static std::atomic<bool> watched{false};
  if (watched.load()) return;
  if (pthread_atfork(nullptr, nullptr, [] { forget_all_in_child(); }) != 0) {
    say("can't watch for forks; a forked child may be captured badly");
  }
  watched.store(true);
}

bool Recorder::exiting() noexcept {
  return g_exiting.load();
}

void Recorder::stop_all() noexcept {
  g_exiting.store(true);
  // With all of them together, at however many starts this was registered.
  static milliseconds patience = kExitPatience;
  for (Recorder* recorder = g_first.load(); recorder != nullptr; recorder = recorder->next_) {
    recorder->stop_within(format::kEndExit, patience);
  }
}

void Recorder::forget_all_in_child() noexcept {
  for (Recorder* recorder = g_first.exchange(nullptr); recorder != nullptr; recorder = recorder->next_) {
    recorder->closed_.store(true);
    recorder->file_->close();
    recorder->source_.forked();
  }
}

bool Recorder::start_thread() {
  const SignalsBlocked blocked;
  try {
    std::thread worker([this] {
      thread_ = static_cast<int>(syscall(SYS_gettid));
      run();
    });
    pthread_setname_np(worker.native_handle(), "ai-prof");
    worker.detach();
    return true;
  } catch (const std::system_error& error) {
    say(std::string("can't start the capture's thread: ") + error.what());
    return false;
  }
}

void Recorder::run() noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    say(std::string("the capture ended early: ") + error.what());
    set_reason(format::kEndError);
  }
  try {
    source_.leave(*this, decided());
  } catch (const std::exception& error) {
    say(std::string("the driver was not let go of in order: ") + error.what());
  }
  closed_.store(true, std::memory_order_release);
  try {
    close_file();
  } catch (const std::exception& error) {
    say(std::string("the capture's file was not closed in order: ") + error.what());
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

void Recorder::work() {
  source_.calibrate(*this);
  flush();
  auto calibrated = steady_clock::now();
  auto flushed = calibrated;
  for (bool more = true; more && !full_;) {
    more = wait(std::min(source_.drain(*this), kFlushEvery));
    const auto now = steady_clock::now();
    if (now - calibrated >= kCalibrateEvery) {
      source_.calibrate(*this);
      flush();
      write_losses();
      calibrated = flushed = now;
    }
    if (now - flushed >= kFlushEvery) {
      flush();
      flushed = now;
    }
  }
  if (full_) set_reason(format::kEndFileFull);
  source_.finish(*this, decided());
  source_.calibrate(*this);
  flush();
  write_losses();
}

bool Recorder::wait(milliseconds pause) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, pause, [this] { return woken_.exchange(false) || stopping_; });
  return !stopping_;
}

void Recorder::wake() noexcept {
  if (woken_.exchange(true)) return;  // it comes anyway, and this thread is the program's
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Recorder::set_reason(format::EndReason reason) {
  const std::lock_guard lock(mutex_);
  reason_ = reason;
}

format::EndReason Recorder::decided() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  return reason_;
}

void Recorder::end(format::EndReason reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (stopping_ || done_) return;
  stopping_ = true;
  reason_ = reason;
  changed_.notify_all();
}

bool Recorder::stop(format::EndReason reason, milliseconds patience) noexcept {
  return stop_within(reason, patience);
}

bool Recorder::stop_within(format::EndReason reason, milliseconds& patience) noexcept {
  if (getpid() != process_) return false;  // a child made by a bare clone: it has neither thread nor right
  std::unique_lock lock(mutex_);
  if (!stopping_ && !done_) {
    stopping_ = true;
    reason_ = reason;
    changed_.notify_all();
  }
  return wait_patiently(changed_, lock, thread_, patience, [this] { return done_; }) || give_up();
}

bool Recorder::give_up() noexcept {
  closed_.store(true, std::memory_order_release);
  say("the driver did not let the capture end in time; its last records may be missing");
  return false;
}

std::uint32_t Recorder::intern(std::string_view text) {
  const std::string valid = valid_utf8(text);
  const std::lock_guard lock(text_mutex_);
  if (const auto found = ids_.find(valid); found != ids_.end()) return found->second;
  if (pending_strings_.size() >= kMostTextBytes) {
    add_error("names came faster than they could be written: some work has none");
    return 0;
  }
  if (ids_bytes_ >= kMostTextBytes) {  // a name that comes back is written once more, with another id
    ids_.clear();
    ids_bytes_ = 0;
  }
  ids_bytes_ += sizeof(*ids_.begin()) + valid.size();
  pending_strings_ += string_entry(next_id_, valid);
  ids_.emplace(valid, next_id_);
  return next_id_++;
}

void Recorder::budget_dropped(format::BlockType type, std::uint64_t count) noexcept {
  counts_[type].budget_dropped.fetch_add(count, std::memory_order_relaxed);
}

void Recorder::cupti_dropped(std::uint64_t count) noexcept {
  counts_[format::kKernel].cupti_dropped.fetch_add(count, std::memory_order_relaxed);
}

void Recorder::invalid_time(format::BlockType type, std::uint64_t count) noexcept {
  counts_[type].invalid_time += count;
}

void Recorder::meta(std::string_view key, std::string json) {
  const std::lock_guard lock(text_mutex_);
  pending_meta_.insert_or_assign(std::string(key), std::move(json));
}

void Recorder::error(std::string_view what) {
  const std::lock_guard lock(text_mutex_);
  add_error(what);
}

void Recorder::add_error(std::string_view what) {
  if (std::ranges::find(errors_, what) != errors_.end()) return;
  errors_.emplace_back(what);
  pending_meta_.insert_or_assign("errors", json_list(errors_));
}

void Recorder::append(format::BlockType type, std::span<const std::byte> record) {
  Batch& batch = batches_[type];
  if (batch.bytes.empty()) batch.bytes.reserve(kBatchBytes + record.size());
  batch.record_size = static_cast<std::uint32_t>(record.size());
  batch.bytes.insert(batch.bytes.end(), record.begin(), record.end());
  ++batch.count;
  ++counts_[type].captured;
  if (batch.bytes.size() >= kBatchBytes) write_batch(type);
}

void Recorder::write_batch(format::BlockType type) {
  if (batches_[type].count == 0) return;
  // A reader of a cut file must find what the records refer to: names, devices, the clocks of their times.
  write_pending_text();
  write_records(format::kDevice);
  write_records(format::kClock);
  write_records(type);
}

void Recorder::write_records(format::BlockType type) {
  Batch& batch = batches_[type];
  if (batch.count == 0) return;
  if (!write(type, batch.record_size, batch.count, batch.bytes)) {
    counts_[type].captured -= batch.count;
    budget_dropped(type, batch.count);
  }
  batch.bytes.clear();
  batch.count = 0;
}

bool Recorder::write(format::BlockType type, std::uint32_t record_size, std::uint32_t count,
                     std::span<const std::byte> payload) {
  const FileWriter::Put put = file_->block(type, record_size, count, payload);
  if (put == FileWriter::Put::kFull) full_ = true;
  if (put == FileWriter::Put::kFailed && file_->write_errors() == 1) {
    const std::string reason = std::generic_category().message(errno);
    say("can't write " + file_->path() + ": " + reason + "; what is lost is counted in it");
    meta("write_errors", "1");  // ahead of the counts of what is lost: the end may not come into the file
  }
  return put == FileWriter::Put::kWritten;
}

// What can't be written now stays and is tried again with the next block.
void Recorder::write_pending_text() {
  std::string strings;
  std::map<std::string, std::string> keys;
  {
    const std::lock_guard lock(text_mutex_);
    strings = pending_strings_;
    keys = pending_meta_;
  }
  JsonObject meta;
  for (const auto& [key, json] : keys) meta.raw(key, json);
  const auto write_text = [this](format::BlockType type, const std::string& text) {
    return text.empty() ||
           write(type, 1, static_cast<std::uint32_t>(text.size()), std::as_bytes(std::span(text)));
  };
  const bool strings_written = write_text(format::kString, strings);
  const bool meta_written = write_text(format::kMeta, meta.empty() ? "" : meta.str());
  const std::lock_guard lock(text_mutex_);
  if (strings_written) pending_strings_.erase(0, strings.size());
  if (!meta_written) return;
  // Not what another thread has added or changed meanwhile.
  std::erase_if(pending_meta_, [&](const auto& entry) {
    const auto written = keys.find(entry.first);
    return written != keys.end() && written->second == entry.second;
  });
}

void Recorder::write_losses() {
  std::vector<format::LossRecord> losses;
  for (std::uint32_t type = format::kKernel; type <= format::kRange; ++type) {
    const Counts& counts = counts_[type];
    const format::LossRecord loss{type,
                                  counts.unfinished,
                                  counts.captured,
                                  counts.cupti_dropped.load(std::memory_order_relaxed),
                                  counts.invalid_time,
                                  counts.budget_dropped.load(std::memory_order_relaxed)};
    const bool any =
        (loss.unfinished | loss.captured | loss.cupti_dropped | loss.invalid_time | loss.budget_dropped) != 0;
    if (any) losses.push_back(loss);
  }
  const auto bytes = std::as_bytes(std::span(losses));
  if (std::ranges::equal(bytes, losses_written_)) return;  // an idle program's file does not grow by them
  if (write(format::kLoss, sizeof(format::LossRecord), static_cast<std::uint32_t>(losses.size()), bytes)) {
    losses_written_.assign(bytes.begin(), bytes.end());
  }
}

void Recorder::flush() {
  write_pending_text();
  for (std::uint32_t type = format::kString; type < kTypes; ++type)
    write_batch(static_cast<format::BlockType>(type));
}

void Recorder::close_file() {
  flush();
  if (file_->write_errors() != 0) {
    meta("write_errors", std::to_string(file_->write_errors()));
    write_pending_text();
  }
  write_losses();
  const format::EndRecord end{monotonic_ns(), decided(), 0};
  write(format::kEnd, sizeof end, 1, std::as_bytes(std::span(&end, 1)));
  file_->close();
  file_->forget();
  batches_ = {};
  const std::lock_guard lock(text_mutex_);
  give_back(ids_);
  give_back(pending_strings_);
}

}  // namespace ai_prof
