#include "cupti/cuda_source.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/json.h"
#include "core/say.h"
#include "cupti/find_cupti.h"

namespace ai_prof::cupti {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRound{250};
// How long CUPTI is waited for. It may stand behind a kernel that does not end: the window's end, and `stop`,
// must come all the same. To begin can take it many seconds in a program that runs.
constexpr milliseconds kRoundPatience{250};
constexpr milliseconds kEndPatience{1500};
constexpr milliseconds kBeginPatience{30'000};
constexpr milliseconds kInFlight{20};  // a graph of a thousand kernels
constexpr milliseconds kInFlightPatience{500};

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
      clock_(api_),
      patience_(kEndPatience) {}

Recorder* CudaSource::start(const Config& config) {
  auto* source = new CudaSource(config);
  std::string error;
  const bool begun = source->load(error) && source->begin(error);
  if (!begun) say("CUDA is not captured: " + error);
  if (!begun && config.attached) {  // the attacher is told, and wants no file
    source->inert_.store(true, std::memory_order_relaxed);
    source->forget();
    return nullptr;
  }
  Recorder* recorder = Recorder::start(source->config_, *source, "cuda");
  if (recorder == nullptr) {  // leave the program as if we had never come
    if (begun) source->let_go();
    source->forget();
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
  const std::vector<std::string> libraries = loaded_libraries();
  std::vector<std::string> candidates = cupti_candidates(config_.cupti, libraries, driver_.version());
  if (!config_.cupti_passed.empty()) {
    const bool there = candidates.front().starts_with('/') &&
                       std::find(libraries.begin(), libraries.end(), candidates.front()) != libraries.end();
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
  session_ = Session::take(api_, config_.attached && driver_.has_context(), error);
  if (session_ == nullptr) return false;
  session_->widen(config_);
  decoder_.want({config_.level == Level::kApi, syncs_by_calls(api_, config_, contexts())});
  // What a capture before this one has left unread.
  for (Filled stale{}; pool_.next(stale);) pool_.release(stale.data);
  g_source = this;
  if (!config_.attached) {
    set_up();
  } else if (milliseconds patience = kBeginPatience;
             !session_->errands().run("start", [this] { set_up(); }, patience)) {
    error = session_->stuck();
    let_go();
    return false;
  }
  begun_ = outcome_.ok;
  error = outcome_.error;
  warnings_ = outcome_.problems;
  if (enabled_) window_.begun(steady_clock::now());
  // Not in a program that runs: its threads may read the environment meanwhile.
  if (begun_ && !config_.attached) lead_nvtx_to(api_);
  return begun_;
}

// An injected library comes before any context; an attacher's, and a delayed start, at any time.
Contexts CudaSource::contexts() const {
  return config_.attached || config_.delay_s > 0 ? Contexts::kPerhaps : Contexts::kNone;
}

void CudaSource::set_up() {
  const bool now = window_.state() != Window::State::kBefore;
  outcome_.ok = session_->subscribe(requested, completed, outcome_) &&
                (!now || session_->enable(config_, contexts(), outcome_));
  enabled_ = outcome_.ok && now;
  if (!outcome_.ok) session_->drop();
}

bool CudaSource::let_go() {
  inert_.store(true, std::memory_order_relaxed);
  milliseconds none{0};
  return session_->errands().run(
      "end", [this] { session_->leave(left_); }, session_->up() ? patience_ : none);
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
  source->session_->ask();
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
  bool round = now - flushed_ >= pause && !session_->errands().out();
  if (round) {
    flushed_ = now;
    pool_.round();
    milliseconds patience = kRoundPatience;
    round = flush(0, patience, recorder);
  }
  read_buffers(recorder);
  if (round) decoder_.round(recorder);
  sampler_.sample(decoder_.devices(), false, recorder);
  turn_window(recorder);
  return pause;
}

bool CudaSource::run(const char* what, std::function<void()> task, milliseconds& patience,
                     Recorder& recorder) {
  const int own = recorder.works_on(session_->errands().thread());
  const bool returned = session_->errands().run(what, std::move(task), patience);
  recorder.works_on(own);
  return returned;
}

// Before CUDA is up a flush may never return.
bool CudaSource::flush(std::uint32_t flag, milliseconds& patience, Recorder& recorder) {
  if (!session_->asked()) return true;
  return run("flush", [this, flag, &recorder] { session_->flush(flag, recorder); }, patience, recorder);
}

// Those that wait now: a program that fills them as fast as they are read must not keep this thread from the
// end of the window and from its other work. While CUPTI does not return as well: to walk through a buffer
// takes no lock of its own, as its callbacks may do it.
void CudaSource::read_buffers(Recorder& recorder) {
  Filled filled{};
  for (std::size_t left = pool_.waiting(); left > 0 && pool_.next(filled); --left) {
    read(filled, recorder);
    pool_.release(filled.data);
  }
  if (decoder_.any() && !session_->errands().out()) clock_.settle(recorder);
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

// A window that began with its program lasts from the first use of CUDA on: the program may load its data for
// long, and must not be left while CUDA comes up. An attacher's lasts as long as its clock says.
void CudaSource::turn_window(Recorder& recorder) {
  const auto now = steady_clock::now();
  if (!config_.attached && !worked_) {
    worked_ = session_->asked();
    window_.begun(now);
  }
  const Window::State state = window_.turn(now);
  if (state == Window::State::kOver) return recorder.end(format::kEndWindow);
  if (state != Window::State::kBefore && !enabled_) begin_late(recorder);
}

// After AI_PROF_DELAY.
void CudaSource::begin_late(Recorder& recorder) {
  milliseconds patience = kBeginPatience;
  outcome_ = {};
  const auto enable = [this] { outcome_.ok = session_->enable(config_, contexts(), outcome_); };
  if (!run("start", enable, patience, recorder)) return fail(session_->stuck(), recorder);
  warnings_.insert(warnings_.end(), outcome_.problems.begin(), outcome_.problems.end());
  enabled_ = outcome_.ok;
  if (!enabled_) return fail(outcome_.error, recorder);
  window_.begun(steady_clock::now());
}

void CudaSource::fail(const std::string& error, Recorder& recorder) {
  say("CUDA is not captured: " + error);
  recorder.error(error);
  recorder.end(format::kEndError);
}

void CudaSource::calibrate(Recorder& recorder) {
  if (!begun_ || session_->errands().out()) return;
  if (session_->was_up()) clock_.settle(recorder);
  if (session_->asked()) clock_.read(recorder);
}

void CudaSource::finish(Recorder& recorder, format::EndReason reason) {
  if (begun_) {
    const bool all = read_last(recorder, reason != format::kEndExit);
    decoder_.finish(recorder);
    sampler_.sample(decoder_.devices(), true, recorder);
    if (all) {
      judge(recorder);
    } else {
      tell_stuck(recorder);
    }
    window_.tell(recorder);
  }
  if (!warnings_.empty()) recorder.meta("warnings", json_list(warnings_));
}

bool CudaSource::read_last(Recorder& recorder, bool leaving) {
  bool returned = flush(0, patience_, recorder);
  if (returned && leaving && session_->up()) {
    returned = run("end", [this] { session_->disable(); }, patience_, recorder) && let_end(recorder);
  }
  read_buffers(recorder);
  if (!returned) return false;
  decoder_.ending();
  returned = flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, patience_, recorder);
  read_buffers(recorder);
  return returned;
}

// What was in flight when its kind was switched off: a record is none without its end, and CUPTI keeps what
// it has set aside for it, 3 MB and more, for good where the last flush comes before that.
bool CudaSource::let_end(Recorder& recorder) {
  const auto last = steady_clock::now() + kInFlightPatience;
  do {
    std::this_thread::sleep_for(kInFlight);
    if (!flush(0, patience_, recorder)) return false;
    read_buffers(recorder);
  } while (pool_.lent() != 0 && steady_clock::now() < last && !Recorder::exiting());
  return true;
}

// At exit CUPTI and NVML are left as they are.
void CudaSource::leave(Recorder& recorder, format::EndReason) {
  inert_.store(true, std::memory_order_relaxed);
  forget();
  if (!std::exchange(begun_, false) || Recorder::exiting()) return;
  sampler_.end(recorder);
  if (!let_go()) return;
  if (!left_.error.empty()) recorder.error(left_.error);
  pool_.cool();
}

void CudaSource::forget() {
  decoder_.forget();
  window_.forget();
}

void CudaSource::forked() noexcept {
  inert_.store(true, std::memory_order_relaxed);
  Session::forget();
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

// The records that CUPTI still holds back may be of anything: what the file says of its last moments is open.
void CudaSource::tell_stuck(Recorder& recorder) {
  std::string error = session_->stuck();
  if (const std::uint64_t launches = decoder_.launches_without_kernels(); launches != 0) {
    error += "; " + std::to_string(launches) + (launches == 1 ? " launch has" : " launches have");
    error += " no kernel yet";
    recorder.unfinished(format::kKernel, static_cast<std::uint32_t>(launches));
  }
  say(error);
  recorder.error(error);
  recorder.set_reason(format::kEndError);
}

}  // namespace ai_prof::cupti
