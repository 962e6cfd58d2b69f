#include "cupti/cuda_source.h"

#include <algorithm>
#include <utility>

#include "core/json.h"
#include "core/say.h"
#include "cupti/find_cupti.h"

namespace ai_prof::cupti {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRound{250};

// CUPTI's callbacks carry no word of ours.
std::atomic<CudaSource*> g_source{nullptr};

// One for all captures of the process: CUPTI may give a buffer back after the capture that lent it.
BufferPool& the_pool(std::size_t bytes) {
  static auto* pool = new BufferPool(bytes);
  return *pool;
}

// What an earlier capture of this process has loaded; its path is empty before the first.
CuptiApi& loaded() {
  static auto* loaded = new CuptiApi;
  return *loaded;
}

}  // namespace

CudaSource::CudaSource(const Config& config)
    : config_(config),
      driver_(load_driver()),
      pool_(the_pool(config.buffer_bytes)),
      window_(config_, steady_clock::now()),
      decoder_(driver_, window_),
      clock_(api_) {}

Recorder* CudaSource::start(const Config& config) {
  auto* source = new CudaSource(config);
  g_source = source;
  std::string error;
  const bool begun = source->load(error) && source->begin(error);
  if (!begun) say("CUDA is not captured: " + error);
  if (!begun && config.attached) {  // the attacher is told, and wants no file
    source->inert_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  Recorder* recorder = Recorder::start(config, *source, "cuda");
  if (recorder == nullptr) {
    if (begun) source->abandon();
    return nullptr;
  }
  source->describe(*recorder, error);
  source->recorder_.store(recorder, std::memory_order_release);
  if (!begun) recorder->end(format::kEndError);
  return recorder;
}

bool CudaSource::recording() noexcept {
  CudaSource* source = g_source.load();
  if (source == nullptr) return false;
  Recorder* recorder = source->recorder_.load(std::memory_order_acquire);
  return recorder != nullptr && !recorder->closed();
}

bool CudaSource::load(std::string& error) {
  if (!loaded().path.empty()) {
    api_ = loaded();
    return true;
  }
  const std::vector<std::string> mapped = mapped_files();
  std::vector<std::string> candidates = cupti_candidates(config_.cupti, mapped, driver_.version());
  if (!config_.cupti_passed.empty()) {
    const bool there = candidates.front().starts_with('/') &&
                       std::find(mapped.begin(), mapped.end(), candidates.front()) != mapped.end();
    candidates.insert(candidates.begin() + (there ? 1 : 0), config_.cupti_passed);
  }
  if (load_cupti(candidates, api_, error)) {
    loaded() = api_;
    return true;
  }
  error = "no usable libcupti (" + error + "); install nvidia-cuda-cupti or name one with AI_PROF_CUPTI";
  return false;
}

bool CudaSource::begin(std::string& error) {
  // Subscribing is the only way to learn that another client is there.
  if (!subscribe(api_, subscriber_, error)) return false;
  set_attributes(api_, warnings_);
  const CUptiResult registered = api_.cuptiActivityRegisterCallbacks(requested, completed);
  if (registered != CUPTI_SUCCESS) {
    error = "CUPTI takes no buffers: " + api_.describe(registered);
  } else {
    // An injected library comes before any context, an attacher's may come at any time.
    contexts_ = config_.attached ? Contexts::kPerhaps : Contexts::kNone;
    enabled_ =
        window_.state() != Window::State::kBefore && enable(api_, config_, contexts_, warnings_, error);
    if (enabled_) window_.begun(steady_clock::now());
    begun_ = error.empty();
  }
  if (begun_) {
    // Not in a program that runs: its threads may read the environment meanwhile.
    if (!config_.attached) lead_nvtx_to(api_);
  } else {
    api_.cuptiUnsubscribe(subscriber_);
  }
  return begun_;
}

// There is no file to write to: leave the program as if we had never come.
void CudaSource::abandon() noexcept {
  inert_.store(true, std::memory_order_relaxed);
  stop_recording();
  api_.cuptiUnsubscribe(subscriber_);
}

void CudaSource::stop_recording() noexcept {
  if (std::exchange(enabled_, false)) disable(api_, config_, contexts_);
}

void CudaSource::describe(Recorder& recorder, const std::string& error) {
  recorder.meta("cupti_path", json_string(api_.path));
  recorder.meta("cupti_version", std::to_string(api_.version));
  recorder.meta("cupti_headers", std::to_string(CUPTI_API_VERSION));
  const int driver = driver_.version();
  recorder.meta("driver_version", driver != 0 ? std::to_string(driver) : "null");
  if (!error.empty()) {
    recorder.error(error);
    return;
  }
  recorder.meta("cupti_device_memory_bytes", std::to_string(device_memory_bound(api_)));
  if (config_.level == Level::kApi && !api_.selects_calls()) recorder.meta("level", json_string("kernel"));
}

void CUPTIAPI CudaSource::requested(std::uint8_t** buffer, std::size_t* bytes,
                                    std::size_t* most_records) noexcept {
  CudaSource* source = g_source.load(std::memory_order_acquire);
  *buffer = source->pool_.take(*bytes);
  *most_records = 0;
  source->alive_.store(true, std::memory_order_release);
}

void CUPTIAPI CudaSource::completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                    std::size_t valid) noexcept {
  if (buffer != nullptr) g_source.load(std::memory_order_acquire)->keep(buffer, valid);
}

void CudaSource::keep(std::uint8_t* buffer, std::size_t valid) noexcept {
  Recorder* recorder = recorder_.load(std::memory_order_acquire);
  const bool over = inert_.load(std::memory_order_relaxed) || (recorder != nullptr && recorder->closed());
  if (pool_.kind(buffer) != BufferPool::Kind::kSlot) {
    if (!over) count_discarded(buffer, valid);
    pool_.release(buffer);
  } else if (over || valid == 0) {
    pool_.release(buffer);
  } else {
    pool_.put({buffer, valid});
    if (recorder != nullptr && pool_.crowded()) recorder->wake();
  }
}

void CudaSource::count_discarded(std::uint8_t* buffer, std::size_t valid) noexcept {
  if (pool_.kind(buffer) == BufferPool::Kind::kShared) {
    discarded_[format::kKernel].fetch_add(valid / sizeof(Kernel) + 1, std::memory_order_relaxed);
    return;
  }
  CUpti_Activity* record = nullptr;
  while (api_.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    discarded_[block_of(record->kind)].fetch_add(1, std::memory_order_relaxed);
  }
}

milliseconds CudaSource::drain(Recorder& recorder) {
  if (!begun_) return kRound;
  if (!std::exchange(settled_in_, true)) sampler_.begin(recorder);
  pool_.warm();
  const auto now = steady_clock::now();
  const milliseconds pause = window_.counting() ? Window::kSearchEvery : kRound;
  const bool round = now - flushed_ >= pause;
  if (round) {
    flushed_ = now;
    pool_.round();
    flush(0, recorder);
  }
  read_buffers(recorder);
  if (round) decoder_.round(recorder);
  sampler_.sample(decoder_.devices(), false, recorder);
  turn_window(recorder);
  return pause;
}

// Before CUDA is up a flush may never return.
void CudaSource::flush(std::uint32_t flag, Recorder& recorder) {
  if (!alive_.load(std::memory_order_acquire)) return;
  const CUptiResult result = api_.cuptiActivityFlushAll(flag);
  if (result != CUPTI_SUCCESS) recorder.meta("flush_error", json_string(api_.describe(result)));
}

// Those that wait now: a program that fills them as fast as they are read must not keep this thread from the
// end of the window and from its other work.
void CudaSource::read_buffers(Recorder& recorder) {
  Filled filled{};
  for (std::size_t left = pool_.waiting(); left > 0 && pool_.next(filled); --left) {
    read(filled, recorder);
    pool_.release(filled.data);
  }
  if (decoder_.any()) clock_.settle(recorder);
  std::size_t dropped = 0;
  if (alive_.load(std::memory_order_acquire) &&
      api_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped != 0) {
    recorder.cupti_dropped(dropped);
  }
  for (std::size_t block = format::kKernel; block <= format::kRange; ++block) {
    const std::uint64_t discarded = discarded_[block].exchange(0, std::memory_order_relaxed);
    if (discarded != 0) recorder.budget_dropped(static_cast<format::BlockType>(block), discarded);
  }
}

void CudaSource::read(const Filled& filled, Recorder& recorder) {
  CUpti_Activity* record = nullptr;
  for (;;) {
    const CUptiResult result = api_.cuptiActivityGetNextRecord(filled.data, filled.bytes, &record);
    if (result == CUPTI_ERROR_MAX_LIMIT_REACHED) return;
    if (result != CUPTI_SUCCESS) {
      recorder.error("a buffer of CUPTI's could not be read to its end: " + api_.describe(result));
      return;
    }
    if (window_.state() == Window::State::kWatching) {
      decoder_.watch(*record, recorder);
    } else {
      decoder_.decode(*record, recorder);
    }
  }
}

void CudaSource::turn_window(Recorder& recorder) {
  const Window::State state = window_.turn(steady_clock::now());
  if (state == Window::State::kOver) return recorder.end(format::kEndWindow);
  if (state == Window::State::kBefore || enabled_) return;
  std::string error;
  contexts_ = Contexts::kPerhaps;
  enabled_ = enable(api_, config_, contexts_, warnings_, error);
  if (enabled_) return window_.begun(steady_clock::now());
  say("CUDA is not captured: " + error);
  recorder.error(error);
  recorder.end(format::kEndError);
}

void CudaSource::calibrate(Recorder& recorder) {
  if (alive_.load(std::memory_order_acquire)) clock_.read(recorder);
}

void CudaSource::finish(Recorder& recorder, format::EndReason reason) {
  if (begun_) {
    flush(0, recorder);
    if (reason != format::kEndExit) stop_recording();
    read_buffers(recorder);
    decoder_.ending();
    flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, recorder);
    read_buffers(recorder);
    decoder_.finish(recorder);
    sampler_.sample(decoder_.devices(), true, recorder);
    judge(recorder);
    window_.tell(recorder);
    decoder_.forget();
  }
  if (!warnings_.empty()) recorder.meta("warnings", json_list(warnings_));
}

// At exit CUPTI is left as it is: letting go of it while the driver goes has deadlocked. It is never
// finalized: programs that replay CUDA graphs crash of that, and later profilers of the program record nothing.
void CudaSource::leave(Recorder& recorder, format::EndReason reason) {
  inert_.store(true, std::memory_order_relaxed);
  if (!std::exchange(begun_, false) || reason == format::kEndExit) return;
  stop_recording();
  const CUptiResult unsubscribed = api_.cuptiUnsubscribe(subscriber_);
  if (unsubscribed != CUPTI_SUCCESS) {
    recorder.error("CUPTI keeps its subscriber: " + api_.describe(unsubscribed));
  }
}

// What a user must know of a capture that looks well and is not.
void CudaSource::judge(Recorder& recorder) {
  if (decoder_.launches() != 0 && decoder_.kernels() == 0) {
    const std::string error = std::to_string(decoder_.launches()) +
                              " launches were seen and no kernel was recorded: this libcupti (" + api_.path +
                              ") may be too old for the GPU; name a newer one with AI_PROF_CUPTI";
    say(error);
    recorder.error(error);
  }
  if (const std::uint32_t idle = decoder_.idle_contexts(); idle != 0) {
    warnings_.push_back(std::to_string(idle) + " CUDA context(s) without any recorded device work");
  }
}

}  // namespace ai_prof::cupti
